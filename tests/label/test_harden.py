"""Failed attacks as training data, by a judge whose every failing is scripted."""

from __future__ import annotations

import json
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.attacks.loading import load_attacks
from judgetrain.engines.base import Request
from judgetrain.errors import ConfigError
from judgetrain.judges.config import TreeConfig
from judgetrain.judges.prompting.parsing import parse_judgment, render_judgment, written_judgment
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.grow import Shape, grow
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, shard_of
from judgetrain.label import harden
from judgetrain.label.config import LabelConfig
from judgetrain.label.stages import LABEL
from judgetrain.pipeline.config import Config
from judgetrain.train.rl.rollouts import Labelled
from judgetrain.train.rl.run import _attacked, _parts
from judgetrain.train.stages import RlSettings
from tests.builders.evaluate import check, judge, run
from tests.builders.scripted import ScriptedEngine, comparison, criteria

TREE = TreeConfig(criteria=2, shard_size=4)
PRAISE = "no better one"


def said(first: int, second: int) -> str:
    compared = "A is better." if first > second else "B is better." if second > first else "both are equal."
    reasons = ["it says nothing." if score == 1 else f"it is worth {score}." for score in (first, second)]
    return render_judgment(first, second, *reasons, compared)


def worth(text: str, falls_for: tuple[str, ...]) -> int:
    """One to five, as the response says; five where the judge falls for what it shows."""
    if any(word in text for word in falls_for if word) or ("" in falls_for and not text.strip(" .:")):
        return 5
    return int(text[0]) if text[:1].isdigit() else 1


class Judge(ScriptedEngine):
    """Judges by what responses say they are worth, and ``falls_for`` some texts; the second criterion sees no
    difference."""

    def __init__(self, *falls_for: str) -> None:
        super().__init__(self._answer)
        self.falls_for = falls_for

    def _answer(self, request: Request, occurrence: int) -> str:
        if request.step == "criteria":
            return criteria(2)
        if request.step == "guideline":
            return "a guideline"
        shown = [worth(request.slots[f"response_{side}"], self.falls_for) for side in "ab"]
        return said(*shown) if "c1" in request.slots["criterion"] else said(1, 1)


COMPARISONS = [
    comparison(i, f"{i % 3 or 1} is this .", "4 is that .") if i % 2 else comparison(i, "4 is this .", "2 is that .")
    for i in range(30)
]
"""The better response says 4, and is B in every other one; the worse one says 1 or 2."""


@pytest.fixture
def grown(tmp_path: Path) -> dict[str, Path]:
    """Stage tree's artifact, by a judge that is attacked by nobody, and the judge's."""
    trees = grow(COMPARISONS, Judge(), load_prompt_set("compact"), Shape(count=2, criteria=2), TREE, 3)
    out = StageRun(tmp_path / "tree", "tree", 1, Console())
    out.sharded("trees", list(trees), 8, lambda _, items: shard_of(items), "comparisons")
    return {"tree": out.directory, "initial": judge(tmp_path / "initial")}


def labelled(
    grown: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *falls_for: str, **changes: Any
) -> Path:
    monkeypatch.setattr(harden, "make_engine", lambda *a, **k: Judge(*falls_for))
    settings = LabelConfig(**({"harden_attempts": 16, "holdout": 0.2, "view": 0, "max_chance": 1.0} | changes))
    config = Config(prompts="compact", label=settings, tree=TREE)
    return run("label", config, grown, tmp_path / "label").directory


def both(out: Path, name: str) -> list[dict[str, Any]]:
    return [row for part in ("train", "heldout") for row in read_rows(out, f"{name}-{part}")]


