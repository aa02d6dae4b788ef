"""Responses of models, paired; and pairs constructed so that their better side is known."""

import random
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.losses import Losses
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data import responses
from judgetrain.data.config import ResponseModelConfig, ResponsesConfig, WorldConfig, WorldEngineConfig
from judgetrain.data.responses import pair, wrong_number
from judgetrain.data.world import train_dialogues
from judgetrain.data.world.rule import load_world
from judgetrain.engines.config import OpenAIEngineConfig
from judgetrain.errors import DataError, EngineError
from judgetrain.schema import Comparison, Dialogue, Message
from tests.builders.data import RESPONSES_SEED, run_responses
from tests.builders.faulty_server import serving
from tests.builders.scripted import Ending
from tests.builders.watched import spread

DIALOGUES = [Dialogue(f"d{i}", "s", (Message("user", "q"),)) for i in range(200)]


def test_pairs_are_of_different_models_in_random_order_and_independent_of_company() -> None:
    responses = {m: {d.id: f"{m} {d.id}" for d in DIALOGUES} for m in ("x", "y", "z")}
    pairs = list(pair(DIALOGUES, responses, 5, Losses()))
    assert len(pairs) == 200
    assert all(c.model_a != c.model_b and c.response_a.startswith(c.model_a) for c in pairs)
    seen = Counter((c.model_a, c.model_b) for c in pairs)
    assert len(seen) == 6
    assert min(seen.values()) > 15
    assert list(pair(DIALOGUES[50:60], responses, 5, Losses())) == pairs[50:60]


def test_empty_and_identical_responses_are_left_out_and_counted() -> None:
    responses = {"x": {"d0": "same", "d1": "a", "d2": " "}, "y": {"d0": "same ", "d1": "b", "d2": "c"}}
    dropped = Losses()
    assert [c.id for c in pair(DIALOGUES[:3], responses, 0, dropped)] == ["d1"]
    assert dropped == {"identical_responses": 1, "empty_response": 1}


def test_two_spellings_of_one_response_are_identical() -> None:
    composed = unicodedata.normalize("NFC", "Café")
    decomposed = unicodedata.normalize("NFD", "Café")
    responses = {"x": {"d0": composed, "d1": "one\ntwo"}, "y": {"d0": decomposed, "d1": "one\r\ntwo"}}
    dropped = Losses()
    assert list(pair(DIALOGUES[:2], responses, 0, dropped)) == []
    assert dropped == {"identical_responses": 2}


def prepare(tmp_path: Path, comparisons: Sequence[dict[str, Any]] = ()) -> dict[str, Path]:
    cluster, dialogues = (StageRun(tmp_path / name, name, 0, Console()) for name in ("cluster", "dialogues"))
    cluster.write_rows("sample", (d.to_row() for d in train_dialogues(WorldConfig(train_dialogues=40), 0)))
    dialogues.write_rows("comparisons", comparisons)
    return {"cluster": cluster.directory, "dialogues": dialogues.directory}


@pytest.mark.parametrize("skills", [[0.9], [0.9, 0.2], [0.9, 0.5, 0.2]])
def test_the_stage_with_the_worlds_writers(skills: list[float], tmp_path: Path) -> None:
    world = load_world(RESPONSES_SEED)  # no source names a rule, so that the run's seed draws it
    models = [
        ResponseModelConfig(name=f"w{skill}", engine=WorldEngineConfig(skill=skill, rule=RESPONSES_SEED))
        for skill in skills
    ]
    out = run_responses(tmp_path / "responses", ResponsesConfig(models), prepare(tmp_path))
    rows = list(read_rows(out.directory, "comparisons"))
    assert 30 <= len(rows) <= 40
    assert all(r["model_a"] != r["model_b"] for r in rows)
    for c in map(Comparison.from_row, rows):
        assert c.label == world.verdict(c.dialogue.query, c.response_a, c.response_b), "the world's truth"
    assert out.notes["pairs"]["comparisons"] == len(rows)


def test_without_models_and_without_responses_the_reason_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no_responses"):
        run_responses(tmp_path / "responses", ResponsesConfig(), prepare(tmp_path))


