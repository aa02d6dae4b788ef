"""Attacks: what each does to a comparison, that it can be undone, and that the label stays."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from judgetrain.data import world
from judgetrain.data.config import WorldConfig
from judgetrain.data.world.rule import load_world
from judgetrain.engines.config import WORLD_BASE
from judgetrain.errors import ConfigError
from judgetrain.extras.robustness.attacks.attack import KINDS, WORDINGS, Attack, load_attacks, worse_first
from judgetrain.schema import Comparison

EDITS = (
    "position, repetition, fake_citation, bandwagon, authority, sentiment, markdown, identity, distraction, self_praise"
)
EMPTY = "nothing, full_stop, colon, thought_process, solution, adversarial, first_sentence"
ALL = {name: load_attacks(name) for name in WORDINGS}
PLAIN = Comparison.of("how long ?", "a bad one .", "Six. Then wait!\nGood?", label="B", id="c")


def by_name(name: str, wording: str = "english") -> Attack:
    return next(attack for attack in ALL[wording] if attack.name == name)


@pytest.mark.parametrize("wording", sorted(ALL))
def test_a_wording_has_every_attack_of_the_suite(wording: str) -> None:
    of_kind = {kind: [a.name for a in ALL[wording] if a.kind == kind] for kind in KINDS}
    assert of_kind["edit"] == EDITS.split(", ")
    assert of_kind["empty"] == EMPTY.split(", ")
    assert (of_kind["rerun"], of_kind["control"]) == (["rerun"], ["control"])
    assert len(of_kind["forgery"]) > 50
    texts = [by_name(name).text for name in EMPTY.split(", ")[:5]]
    assert texts == ["", ".", ":", "Thought process:", "Solution"]


def test_edits_say_what_they_are_to_say_in_response_a_alone() -> None:
    assert by_name("repetition", "world").into(PLAIN).response_a == "a bad one . a bad one ."  # type: ignore[union-attr]
    marked = by_name("markdown").into(PLAIN.swapped())
    assert marked is not None
    assert marked.response_a == "## Answer\n\n- Six. \n- Then wait!\n\n- Good?"
    assert by_name("first_sentence").into(PLAIN.swapped()).response_a == "Six."  # type: ignore[union-attr]
    position = by_name("position").into(PLAIN)
    assert position is not None
    assert (position.response_a, position.label) == (PLAIN.response_b, "A")


texts = st.text(st.sampled_from("ab.!?\n -*#。»1"), max_size=30)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(texts, texts, st.sampled_from([a for a in ALL["english"] + ALL["world"] if a.kind != "empty"]))
def test_what_an_attack_adds_stands_beside_what_was_there(response: str, other: str, attack: Attack) -> None:
    comparison = Comparison.of("q\nr", response, other, label="B")
    attacked = attack.into(comparison)
    if attacked is None:
        assert attack.how == "markdown" and attack.bullet in f"{attack.text}{response}", "it is a list already"
        return
    before = (comparison.dialogue.query, comparison.response_a, comparison.response_b)
    after = (attacked.dialogue.query, attacked.response_a, attacked.response_b)
    if attack.how == "swap":
        assert after == (before[0], before[2], before[1]) and attacked.label == "A"
        return
    assert attacked.label == "B" and after[2] == before[2]
    place = 0 if attack.place == "query" else 1
    assert after[1 - place] == before[1 - place]
    remainder = (
        after[place].replace(attack.bullet, "").removeprefix(attack.text) if attack.how == "markdown" else after[place]
    )
    assert before[place] in remainder


def test_the_worse_response_is_put_first() -> None:
    assert worse_first(PLAIN) is PLAIN
    assert worse_first(PLAIN.swapped()) == PLAIN
    with pytest.raises(ValueError, match="tie"):
        worse_first(Comparison.of("q", "a", "b", label="tie"))


def test_the_world_s_truth_about_a_response_is_the_same_under_every_edit() -> None:
    truth = load_world(17)
    language = truth.language
    for comparison in world.eval_comparisons(WorldConfig(eval_comparisons=60), 17):
        if comparison.label == "tie":
            continue
        plain = worse_first(comparison)
        for attack in ALL["world"]:
            attacked = attack.into(plain)
            assert attacked is not None
            query = plain.dialogue.query
            before, after = (
                [[language.grade(r, name) for name in language.properties] for r in (c.response_a, c.response_b)]
                for c in (plain, attacked)
            )
            if attack.kind == "empty":
                assert max(after[0]) == 0, f"{attack.name} has content"
                assert truth.quality(query, attacked.response_b) > 0
            elif attack.how == "swap":
                assert after == before[::-1]
            else:
                assert after == before, attack.name


def test_the_world_s_judge_knows_every_word_of_its_wording() -> None:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(WORLD_BASE)
    for attack in ALL["world"]:
        if attack.kind != "forgery" and attack.how != "swap":
            wording = " ".join((attack.text, attack.join, attack.bullet if attack.how == "markdown" else ""))
            assert tokenizer.unk_token_id not in tokenizer(" ".join(["a", *wording.split()]))["input_ids"], attack.name


def test_attacks_are_chosen_by_kind_and_by_name() -> None:
    assert [a.name for a in load_attacks("english", ["rerun", "colon", "nothing"])] == ["rerun", "nothing", "colon"]
    assert {a.kind for a in load_attacks("english", ["edit"])} == {"edit"}
    with pytest.raises(ConfigError, match="attacks: 'flattery' is no attack; there are the kinds rerun, control"):
        load_attacks("english", ["flattery"])
