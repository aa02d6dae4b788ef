"""Corrected win rates and agreement on partly labelled benchmarks, recounted by hand and with ppi-python."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import ppi_py
import pytest

from judgetrain.data.benchmarks.benchmark import Benchmark, load_benchmark
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.errors import ConfigError, DataError
from judgetrain.extras.guarantees.corrected import AGREEMENT, Corrected, corrected
from judgetrain.judges.base import Prediction
from judgetrain.pipeline.config import Config
from judgetrain.schema import Comparison, Dialogue, Message
from tests.builders.evaluate import refused, write_rows

MODELS = ("x", "y", "z")
SCORES = {"A": 1.0, "tie": 0.5, "B": 0.0}


def world(n: int, labelled: int, repeats: float, seed: int = 1) -> tuple[Benchmark, list[Prediction]]:
    """Three models' answers, of which the first ``labelled`` comparisons have a label, and a judge."""
    rng = random.Random(seed)
    comparisons, predictions = [], []
    for i in range(n):
        a, b = rng.sample(MODELS, 2)
        label = rng.choices(("A", "tie", "B"), weights=(0.6, 0.1, 0.3) if a < b else (0.3, 0.1, 0.6))[0]
        said = [label if rng.random() < repeats else rng.choice(("A", "B", "tie", None)) for _ in range(2)]
        dialogue = Dialogue(f"b:{i}", "b", (Message("user", f"query {i}"),))
        shown = label if i < labelled else None
        comparisons.append(Comparison(f"b:{i}", dialogue, "1", "2", a, b, shown))  # type: ignore[arg-type]
        predictions.append(Prediction(comparison_id=f"b:{i}", method="m", verdict_ab=said[0], verdict_ba=said[1]))  # type: ignore[arg-type]
    return Benchmark(name="b", split="test", comparisons=comparisons), predictions


def by_about(found: tuple[Corrected, ...]) -> dict[str, Corrected]:
    return {c.about: c for c in found}


def test_win_rates_and_agreement_are_those_of_ppi_python_on_a_recount() -> None:
    benchmark, predictions = world(900, 200, 0.8)
    found = by_about(corrected(benchmark, predictions, None, 1))
    assert set(found) == {AGREEMENT, *MODELS}
    pairs = list(zip(benchmark.comparisons, predictions, strict=True))
    arrays: dict[str, tuple[list[float], list[float], list[float]]] = {name: ([], [], []) for name in found}
    for c, p in pairs:
        same = p.verdict_ab == p.verdict_ba and p.verdict_ab is not None
        entries = [(AGREEMENT, None if c.label is None else float(same and p.verdict_ab == c.label), float(same))]
        both = None not in (p.verdict_ab, p.verdict_ba)
        score = SCORES[p.verdict_ab] if same and p.verdict_ab else 0.5
        assert both or not same
        for model, mirrored in ((c.model_a, False), (c.model_b, True)):
            won = None if c.label is None else SCORES[c.label]
            entries.append(
                (model, None if won is None else 1 - won if mirrored else won, 1 - score if mirrored else score)
            )
        for name, y, f in entries:
            labels, judged, others = arrays[name]
            if y is None:
                others.append(f)
            else:
                labels.append(y)
                judged.append(f)
    for name, (y, f, g) in arrays.items():
        low, high = ppi_py.ppi_mean_ci(np.array(y), np.array(f), np.array(g), alpha=0.05)
        middle, error = (float(high[0]) + float(low[0])) / 2, (float(high[0]) - float(low[0])) / 2 / 1.959964
        assert found[name].estimate == pytest.approx(middle, abs=1e-6), name
        power = found[name].power or 0.0
        variance = min(error**2 + power**2 / (2 * len(y) ** 2), np.var(y) / len(y))  # half a difference more
        trials = np.mean(y) * (1 - np.mean(y)) / variance
        for end in found[name].estimate_ci or ():  # Wilson's: the ends are 1.96 of their own standard errors away
            assert abs(end - middle) == pytest.approx(1.959964 * (end * (1 - end) / trials) ** 0.5, abs=1e-6), name
        assert (found[name].n, found[name].unlabelled) == (len(y), len(g))
        assert found[name].alone == pytest.approx(np.mean(y), abs=1e-6)
        classical = np.std(y) / len(y) ** 0.5
        half = (float(high[0]) - float(low[0])) / 2 / 1.959964
        assert found[name].effective == pytest.approx(len(y) * classical**2 / half**2, abs=0.06)
    assert found["x"].adds and f"{found['x'].n} labels are worth {found['x'].effective:.0f}" in found["x"].told


def test_a_judge_who_says_anything_adds_nothing_and_the_report_says_so() -> None:
    benchmark, predictions = world(2000, 300, 0.0)
    found = by_about(corrected(benchmark, predictions, None, 1))
    for model in MODELS:
        assert not found[model].adds and "the judge adds nothing" in found[model].told
        assert found[model].estimate_ci == pytest.approx(found[model].alone_ci, abs=0.01)


