"""Stage stress: what is chosen, what of its gain is truth, and which weights fall."""

import json
from contextlib import chdir
from itertools import combinations
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import yaml

from judgetrain.data.rubrics import read_rubric
from judgetrain.extras.rubric.stress_gains import (
    WHOLE,
    KindStressed,
    Stressed,
    best_of,
    divergence,
    figures_of,
    lowered,
    sizes_of,
    stressed_of,
)
from judgetrain.extras.rubric.stress_pools import LONGER, WORDS, edits_of
from judgetrain.rubrics import Criterion, Rubric
from tests.builders.evaluate import world_judge
from tests.builders.pipeline import here

RUBRIC = Rubric(
    (
        Criterion(text="is true", name="true", weight=2.0),
        Criterion(text="is minor", name="minor", weight=1.0),
        Criterion(text="is worthless", name="worthless", weight=2.0),
    )
)


def by_brute_force(n: int, scores: list[float], values: list[float]) -> float:
    """Return the mean value of the best of every n of the responses; of equal ones all count evenly."""
    outcomes = []
    for drawn in combinations(range(len(scores)), n):
        best = max(scores[place] for place in drawn)
        outcomes.append(fmean(values[place] for place in drawn if scores[place] == best))
    return fmean(outcomes)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6])
def test_best_of_is_the_mean_over_all_draws(n: int) -> None:
    scores = [0.5, 0.25, 0.75, 1.0, 0.0, 0.9]
    values = [1.0, -2.0, 0.3, 0.6, 4.0, 2.5]
    expected = by_brute_force(n, scores, values)
    assert best_of(n, np.array(scores), np.array(values)) == pytest.approx(expected)


def test_of_equal_scores_each_is_as_likely() -> None:
    # Of two with the best score, which stands first must not count: drawn alone or together.
    scores = np.array([1.0, 1.0, 0.0])
    assert best_of(3, scores, np.array([4.0, 0.0, 9.0])) == pytest.approx(2.0)
    assert best_of(3, np.ones(3), np.array([4.0, 0.0, 5.0])) == pytest.approx(3.0)


def test_divergence_of_the_best_of_n() -> None:
    # log n - (n - 1) / n, in nats.
    assert divergence(1) == 0
    assert divergence(2) == pytest.approx(0.693147 - 0.5, abs=1e-6)
    assert divergence(16) == pytest.approx(2.772589 - 0.9375, abs=1e-6)


def test_sizes_double_and_end_with_all_responses() -> None:
    assert sizes_of(2) == [1, 2]
    assert sizes_of(12) == [1, 2, 4, 8, 12]
    assert sizes_of(16) == [1, 2, 4, 8, 16]


def drawn_prompts(
    number: int, words_gain: float = 0.0, length_gain: float = 0.0, truth_of_edit: float = 0.0
) -> list[Stressed]:
    """Return prompts with 16 responses whose truth is ``2 true + minor``; ``worthless`` has nothing to do with it.

    Args:
        number: of prompts.
        words_gain: what the words of the criterion ``true`` gain by it.
        length_gain: what saying everything twice gains by the criterion ``minor``.
        truth_of_edit: what both edits are worth more.
    """
    rng = np.random.default_rng(5)
    prompts = []
    for _ in range(number):
        levels = rng.integers(0, 5, size=(3, 16)) / 4
        true, minor, worthless = levels
        scores = {"true": true, "minor": minor, "worthless": worthless, WHOLE: (2 * true + minor + 2 * worthless) / 5}
        edited = {
            (WORDS, "true"): (words_gain, truth_of_edit),
            (WORDS, "minor"): (0.0, 0.0),
            (LONGER, "minor"): (length_gain, truth_of_edit),
        }
        prompts.append(Stressed(scores, (2 * true + minor) / 3, edited))
    return prompts


def stressed(prompts: list[Stressed]) -> KindStressed:
    return figures_of("", prompts, RUBRIC, seed=0)


def test_what_is_gained_without_truth_is_marked_and_what_counts_is_not() -> None:
    figures = stressed(drawn_prompts(120))
    true, minor, worthless = figures.criteria
    assert (true.mark, minor.mark, worthless.mark) == ("holds", "holds", "without truth")
    # Chosen by it, the truth stays where it was, while the rubric gains.
    assert abs(worthless.gains[-1].truth) < 0.2
    assert worthless.gains[-1].rubric > 0.8
    assert worthless.factor < 0.2
    assert true.factor == minor.factor == 1.0