def test_sampled_dialogues_without_responses_are_counted_beside_those_that_have_them(tmp_path: Path) -> None:
    dialogues = train_dialogues(WorldConfig(train_dialogues=40), 0)
    pairs = [("good", "bad"), ("same", " same "), ("", "some")]
    rows = [Comparison(d.id, d, a, b).to_row() for d, (a, b) in zip(dialogues, pairs, strict=False)]
    out = run_responses(tmp_path / "responses", ResponsesConfig(), prepare(tmp_path, rows))
    assert out.notes["pairs"] == {
        "comparisons": 1,
        "identical_responses": 1,
        "empty_response": 1,
        "no_responses": len(dialogues) - 3,
    }
    counts = out.totals()["counts"]
    assert counts["in"] == counts["out"] + sum(counts["dropped"].values()) == len(dialogues)


def test_cut_responses_are_kept_and_counted_and_finished_models_are_not_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    def make(config: Any, name: str, **options: Any) -> Ending:
        loaded.append(name)
        return Ending(lambda request, occurrence: f"{name} answers", {"response": "length"})

    monkeypatch.setattr(responses, "make_engine", make)
    config = ResponsesConfig([ResponseModelConfig(name=name, engine=WorldEngineConfig()) for name in "xy"])
    inputs = prepare(tmp_path)
    out = run_responses(tmp_path / "responses", config, inputs)
    rows = list(read_rows(out.directory, "comparisons"))
    assert len(rows) == 40, "cut responses stay"
    assert out.notes["cut_at_max_new_tokens"] == {"x": 40, "y": 40}
    assert loaded == ["x", "y"]
    (out.directory / "comparisons.jsonl").unlink()
    again = run_responses(tmp_path / "responses", config, inputs)
    assert loaded == ["x", "y"], "every shard is there"
    assert list(read_rows(out.directory, "comparisons")) == rows
    assert again.totals() == out.totals()


def test_workers_share_what_local_models_answer_beside_one_that_is_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = spread(monkeypatch)
    with serving() as server:
        api = OpenAIEngineConfig(model="m", base_url=f"http://127.0.0.1:{server.server_port}/v1")
        models = [
            ResponseModelConfig(name="api", engine=api),
            ResponseModelConfig(name="here", engine=WorldEngineConfig(skill=0.5)),
        ]
        server.reply = lambda text: f"{len(server.bodies)}"
        out = run_responses(tmp_path / "a", ResponsesConfig(models), prepare(tmp_path), tmp_path / "outputs")
        assert out.notes["spent"]["requests"] == len(server.billed) == 40
    assert shared == {"responses-api": False, "responses-here": True}


def test_external_models_keep_to_a_budget_and_are_paid_for_once(tmp_path: Path) -> None:
    with serving() as server:
        api = OpenAIEngineConfig(model="m", base_url=f"http://127.0.0.1:{server.server_port}/v1")
        config = ResponsesConfig([ResponseModelConfig(name="api", engine=api)], max_requests=50)
        server.reply = lambda text: f"{len(server.bodies)}"
        with pytest.raises(EngineError, match=r"responses\.max_requests=50: so many are sent"):
            run_responses(tmp_path / "a", config, prepare(tmp_path), tmp_path / "outputs")
        config.max_requests = 80
        out = run_responses(tmp_path / "a", config, prepare(tmp_path), tmp_path / "outputs")
        assert out.notes["spent"]["requests"] == 80
        run_responses(tmp_path / "b", config, prepare(tmp_path), tmp_path / "outputs")
        assert len(server.billed) == 80, "one model answers 40 dialogues twice"
        assert len({(b["messages"][-1]["content"], b["seed"]) for b in server.billed}) == 80
    texts = [list(read_rows(tmp_path / a, "responses-api-1")) for a in "ab"]
    assert texts[0] == texts[1]


N = 60


def dialogue(i: int, reference: str | None) -> Dialogue:
    return Dialogue(f"s:{i:03d}", "s", (Message("user", f"query {i}"),), reference, None)


def planted(directory: Path, dialogues: list[Dialogue], rows: list[Comparison] | None = None) -> dict[str, Path]:
    """Stages dialogues and cluster: queries on a half circle in their order, between them some that are not sampled."""
    cluster = StageRun(directory / "cluster", "cluster", 0, Console())
    cluster.write_rows("sample", (d.to_row() for d in dialogues))
    every = [name for d in dialogues for name in (d.id, f"{d.id}-other")]
    cluster.write_rows("clusters", ({"id": name, "cluster": 0} for name in every))
    angles = np.arange(len(every)) * np.pi / len(every)
    np.save(cluster.directory / "embeddings.npy", np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float16))
    source = StageRun(directory / "dialogues", "dialogues", 0, Console())
    source.write_rows("comparisons", (c.to_row() for c in rows or []))
    return {"cluster": cluster.directory, "dialogues": source.directory}