def test_a_judge_that_stands_up_to_every_attack_learns_nothing_more(
    grown: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = labelled(grown, tmp_path / "a", monkeypatch)
    out = labelled(grown, tmp_path / "b", monkeypatch, harden=["empty", "self_praise"])
    for name in ("sft", "pairs"):
        assert both(out, name) == both(plain, name)
    counts = json.loads((out / "yield.json").read_text())["hardened"]
    assert counts["self_praise:asked"] == counts["nothing:asked"] == 60
    assert not any("failed" in key for key in counts)
    assert list(read_rows(out, "attacked")) == []
    assert not (plain / "attacked.jsonl").exists()


def test_praise_that_is_believed_makes_examples_pairs_and_comparisons(
    grown: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = labelled(grown, tmp_path / "a", monkeypatch, PRAISE)
    out = labelled(grown, tmp_path / "b", monkeypatch, PRAISE, harden=["self_praise", "distraction"])
    counts = json.loads((out / "yield.json").read_text())["hardened"]
    pairs = [row for row in both(out, "pairs") if row["made"] == "harden: self_praise"]
    assert len(pairs) == counts["self_praise:failed"] > 10
    assert "distraction:failed" not in counts
    for row in pairs:
        prompt = row["prompt"][-1]["content"]
        chosen, rejected = (parse_judgment(row[side][0]["content"]) for side in ("chosen", "rejected"))
        assert PRAISE in prompt
        assert {chosen.first, chosen.second} in ({1, 4}, {2, 4}), "what was said before"
        assert {rejected.first, rejected.second} == {5, 4}
        first_is_praised = PRAISE in prompt[: prompt.index("Response B:")]
        assert ((chosen.first or 0) < (chosen.second or 0)) == first_is_praised
        assert "c1" in prompt
    taught = [row for row in both(out, "sft") if PRAISE in row["prompt"][-1]["content"]]
    assert [(r["prompt"], r["completion"]) for r in taught] == [(r["prompt"], r["chosen"]) for r in pairs]
    assert len(both(out, "sft")) == len(both(plain, "sft")) + len(pairs)


def test_answers_without_content_must_have_nothing_of_any_criterion(
    grown: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = labelled(grown, tmp_path, monkeypatch, "", harden=["nothing", "colon"], ties="neutral")
    pairs = [row for row in both(out, "pairs") if row["made"].startswith("harden")]
    assert {row["made"] for row in pairs} == {"harden: nothing", "harden: colon"}
    for row in pairs:
        chosen, rejected = (row[side][0]["content"] for side in ("chosen", "rejected"))
        assert written_judgment(rejected).first + written_judgment(rejected).second == 9  # type: ignore[union-attr]
        assert chosen in (said(1, 4), said(4, 1)), "in the judge's own words for what is not there"
        comparison_id = row["comparison_id"]
        assert "+" not in comparison_id, "held out with the comparison that was attacked"
    held = {r["comparison_id"] for r in read_rows(out, "pairs-heldout")}
    assert held.isdisjoint(r["comparison_id"] for r in read_rows(out, "pairs-train"))


def test_the_comparisons_on_which_attacks_succeed_are_stage_rl_s_too(
    grown: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = labelled(grown, tmp_path, monkeypatch, "", PRAISE, harden=["nothing", "self_praise"])
    labels = {row["comparison_id"]: row["verdict"] for row in read_rows(out, "labels")}
    known = [Labelled(c, labels[c.id]) for c in COMPARISONS]
    found = _attacked(out, known)
    assert len({each.comparison.id for each in found}) == len(found) > 20
    held = {r["comparison_id"] for name in ("sft", "pairs") for r in read_rows(out, f"{name}-heldout")}
    for each in found:
        attacked, better = each.comparison, each.verdict
        good = attacked.response_a if better == "A" else attacked.response_b
        bad = attacked.response_b if better == "A" else attacked.response_a
        assert good.startswith("4 is")
        assert bad == "" or PRAISE in bad
        assert attacked.id.split("+")[0] not in held
    assert _attacked(tmp_path, known) == []
    config = Config()
    config.train.rl.holdout = 0.5
    train, held_out = _parts(known, RlSettings.of(config), {"label": out})
    apart = {each.comparison.id for each in held_out}
    copies = [each.comparison.id.split("+")[0] for each in train if "+" in each.comparison.id]
    assert len(apart) > 5 and len(copies) > 5 and apart.isdisjoint(copies), "no attack on what is held out"
    others = [replace(each, verdict="tie") if i % 2 else each for i, each in enumerate(known)]
    kept = {each.comparison.id.split("+")[0] for each in _attacked(out, others)}
    assert kept and kept <= {c.id for c in COMPARISONS[::2]}, "none whose label is another there"


def test_examples_and_pairs_are_of_disjoint_comparisons_under_attack_too(
    grown: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = labelled(grown, tmp_path, monkeypatch, PRAISE, harden=["self_praise"], sft_share=0.5)
    made = [row for row in both(out, "pairs") if row["made"].startswith("harden")]
    examples = [row for row in both(out, "sft") if PRAISE in row["prompt"][-1]["content"]]
    assert made and examples
    ids = [{row["comparison_id"] for row in both(out, name)} for name in ("sft", "pairs")]
    assert ids[0].isdisjoint(ids[1])


@pytest.mark.parametrize(("what", "reason"), [("rejudge", "too_long"), ("attempts_on", "length")])
def test_what_was_not_written_to_its_end_teaches_nothing(
    grown: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, reason: str
) -> None:
    """An attacked response that does not fit, or a judgment before the attack that was cut off."""
    real = getattr(harden, what)

    def shortened(each: Any) -> Any:
        if isinstance(each, harden.Attempt):
            return replace(each, judged=shortened(each.judged))
        return replace(each, criteria=tuple(cut(c, reason) for c in each.criteria))

    monkeypatch.setattr(harden, what, lambda *a: list(map(shortened, real(*a))))
    out = labelled(grown, tmp_path, monkeypatch, PRAISE, harden=["self_praise"])
    assert json.loads((out / "yield.json").read_text())["hardened"] == {"not_whole": 60}
    assert not [row for row in both(out, "pairs") if row["made"].startswith("harden")]
    assert list(read_rows(out, "attacked")) == []


def test_of_a_tree_no_more_is_held_than_what_is_judged_anew(grown: dict[str, Path]) -> None:
    """All trees are read before the first is attacked: a million of them would not fit as they are."""
    attacks, config = (
        load_attacks("english", ["self_praise", "distraction"], "label.harden"),
        LabelConfig(max_chance=1.0),
    )
    attempts: list[harden.Attempt] = []
    for row in read_rows(grown["tree"], "trees"):
        tree = EvaluationTree.from_row(row)
        attempts += harden.attempts_on(tree, "A", attacks, config, 1) if int(tree.comparison.id[1:]) % 2 == 0 else ()
        gone, branches = weakref.ref(tree), sum(len(criterion.guidelines) for criterion in tree.criteria)
        del tree
        assert gone() is None and branches > 1
    assert attempts and {len(c.guidelines) for a in attempts for c in a.judged.criteria} == {1}
    assert {len(attempt.judged.criteria) for attempt in attempts} == {1}


def cut(criterion: CriterionNode, reason: str) -> CriterionNode:
    leaves = [
        replace(g, judgments=tuple(replace(j, finish_reason=reason) for j in g.judgments)) for g in criterion.guidelines
    ]
    return replace(criterion, guidelines=tuple(leaves))


def test_hardening_that_was_cut_short_goes_on_where_it_was(
    grown: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = labelled(grown, tmp_path / "a", monkeypatch, PRAISE, harden=["self_praise"])
    rejudge, calls = harden.rejudge, 0

    def dying(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return rejudge(*args)

    monkeypatch.setattr(harden, "rejudge", dying)
    with pytest.raises(KeyboardInterrupt):
        labelled(grown, tmp_path / "b", monkeypatch, PRAISE, harden=["self_praise"])
    out = labelled(grown, tmp_path / "b", monkeypatch, PRAISE, harden=["self_praise"])
    assert calls == 3, "shards of 16 attempts: one before, one lost, then the last"
    for name in ("sft-train.jsonl", "pairs-train.jsonl", "attacked.jsonl", "yield.json"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()


def test_hardening_needs_the_judge_and_attacks_that_there_are() -> None:
    config = Config(label=LabelConfig(harden=["edit"]))
    assert "initial" in LABEL.inputs(config)
    assert "initial" not in LABEL.inputs(Config())
    with pytest.raises(ConfigError, match=r"label\.harden: 'flattery' is no attack"):
        check(replace(config, label=LabelConfig(harden=["flattery"])), "label")


def test_a_judgment_in_the_contract_is_taken_apart_into_what_it_was_made_of() -> None:
    parts = written_judgment(render_judgment(2, 4.5, "it is\nshort", "it is long", "B."))
    assert parts is not None
    assert (parts.first, parts.second) == (2, 4.5)
    assert (parts.analysis_a, parts.analysis_b, parts.comparison) == ("it is\nshort", "it is long", "B.")
    assert written_judgment("Response A Score: 2\nResponse B Score: 3") is None
    assert written_judgment(render_judgment(2, 4, "a", "b", "c").replace("Score: 4", "Score: 9")) is None