def test_gains_are_standard_deviations_of_what_the_best_of_n_has() -> None:
    prompts = drawn_prompts(3)
    figures = stressed(prompts)
    gain = figures.criteria[1].gains[1]
    assert gain.n == 2
    chosen = []
    for one in prompts:
        minor = one.scores["minor"].tolist()
        truth = one.truth.tolist()
        chosen.append(by_brute_force(2, minor, truth) - fmean(truth))
    size = fmean(float(np.var(one.truth)) for one in prompts) ** 0.5
    assert gain.truth == pytest.approx(fmean(chosen) / size)
    # Three prompts say nothing of others.
    assert gain.truth_interval is None
    assert figures.criteria[2].mark == "not shown"


def following_prompts(number: int) -> list[Stressed]:
    """Return prompts at which the scores by the criterion ``worthless`` follow those by ``true``, with noise."""
    rng = np.random.default_rng(6)
    prompts = []
    for one in drawn_prompts(number):
        true = one.scores["true"]
        minor = one.scores["minor"]
        following = (true + rng.random(16)) / 2
        scores = {"true": true, "minor": minor, "worthless": following, WHOLE: (2 * true + minor + 2 * following) / 5}
        prompts.append(Stressed(scores, one.truth, {}))
    return prompts


def shares_by_regression(prompts: list[Stressed]) -> list[float]:
    """Return each criterion's slope beside the others over its weight times the slope of the weighted sum."""
    weights = np.array([criterion.weight for criterion in RUBRIC.criteria])
    scores = []
    truths = []
    for one in prompts:
        of_prompt = np.column_stack([one.scores[key] for key in ("true", "minor", "worthless")])
        scores.extend(of_prompt - of_prompt.mean(axis=0))
        truths.extend(one.truth - one.truth.mean())
    slopes = np.linalg.lstsq(np.array(scores), np.array(truths))[0]
    slope_of_sum = np.polyfit(np.array(scores) @ weights, truths, 1)[0]
    return [float(share) for share in slopes / (weights * slope_of_sum)]


def test_a_criterion_that_follows_the_others_adds_little() -> None:
    prompts = following_prompts(60)
    true, minor, worthless = stressed(prompts).criteria
    # By itself it gains as much truth as a criterion that counts.
    assert worthless.gains[-1].truth > 0.7
    assert (true.mark, minor.mark, worthless.mark) == ("holds", "holds", "adds little")
    shares = [one.added.share for one in (true, minor, worthless) if one.added is not None]
    assert shares == pytest.approx(shares_by_regression(prompts))
    # Truth is made of the other two alone.
    assert worthless.factor == pytest.approx(0.0, abs=1e-9)
    assert true.factor == minor.factor == 1.0


def test_what_a_criterion_adds_is_not_known_of_few_prompts() -> None:
    worthless = stressed(following_prompts(9)).criteria[2]
    assert worthless.added is not None
    assert worthless.added.interval is None
    assert worthless.mark == "not shown"


def test_two_criteria_that_say_the_same_share_what_they_add() -> None:
    prompts = []
    for one in drawn_prompts(60):
        true = one.scores["true"]
        minor = one.scores["minor"]
        scores = {"true": true, "minor": minor, "worthless": true, WHOLE: (4 * true + minor) / 5}
        prompts.append(Stressed(scores, (4 * true + minor) / 5, {}))
    true_figures, minor_figures, same = stressed(prompts).criteria
    assert {true_figures.mark, minor_figures.mark, same.mark} == {"holds"}
    assert same.added is not None
    assert same.added.share == pytest.approx(1.0)


def test_where_a_rubric_has_no_truth_no_share_is_told() -> None:
    prompts = [Stressed(one.scores, 1 - one.truth, {}) for one in drawn_prompts(20)]
    assert [one.added for one in stressed(prompts).criteria] == [None, None, None]


def test_a_criterion_that_its_words_gain_counts_less() -> None:
    true, minor, _ = stressed(drawn_prompts(60, words_gain=0.5)).criteria
    assert true.mark == "by its words"
    assert minor.mark == "holds"
    # Half of the scale is some 1.4 deviations of five even levels, and the best of 16 gains some 1.4 too.
    assert true.factor < 0.3


def test_a_criterion_that_length_gains_counts_less_unless_the_edit_is_better() -> None:
    _, minor, _ = stressed(drawn_prompts(60, length_gain=0.5)).criteria
    assert minor.mark == "by length"
    _, minor, _ = stressed(drawn_prompts(60, length_gain=0.5, truth_of_edit=0.5)).criteria
    assert minor.mark == "holds"


def test_a_score_that_is_always_the_same_separates_nothing() -> None:
    prompts = []
    for one in drawn_prompts(20):
        prompts.append(Stressed({**one.scores, "worthless": np.full(16, 0.5)}, one.truth, {}))
    worthless = stressed(prompts).criteria[2]
    assert worthless.mark == "never separates"
    assert worthless.factor == 1.0
    assert worthless.kept is None