def made(directory: Path, config: ResponsesConfig, inputs: dict[str, Path]) -> tuple[list[Comparison], dict[str, Any]]:
    out = run_responses(directory / "responses", config, inputs)
    return [Comparison.from_row(row) for row in read_rows(out.directory, "comparisons")], out.notes


def sides(each: Comparison) -> tuple[str, str]:
    """Return the better and the worse response."""
    return (each.response_a, each.response_b) if each.label == "A" else (each.response_b, each.response_a)


@pytest.fixture(autouse=True)
def nearly_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let queries be taken that lie as close together as the planted ones."""
    monkeypatch.setattr(responses, "MOST_SIMILAR", 0.99999)


def test_a_nearby_querys_answer_is_the_worse_side_which_stands_on_either_side(tmp_path: Path) -> None:
    dialogues = [dialogue(i, f"Answer {i}. It is so.") for i in range(N)]
    pairs, notes = made(tmp_path, ResponsesConfig(contrast=["nearby"]), planted(tmp_path, dialogues))
    assert [p.id for p in pairs] == [d.id for d in dialogues] and notes["contrast"]["nearby"] == N
    for i, constructed in enumerate(pairs):
        good, bad = sides(constructed)
        assert good == dialogues[i].reference
        near = {f"Answer {j}. It is so." for j in (i - 1, i + 1)}
        assert bad in near and constructed.made in {f"nearby: an answer to s:{j:03d}" for j in (i - 1, i + 1)}
    count = Counter(p.label for p in pairs)
    assert set(count) == {"A", "B"} and min(count.values()) > N / 4


def test_queries_too_near_are_left_out_and_the_same_answer_is_no_contrast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = np.pi / (2 * N)  # a sampled query and the next are two places apart
    dialogues = [dialogue(i, "The same." if i in (29, 31) else f"Answer {i}.") for i in range(N)]
    monkeypatch.setattr(responses, "MOST_SIMILAR", float(np.cos(3 * step)))  # nearer is the next one, not the one after
    pairs, _ = made(tmp_path, ResponsesConfig(contrast=["nearby"]), planted(tmp_path, dialogues))
    named = {p.id: str(p.made) for p in pairs}
    assert named["s:010"] in {"nearby: an answer to s:008", "nearby: an answer to s:012"}
    assert named["s:029"] in {"nearby: an answer to s:027"}, "s:031 says the same"


def test_neighbours_are_of_another_category(tmp_path: Path) -> None:
    groups = ["eggs"] * 10 + ["lamps"] * 10 + [None] * 10
    dialogues = [replace(dialogue(i, f"Answer {i}."), category=group) for i, group in enumerate(groups)]
    config = ResponsesConfig(contrast=["nearby"])
    pairs, notes = made(tmp_path / "groups", config, planted(tmp_path / "groups", dialogues))
    by = {p.id: str(p.made).removeprefix("nearby: an answer to ") for p in pairs}
    assert {by[f"s:{i:03d}"] for i in range(10)} == {"s:010"} and by["s:010"] == "s:009"
    assert {by[f"s:{i:03d}"] for i in range(15, 20)} == {"s:020"}, "one without a category is of another"
    assert by["s:025"] in {"s:024", "s:026"}, "where the dialogue itself has none, any neighbour will do"
    rows = [Comparison(d.id, d, "left", "right") for d in dialogues[:10]]
    alone = planted(tmp_path / "alone", dialogues[:10], rows)
    pairs, notes = made(tmp_path / "alone", config, alone)
    assert not any(p.made for p in pairs) and notes["contrast"]["nearby:no_neighbour"] == 10


def test_an_answer_with_errors_is_worse(tmp_path: Path) -> None:
    texts = ["Take 2 eggs. Boil them for 7 minutes.", "Only some words without numbers. And so on.", None]
    dialogues = [dialogue(i, texts[i % 3]) for i in range(N)]
    rows = [Comparison(d.id, d, "left", "right") for d in dialogues[:4]]
    rows.append(Comparison("s:005", dialogues[5], "Bad.", "Good. It has 3 words.", label="B"))
    pairs, notes = made(tmp_path, ResponsesConfig(contrast=["errors"]), planted(tmp_path, dialogues, rows))
    made_pairs = [p for p in pairs if p.made]
    for constructed in made_pairs:
        good, bad = sides(constructed)
        assert good == texts[int(constructed.id[2:]) % 3] and bad != good
        assert constructed.dialogue.reference is None, "a judge is not shown which side is the answer"
        assert str(constructed.made).startswith("errors: ") and len(bad.split()) == len(good.split())
        reason = " for " if "eggs" in good else "the words of a sentence in another order"
        assert reason in str(constructed.made) and (sorted(bad.split()) == sorted(good.split())) == ("eggs" not in good)
    facts = notes["contrast"]
    assert facts["errors"] == len(made_pairs) == 2 * N / 3 and facts["errors:no_good_answer"] == N / 3 - 1
    others = {p.id: (p.response_a, p.label) for p in pairs if not p.made}
    assert others == {"s:002": ("left", None), "s:005": ("Bad.", "B")}, "the data's own pairs, and what has a label"


def test_a_wrong_number_is_as_long_as_the_right_one_and_as_often_smaller() -> None:
    rng = random.Random(0)
    larger = Counter[bool]()
    for right in [*range(3, 9), *range(20, 90, 7), 150, 4711] * 100:
        wrong = wrong_number(str(right), rng)
        assert len(wrong) == len(str(right)) and abs(int(wrong) - right) in (1, 2, 3, 10)
        larger[int(wrong) > right] += 1
    # 1800 draws of a fair coin lie within 4 standard deviations (85) of the half.
    assert abs(larger[True] - 900) < 85 and larger.total() == 1800
    assert {wrong_number("9", random.Random(i)) for i in range(40)} == {"6", "7", "8"}
    assert {wrong_number("10", random.Random(i)) for i in range(40)} == {"11", "12", "13", "20"}
    assert {wrong_number("0", random.Random(i)) for i in range(40)} == {"1", "2", "3"}


def test_a_list_s_own_numbers_stay(tmp_path: Path) -> None:
    listed = "Do this:\n1. Take 20 eggs.\n2) Boil them 70 minutes.\n- 3. Wait.\n**4.** Eat."
    pairs, _ = made(
        tmp_path, ResponsesConfig(contrast=["errors"]), planted(tmp_path, [dialogue(i, listed) for i in range(N)])
    )
    for constructed in pairs:
        good, bad = sides(constructed)
        assert all(mark in bad for mark in ("\n1. Take", "\n2) Boil", "\n- 3. Wait", "\n**4.** Eat"))
        assert bad != good and str(constructed.made).count(" for ") == 2


def test_the_draw_is_of_the_id_alone(tmp_path: Path) -> None:
    dialogues = train_dialogues(WorldConfig(train_dialogues=N), 0)
    config = ResponsesConfig(contrast=["nearby", "errors"])
    config.models = [ResponseModelConfig(name=f"w{s}", engine=WorldEngineConfig(skill=s)) for s in (0.9, 0.2)]
    pairs, notes = made(tmp_path, config, planted(tmp_path, dialogues))
    assert [p.id for p in pairs] == sorted(p.id for p in pairs), "mixed, in the sample's order"
    assert all(p.model_a == p.model_b for p in pairs), "the same writer's answer to another query"
    counts = notes["contrast"]
    assert counts["nearby"] + counts["errors"] == N and min(counts["nearby"], counts["errors"]) > N / 4
    again, _ = made(tmp_path / "half", config, planted(tmp_path / "half", dialogues[: N // 2]))
    kinds = {p.id: str(p.made).partition(":")[0] for p in pairs}
    assert all(str(p.made).partition(":")[0] == kinds[p.id] for p in again)


def test_pairs_with_too_much_text_are_left_out_and_counted(tmp_path: Path) -> None:
    inputs = planted(tmp_path, [dialogue(i, f"Answer {i}." + " So it is." * i) for i in range(12)])
    every, _ = made(tmp_path / "all", ResponsesConfig(contrast=["nearby"]), inputs)
    config = ResponsesConfig(contrast=["nearby"], max_chars=100)
    short, notes = made(tmp_path, config, inputs)
    assert short == [c for c in every if c.characters <= 100] and 0 < len(short) < len(every)
    assert notes["pairs"]["too_long"] == len(every) - len(short)
    assert every[0].characters == sum(map(len, (every[0].dialogue.query, every[0].response_a, every[0].response_b)))
    config.max_chars = 5
    with pytest.raises(DataError, match=r"12 too_long; .*responses\.max_chars"):
        made(tmp_path / "none", config, inputs)
