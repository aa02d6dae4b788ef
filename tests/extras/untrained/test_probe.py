"""Probes: what is learned from states, which pairs are read, and what they cost."""

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.errors import ConfigError
from judgetrain.extras.untrained import probe
from judgetrain.extras.untrained.probe import STRENGTHS, Kept, Probe, Probes, read_states
from judgetrain.judges.method import Method
from judgetrain.rubrics import Criterion, Rubric
from judgetrain.schema import Comparison
from judgetrain.scorers.encode import Unscored, Usage
from tests.builders.data import write_lines
from tests.builders.evaluate import refused, run
from tests.builders.pipeline import configured

PAIRS = 200
WIDTH = 12


def labelled(*, informative: int, columns: int, seed: int = 0) -> tuple[Any, list[float]]:
    """Return states in which one number of one column says which response is better, four times in five, and signs."""
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], PAIRS)
    states = rng.normal(size=(PAIRS, columns, WIDTH)).astype(np.float32)
    told = np.where(rng.random(PAIRS) < 0.8, signs, -signs)
    states[:, informative, 3] = told * 2 + rng.normal(size=PAIRS) * 0.3
    return states, signs.tolist()


def fitted(states: Any, signs: list[float]) -> Probe:
    return Probe.fitted(states, signs, [(str(place // 2),) for place in range(PAIRS)], "here")


def test_what_the_states_tell_is_found_and_turns_with_the_responses() -> None:
    states, signs = labelled(informative=1, columns=2)
    found = fitted(states, signs)
    assert abs(found.weights[1]).argmax() == 3
    others, other_signs = labelled(informative=1, columns=2, seed=1)
    right = np.sign(found.margins(others)) == other_signs
    assert 0.72 < right.mean() < 0.88
    np.testing.assert_allclose(found.margins(-others), -found.margins(others), rtol=1e-5)


def test_a_column_is_a_regression_on_both_orders_whose_strength_the_folds_choose() -> None:
    """The loss of each pair both ways round, at every strength: the one that is used is the best of them."""
    states, signs = labelled(informative=0, columns=1)
    found = fitted(states, signs)
    differences = states[:, 0].astype(float)
    scale = np.sqrt((differences**2).mean(axis=0)) + 1e-6
    both = np.concatenate([differences / scale, -differences / scale])
    targets = np.concatenate([signs, -np.array(signs)])
    candidates = []
    for strength in STRENGTHS:
        model = LogisticRegression(C=strength, fit_intercept=False, max_iter=1000).fit(both, targets)
        candidates.append(model.coef_[0] / scale)
    distances = [float(np.abs(found.weights[0] - weights).max()) for weights in candidates]
    assert min(distances) < 1e-4
    # Of what is told plainly the least restrained is best.
    assert int(np.argmin(distances)) == len(STRENGTHS) - 1


def test_noise_alone_is_hardly_learned_from() -> None:
    rng = np.random.default_rng(5)
    states = rng.normal(size=(PAIRS, 1, WIDTH)).astype(np.float32)
    found = fitted(states, rng.choice([-1.0, 1.0], PAIRS).tolist())
    assert float(np.abs(found.margins(states)).mean()) < 0.1


def test_pairs_labelled_by_other_criteria_teach_a_probe_of_their_own(tmp_path: Path) -> None:
    """What helps and what harms less may be opposite: a number that says A by one criterion says B by the other."""
    states, signs = labelled(informative=0, columns=1)
    kind, short = (Rubric((Criterion(text),)) for text in ("Is kind.", "Is short."))
    by = [None if place % 2 else kind for place in range(PAIRS)]
    compared = [Comparison.of(f"q{place}", f"a{place}", f"b{place}") for place in range(PAIRS)]
    pairs = []
    for place, (pair, sign) in enumerate(zip(compared, signs, strict=True)):
        is_first = (sign > 0) == (by[place] is None)
        pairs.append(replace(pair, label="A" if is_first else "B", rubric=by[place]))
    found = Probes.fitted(pairs, states, "here")
    assert set(found.by_criteria) == {None, kind}

    kept = Kept(rows=[{"is_read": True, "tokens": 1.0, "failures": {}}] * PAIRS, states=states)
    right = [
        prediction.verdict_ab == pair.label
        for prediction, pair in zip(found.predictions(pairs, kept, "probe"), pairs, strict=True)
    ]
    assert 0.72 < np.mean(right) < 0.9
    unknown = found.predictions([replace(pair, rubric=short) for pair in pairs], kept, "probe")
    of_all = found.of_all.margins(states)
    assert [prediction.margin for prediction in unknown] == pytest.approx(of_all.tolist(), abs=1e-4)
    of_one = Probes.fitted([replace(pair, rubric=None) for pair in pairs], states, "here")
    assert of_one.by_criteria == {}, "one kind of labels needs one probe"


def test_pairs_on_one_prompt_alone_are_refused() -> None:
    states, signs = labelled(informative=0, columns=1)
    with pytest.raises(ConfigError, match="here: the labelled pairs that can be read have one prompt"):
        Probe.fitted(states, signs, [("a",)] * PAIRS, "here")


@pytest.mark.parametrize("prompts", [[0, 1] * 20, [0] * 39 + [1], [0, 0, 1, 1] * 10, list(range(40))])
def test_few_prompts_in_any_order_are_learned_from(prompts: list[int]) -> None:
    states, signs = labelled(informative=0, columns=1)
    found = Probe.fitted(states[:40], signs[:40], [(str(prompt),) for prompt in prompts], "here")
    assert (np.sign(found.margins(states)) == signs).mean() > 0.7


@pytest.fixture
def responses(tmp_path: Path) -> Path:
    """Forty labelled training comparisons of the world."""
    decided = [c for c in eval_comparisons(WorldConfig(eval_comparisons=120), 2) if c.label != "tie"][:40]
    directory = tmp_path / "artifacts" / "responses" / "r1"
    directory.mkdir(parents=True)
    write_lines(directory / "comparisons.jsonl", [replace(c, id=f"t:{i}").to_row() for i, c in enumerate(decided)])
    return directory


def evaluated(responses: Path, name: str, *methods: str) -> StageRun:
    """Return a finished evaluation of methods on twelve comparisons of the world."""
    config = configured(
        "recipe=debug",
        f"evaluate.methods=[{','.join(methods)}]",
        "dialogues.world.eval_comparisons=12",
        "robustness.sample=0",
        "seed=1",
    )
    return run("evaluate", config, {"responses": responses}, responses.parents[1] / "evaluate" / name)


def rows_of(out: StageRun, shards: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for path in sorted(out.directory.glob(f"{shards}-*.jsonl")):
        rows += map(json.loads, path.read_text().splitlines())
    return rows


def numbers(rows: list[dict[str, Any]]) -> Any:
    """Return the states of kept rows [rows, columns, width], read without the code under test."""
    whole = b"".join(base64.b64decode(row["states"]) for row in rows)
    return np.frombuffer(whole, "<f4").reshape(len(rows), rows[0]["columns"], -1)


def test_a_smaller_probe_learns_from_the_first_pairs_of_a_larger_one(
    responses: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = evaluated(responses, "e1", "probe:20", "probe:40")
    metrics = json.loads(out.path("metrics.json").read_text())
    assert [row["learned"]["labels"] for row in metrics] == [20, 40]
    assert [row["learned"]["calls"] for row in metrics] == [40, 80]
    kept = rows_of(out, "states-learned-probe.base")
    assert len(kept) == 40
    signs = []
    labels = {row["id"]: row["label"] for row in map(json.loads, (responses / "comparisons.jsonl").open())}
    for row in kept:
        signs.append(1.0 if labels[row["id"]] == "A" else -1.0)

    # Twenty pairs on twenty prompts: each is a fold's.
    expected = Probe.fitted(numbers(kept)[:20], signs[:20], [(str(place),) for place in range(20)], "")
    margins = expected.margins(numbers(rows_of(out, "states-world-probe.base")))
    predicted = rows_of_predictions(out, "probe:20")
    np.testing.assert_allclose(predicted, margins, rtol=1e-3, atol=1e-6)

    # Another probe of the same model reads nothing anew.
    monkeypatch.setattr(probe, "load_scorer", lambda model: pytest.fail("the model is loaded again"))
    again = evaluated(responses, "e2", "longer", "probe:40")
    assert json.loads(again.path("metrics.json").read_text())[1]["agreement"] == metrics[1]["agreement"]


def test_too_few_labels_give_no_verdicts_and_end_nothing(
    responses: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = (responses / "comparisons.jsonl").read_text().splitlines()[:19]
    (responses / "comparisons.jsonl").write_text("\n".join(rows) + "\n")
    monkeypatch.setattr(probe, "load_scorer", lambda model: pytest.fail("a model is loaded for nothing"))
    out = evaluated(responses, "e1", "longer", "probe:40")
    of_probe = json.loads(out.path("metrics.json").read_text())[1]
    assert (of_probe["agreement"], of_probe["failures"]) == (0, {"too_few_labels": 12})
    counts = "19 of 19 training rows are labelled A or B, 19 have no benchmark's query"
    assert f"{counts}: too few to learn from, no verdicts" in capsys.readouterr().out


def rows_of_predictions(out: StageRun, method: str) -> list[float]:
    """Return a method's margins in the order of the rows."""
    import pandas as pd

    frame = pd.read_parquet(out.path("predictions.parquet"))
    return [float(margin) for margin in frame[frame.method == method].margin]


class Deaf:
    """A scorer that cannot read response A of one comparison."""

    def __init__(self) -> None:
        self.usage = Usage()


def test_a_response_that_cannot_be_read_has_no_verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def read(scorer: Any, samples: Any) -> list[Any]:
        scorer.usage += Usage(prompt_tokens=40, calls=len(samples))
        states = [np.full((1, 2, 3), place, dtype=np.float32) for place in range(len(samples))]
        return [Unscored("too_long"), *states[1:]]

    monkeypatch.setattr("judgetrain.scorers.states.response_states", read)
    comparisons = [Comparison.of("q", "a", "b"), Comparison.of("q", "c", "d")]
    shard = probe.states_shard(Deaf(), comparisons, 0)  # type: ignore[arg-type]
    assert [row["failures"] for row in shard.rows] == [{"too_long": 1}, {}]
    assert (shard.prompt_tokens, shard.dropped, shard.facts) == (40, {"too_long": 1}, {"calls": 4})
    found = Probes(of_all=Probe(weights=np.ones((2, 3), dtype=np.float32)), by_criteria={})
    write_lines(tmp_path / "states-00000-of-00001.jsonl", shard.rows)
    first, second = found.predictions(comparisons, read_states(tmp_path, "states"), "probe:20")
    assert (first.verdict_ab, first.margin, first.failures) == (None, None, {"too_long": 1})
    assert (second.verdict_ab, second.cost.prompt_tokens) == ("B", 20)
    assert second.margin == pytest.approx(-3.0)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("probe:5", "expected probe:N or probe:N:MODEL, N at least 20"),
        ("probe:base", "expected probe:N"),
        ("probe:30:nobody", "allowed are base, teacher, external"),
        ("probe:30:external", "reads a model's hidden states, which evaluate.external does not show"),
    ],
)
def test_what_no_probe_can_be_made_of_is_refused(method: str, message: str) -> None:
    config = configured(
        "recipe=debug",
        f"evaluate.methods=[{method}]",
        "evaluate.external={type: world, error_rate: 0}",
        "robustness.sample=0",
    )
    assert message in refused(config, "evaluate")


def test_probes_of_like_named_directories_keep_apart_what_they_read() -> None:
    one, other = (Method.parse(f"probe:30:./{place}/mine") for place in "ab")
    assert one.name == other.name == "probe:30:mine"
    assert len({probe._reader(method) for method in (one, other, Method.parse("probe:30:base"))}) == 3