def test_weights_fall_and_a_criterion_that_keeps_nothing_is_left_out() -> None:
    figures = stressed(drawn_prompts(120))
    kept, left_out = lowered(RUBRIC, figures.criteria, least=0.01)
    expected = round(2.0 * figures.criteria[2].factor, 3)
    weights = {criterion.name: criterion.weight for criterion in kept.criteria}
    assert weights.get("worthless", 0.0) == pytest.approx(expected, abs=2e-3)
    assert weights["true"] == 2.0
    assert left_out == ([] if "worthless" in weights else ["worthless"])


def test_edits_add_nothing_but_words_and_length() -> None:
    length, *words = edits_of("do it .", RUBRIC)
    assert (length.kind, length.text) == (LONGER, "do it . do it .")
    assert [(edit.criterion, edit.text) for edit in words] == [
        ("true", "do it . is true"),
        ("minor", "do it . is minor"),
        ("worthless", "do it . is worthless"),
    ]


def test_unreadable_responses_are_left_out_and_negative_weights_turn_a_score() -> None:
    rubric = Rubric((Criterion(text="is rude", name="rude", weight=-1.0),))

    def said(rude: float | None, truth: float) -> dict[str, object]:
        return {"text": "", "value": 0.5 if rude is not None else None, "by_criterion": {"rude": rude}, "truth": truth}

    row = {
        "kind": "",
        "responses": [said(0.0, 1.0), said(None, 0.0), said(1.0, 0.0)],
        "edits": [{"kind": WORDS, "criterion": "rude", **said(0.25, 1.0)}],
    }
    (one,) = stressed_of([row], {"": rubric})[""]
    assert one.scores["rude"].tolist() == [0.0, -1.0]
    assert one.truth.tolist() == [1.0, 0.0]
    assert one.edited == {(WORDS, "rude"): (-0.25, 0.0)}
    # One readable response is nothing to choose from.
    row["responses"] = [said(0.0, 1.0), said(None, 0.0)]
    assert stressed_of([row], {"": rubric}) == {}


# By the command.

WORLD_RUBRIC = """
- {name: example, text: gives a clear example, weight: 1.0}
- {name: warning, text: warns about the risks, weight: 0.5}
"""
ASKED = ("judge.reads=one", "criteria=rubric.yaml")
ANNOTATOR = "verdicts.judge=teacher"
"""Scores by the world's annotator, who knows what the world says alone."""


def stress(directory: Path, *overrides: str):  # type: ignore[no-untyped-def]
    """Run the command in a directory with a rubric."""
    (directory / "rubric.yaml").write_text(WORLD_RUBRIC, encoding="utf-8")
    with chdir(directory):
        return here("stress", *ASKED, f"output_dir={directory}", *overrides)


def made_in(directory: Path) -> Path:
    (made,) = (directory / "artifacts" / "stress").iterdir()
    return made


WORLD = (ANNOTATOR, "verdicts.source.type=world", "dialogues.world.eval_comparisons=12", "stress.samples=4")


def test_responses_of_the_worlds_writers_are_valued_by_its_rule(tmp_path: Path) -> None:
    run = stress(tmp_path, *WORLD, "stress.truth=world")
    assert run.returncode == 0, run.stdout + run.stderr
    made = made_in(tmp_path)
    rows = [json.loads(line) for line in "".join(p.read_text() for p in made.glob("stressed-*.jsonl")).splitlines()]
    assert len(rows) == 12
    assert all(len(row["responses"]) == 4 and len(row["edits"]) == 3 for row in rows)
    figures = json.loads((made / "stress.json").read_text(encoding="utf-8"))
    (kind,) = figures["kinds"]
    assert (kind["prompts"], kind["responses"]) == (12, 48)
    assert [gain["n"] for gain in kind["whole"]["gains"]] == [1, 2, 4]
    # Of one nothing is chosen, so that nothing is gained.
    assert kind["whole"]["gains"][0]["truth"] == pytest.approx(0, abs=1e-12)
    assert {criterion.name for criterion in read_rubric(made / "rubric.yaml").criteria} <= {"example", "warning"}
    page = (made / "stress.md").read_text(encoding="utf-8")
    assert "| **example** |" in page
    assert "best of 4" in run.stdout


@pytest.mark.parametrize("truth", ["pointwise:external", "external"])
def test_another_judge_values_what_a_writer_wrote(tmp_path: Path, truth: str) -> None:
    run = stress(
        tmp_path,
        *WORLD,
        f"stress.truth={truth}",
        "stress.writer={type: world, skill: 0.5}",
        "evaluate.external={type: world, error_rate: 0.1}",
    )
    assert run.returncode == 0, run.stdout + run.stderr
    (first, *_) = sorted(made_in(tmp_path).glob("stressed-*.jsonl"))
    row = json.loads(first.read_text(encoding="utf-8").splitlines()[0])
    assert len({response["text"] for response in row["responses"]}) > 1
    assert all(response["truth"] is not None for response in row["responses"])