def test_labels_are_taken_away_to_see_what_fewer_would_tell() -> None:
    benchmark, predictions = world(400, 400, 0.9)
    assert corrected(benchmark, predictions, None, 1) == (), "every comparison has a label"
    contested = [replace(c, label=None) if i < 50 else c for i, c in enumerate(benchmark.comparisons)]
    voted = replace(benchmark, comparisons=contested, votes={c.id: ("A", "B") for c in contested})
    assert corrected(voted, predictions, None, 1) == (), "no majority is not a label that is missing"
    assert corrected(voted, predictions, 100, 1)[0].unlabelled == 250
    found = by_about(corrected(benchmark, predictions, 100, 1))
    again = by_about(corrected(benchmark, predictions, 100, 2))
    assert (found[AGREEMENT].n, found[AGREEMENT].unlabelled) == (100, 300)
    assert found[AGREEMENT].alone != again[AGREEMENT].alone, "others are drawn by another seed"
    few = by_about(corrected(benchmark, predictions, 12, 1))[AGREEMENT]
    assert few.estimate is None and "12 prompts with labels are too few" in few.told and "label 18 more" in few.told
    right = [
        replace(p, verdict_ab=c.label, verdict_ba=c.label)
        for c, p in zip(benchmark.comparisons, predictions, strict=True)
    ]
    alike = by_about(corrected(benchmark, right, 100, 1))[AGREEMENT]
    assert alike.estimate == 1 and alike.estimate_ci == pytest.approx((0.9638, 1.0), abs=1e-4), "Clopper and Pearson"
    assert alike.told.startswith("both orders say the label on every one of 100 labelled comparisons: the interval is")
    wrong = [replace(p, verdict_ab=None) for p in predictions]
    never = by_about(corrected(benchmark, wrong, 100, 1))[AGREEMENT]
    assert never.estimate == 0 and never.told.startswith("both orders say the label on none of 100 labelled")
    first = [replace(c, model_a="x", model_b="y", label="A" if c.label else None) for c in benchmark.comparisons]
    won = by_about(corrected(replace(benchmark, comparisons=first), predictions, 100, 1))
    assert won["x"].told.startswith("it wins all 100") and won["y"].told.startswith("it loses all 100")


def test_shares_near_one_have_intervals_that_end_there() -> None:
    """A judge that is right on 57 of 60 labels and sure on the rest: a normal interval passes one."""
    benchmark, predictions = world(400, 400, 0.9)
    right = [
        replace(p, verdict_ab=c.label, verdict_ba=c.label) if i % 20 else replace(p, verdict_ab=None)
        for i, (c, p) in enumerate(zip(benchmark.comparisons, predictions, strict=True))
    ]
    for seed in range(5):
        found = corrected(benchmark, right, 60, seed)[0]
        assert found.estimate_ci and found.alone_ci
        for low, high in (found.estimate_ci, found.alone_ci):
            assert 0 < low < high < 1


def test_rows_without_a_label_are_read_where_the_benchmark_says_so(tmp_path: Path) -> None:
    rows = [
        {"id": i, "query": f"q{i}", "response_a": "1", "response_b": "2"}
        | ({"label": label} if label != "none" else {})
        for i, label in enumerate(["A", None, "none", "", "tie"])
    ]
    source = SourceConfig(name="b", path=write_rows(tmp_path / "rows.jsonl", rows), format="comparison")
    loaded = load_benchmark(BenchmarkConfig("b", source, unlabelled=True), 0, 1, None)
    assert [c.label for c in loaded.comparisons] == ["A", None, None, None, "tie"] and loaded.left_out == {
        "no_label": 3
    }
    with pytest.raises(DataError, match="label None is not one of A, B, tie"):
        load_benchmark(BenchmarkConfig("b", source), 0, 1, None)
    rows[0]["label"] = "first"
    write_rows(tmp_path / "rows.jsonl", rows)
    with pytest.raises(DataError, match="label 'first' is not one of"):
        load_benchmark(BenchmarkConfig("b", source, unlabelled=True), 0, 1, None)


def test_adapters_with_unlabelled_rows_are_refused() -> None:
    config = Config()
    config.evaluate.benchmarks = [BenchmarkConfig("world", SourceConfig(name="world", type="world"))]
    config.evaluate.methods = ["longer", "random"]
    assert not refused(config, "evaluate")
    config.evaluate.benchmarks[0] = BenchmarkConfig("p", SourceConfig(path="x", adapter="pandalm"), unlabelled=True)
    with pytest.raises(ConfigError, match=r"evaluate\.benchmarks\[0\]\.unlabelled"):
        raise ConfigError(refused(config, "evaluate"))
