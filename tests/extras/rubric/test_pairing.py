"""A rubric out of single responses: each is compared with one that people labelled otherwise."""

import json
import random
from contextlib import chdir
from pathlib import Path

from judgetrain.data.config import WorldEngineConfig
from judgetrain.data.rubrics import read_rubric
from judgetrain.data.world import SKILL, queries
from judgetrain.data.world.engine import WorldEngine
from judgetrain.data.world.rule import BEST_QUALITY, load_world
from judgetrain.extras.rubric.pairing import ScoredCriterion, ScoredResponse, pairs_of
from judgetrain.extras.rubric.reading import read_judged
from judgetrain.judges.kinds.branching import BranchingJudge
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judging.rows import score_rows
from judgetrain.schema import Candidates
from tests.builders.pipeline import here


def scored(
    number: int, query: str, label: float | None, names: tuple[str, ...] = ("clear",), score: float = 3.0
) -> ScoredResponse:
    """Return a response with one score by each of some criteria."""
    candidates = Candidates.of(query, [f"response {number}"])
    criteria = []
    for name in names:
        criteria.append(
            ScoredCriterion(
                text=f"{name}: is it {name}",
                name="",
                is_given=False,
                weight=1.0,
                guideline="",
                score=score,
                judgment="j",
            )
        )
    return ScoredResponse(
        id=f"r{number}",
        dialogue=candidates.dialogue,
        response=f"response {number}",
        label=label,
        criteria=tuple(criteria),
    )


def test_a_response_is_compared_with_one_of_its_prompt_that_has_another_label() -> None:
    responses = [
        scored(0, "bake a cake", 1.0),
        scored(1, "bake a cake please", 0.0),
        scored(2, "bake a cake", 1.0),
        scored(3, "bake a cake", 0.5, score=1.0),
    ]
    first, second = pairs_of(responses)
    assert (first.comparison.id, first.comparison.label, first.comparison.made) == ("r0|r3", "A", None)
    # Sides take turns, and what the other response answers is kept.
    assert (second.comparison.id, second.comparison.label) == ("r2|r1", "A")
    assert second.comparison.made == "bake a cake please"
    (judgment,) = first.criteria[0].judgments
    assert (judgment.score_a, judgment.score_b, judgment.verdict) == (3.0, 1.0, "A")


def test_no_response_counts_twice_and_what_has_no_partner_is_left_out() -> None:
    responses = [scored(number, f"query {number}", float(number == 0)) for number in range(5)]
    (pair,) = pairs_of(responses)
    assert set(pair.comparison.id.split("|")) & {"r0"}
    assert not list(pairs_of(responses[1:])), "all have one label"
    assert not list(pairs_of(responses[:1]))


def test_without_labels_any_two_are_a_pair_and_criteria_must_be_those_of_both() -> None:
    (pair,) = pairs_of([scored(0, "q", None, ("clear", "kind")), scored(1, "q", None, ("kind", "safe"))])
    assert pair.comparison.label is None
    assert [criterion.text for criterion in pair.criteria] == ["kind: is it kind"]
    assert not list(pairs_of([scored(0, "q", None, ("clear",)), scored(1, "q", None, ("safe",))]))


RULE = 2


def write_scores(path: Path, number: int) -> None:
    """Write the scores of labelled responses of the world by its annotator, as stage judge writes them."""
    world = load_world(RULE)
    rng = random.Random(3)
    groups = []
    labels = []
    for query in rng.sample(queries("train"), number):
        response = world.respond(query, SKILL, rng)
        groups.append(Candidates.of(query, [response]))
        labels.append(world.quality(query, response) / BEST_QUALITY)
    engine = WorldEngine(WorldEngineConfig(error_rate=0.0), world)
    options = JudgeOptions.of_directory(None, {"reads": "one", "score": "parsed", "aggregation": "mean"}, branches=10)
    judge = BranchingJudge(engine, load_prompt_set("compact"), options)
    with path.open("w", encoding="utf-8") as file:
        for group, scores, label in zip(groups, judge.score_batch(groups, 0), labels, strict=True):
            for row in score_rows(group, scores, "annotator", labels={"": label}):
                file.write(json.dumps(row) + "\n")


def test_a_rubric_is_found_in_labelled_responses_by_the_command(tmp_path: Path) -> None:
    write_scores(tmp_path / "scores.jsonl", 300)
    trees = list(read_judged([str(tmp_path / "scores.jsonl")]))
    # A few have no partner with another label left, and none stands twice.
    assert 130 <= len(trees) <= 150
    ids = [identifier for tree in trees for identifier in tree.comparison.id.split("|")]
    assert len(ids) == len(set(ids))
    world = load_world(RULE)
    for tree in trees:
        # By the truth of each response to its own prompt, without the labels of the file.
        other = tree.comparison.made or tree.comparison.dialogue.query
        quality_a = world.quality(tree.comparison.dialogue.query, tree.comparison.response_a)
        quality_b = world.quality(other, tree.comparison.response_b)
        assert tree.comparison.label == ("A" if quality_a > quality_b else "B")
    with chdir(tmp_path):
        run = here("rubric", "rubric.files=[scores.jsonl]", "rubric.kinds=1", f"output_dir={tmp_path}")
    assert run.returncode == 0, run.stdout + run.stderr
    (made,) = (tmp_path / "artifacts" / "rubric").iterdir()
    figures = json.loads((made / "rubric.json").read_text(encoding="utf-8"))
    assert (figures["learned_from"], figures["labelled"]) == ("labels", len(trees))
    assert read_rubric(made / "rubric.yaml").criteria
    assert ", to " in (made / "rubric.md").read_text(encoding="utf-8")