def world_rows(tmp_path: Path) -> list[dict[str, object]]:
    """Return three responses to each of ten prompts of the world, as stage stress itself wrote them."""
    run = stress(tmp_path, *WORLD[:2], "dialogues.world.eval_comparisons=10", "stress.samples=3", "stress.truth=world")
    assert run.returncode == 0, run.stdout + run.stderr
    rows = []
    for file in sorted(made_in(tmp_path).glob("stressed-*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            for response in row["responses"]:
                label = 1 + round(4 * response["truth"])
                rows.append({"query": row["query"], "response": response["text"], "label": label})
    return rows


def by_the_base(tmp_path: Path) -> tuple[str, ...]:
    """Return what asks the world's base as a judge, which reads any text; its scores mean nothing."""
    directory = world_judge(tmp_path / "judge")
    return (f"verdicts.judge={directory}", "verdicts.reasons=false")


def test_labels_of_single_responses_to_one_prompt_are_its_truth(tmp_path: Path) -> None:
    rows = world_rows(tmp_path)
    # A prompt with one response, and a row without a label: neither can be chosen from.
    rows += [{"query": "alone", "response": "yes", "label": 3}, {**rows[0], "label": None}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    other = tmp_path / "other"
    other.mkdir()
    run = stress(other, f"verdicts.source.path={tmp_path / 'rows.jsonl'}", *by_the_base(tmp_path))
    assert run.returncode == 0, run.stdout + run.stderr
    figures = json.loads((made_in(other) / "stress.json").read_text(encoding="utf-8"))
    assert (figures["truth"], figures["kinds"][0]["prompts"], figures["kinds"][0]["responses"]) == ("labels", 10, 30)


def test_a_labelled_pair_is_two_responses(tmp_path: Path) -> None:
    rows = world_rows(tmp_path)
    pairs = []
    for first, second in zip(rows[::3], rows[1::3], strict=True):
        label = "A" if first["label"] > second["label"] else "B"  # type: ignore[operator]
        pair = {"query": first["query"], "response_a": first["response"], "response_b": second["response"]}
        pairs.append({**pair, "label": label})
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)), encoding="utf-8")
    other = tmp_path / "other"
    other.mkdir()
    run = stress(other, f"verdicts.source.path={tmp_path / 'pairs.jsonl'}", *by_the_base(tmp_path))
    assert run.returncode == 0, run.stdout + run.stderr
    figures = json.loads((made_in(other) / "stress.json").read_text(encoding="utf-8"))
    assert [gain["n"] for gain in figures["kinds"][0]["whole"]["gains"]] == [1, 2]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("criteria=null", *WORLD, "stress.truth=world"), "criteria is empty"),
        ((*WORLD,), "stress.truth=labels: nobody has labelled"),
        (
            ("verdicts.judge=base", "verdicts.source.path=rows.jsonl", "stress.truth=world"),
            "set verdicts.source.type=world",
        ),
        ((*WORLD, "stress.truth=world", "judge.reads=two"), "set judge.reads=one"),
        ((*WORLD, "stress.truth=longer"), "it compares two responses"),
        (("verdicts.judge=base", "verdicts.source.path=rows.jsonl"), "no prompt has responses to choose from"),
    ],
)
def test_what_cannot_be_stressed_is_refused_in_a_sentence(
    tmp_path: Path, overrides: tuple[str, ...], sentence: str
) -> None:
    row = {"query": "q", "response": "r", "label": 1}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row), encoding="utf-8")
    run = stress(tmp_path, *overrides)
    assert run.returncode != 0
    said = " ".join((run.stdout + run.stderr).split())
    assert sentence in said
    assert "Traceback" not in said


def test_weights_by_kind_of_query_are_written_by_kind(tmp_path: Path) -> None:
    kinds = {
        "criteria": yaml.safe_load(WORLD_RUBRIC),
        "kinds": [
            {"name": "bake", "queries": ["i want to bake pie", "bake a cake"], "criteria": yaml.safe_load(WORLD_RUBRIC)}
        ],
    }
    (tmp_path / "kinds.yaml").write_text(yaml.safe_dump(kinds), encoding="utf-8")
    run = stress(tmp_path, *WORLD, "stress.truth=world", f"criteria={tmp_path / 'kinds.yaml'}")
    assert run.returncode == 0, run.stdout + run.stderr
    made = made_in(tmp_path)
    written = yaml.safe_load((made / "rubric.yaml").read_text(encoding="utf-8"))
    assert [kind["name"] for kind in written["kinds"]] == ["bake"]
    figures = json.loads((made / "stress.json").read_text(encoding="utf-8"))
    assert sum(kind["prompts"] for kind in figures["kinds"]) == 12
