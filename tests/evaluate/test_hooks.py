"""Extras of stage evaluate: what one adds, what is there without any."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from judgetrain import rooms
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.evaluate import hooks, stages  # the stage's settings have every extra's section before one is left out
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.hooks import EvaluationExtra, Further, Measured, Predicted
from judgetrain.evaluate.metrics.rows import MethodKey, MetricRow
from judgetrain.evaluate.report.table import Sections, Table
from judgetrain.judges.kinds.kind import Forms, Kind, Target, Use
from judgetrain.judges.method import Method
from judgetrain.judges.predictions import Prediction
from judgetrain.pipeline.config import Config
from tests.builders.evaluate import refused, run, write_rows

checked: list[str] = []
"""What the extra's checks were called with."""


def check_own(settings: Any, method: Method, use: Use) -> None:
    checked.append(f"{use.key}: {method.kind} by {method.target}")


def says_a(method: Method, evaluation: Any) -> Iterator[Any]:
    """Yield A for every comparison."""
    for benchmark in evaluation.benchmarks:
        predictions = [Prediction.of(c, method.name, "A", "A") for c in benchmark.comparisons]
        yield benchmark, [(predictions, 0.0)]


OWN = Kind(
    name="own",
    forms=Forms(evaluate="own:MODEL"),
    target=Target(model=True),
    check=check_own,
    run=says_a,
    asked_as="pairwise:{}",
)
KINDS = {**rooms.kinds(), "own": f"{__name__}:OWN"}


@dataclass(frozen=True)
class Counted:
    """An extra's column."""

    half: int
    again: int


@pytest.fixture
def config(tmp_path: Path) -> Config:
    rows = [{"id": i, "query": f"q{i}", "response_a": "x", "response_b": "yy", "label": "B"} for i in range(10)]
    source = SourceConfig(name="b", path=write_rows(tmp_path / "rows.jsonl", rows), format="comparison")
    return Config(evaluate=EvaluateConfig([BenchmarkConfig("b", source)], ["longer", "first"], bootstrap=20))


def test_without_extras_there_is_the_core_alone(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "extras", lambda: ())
    out = run("evaluate", config, {}, tmp_path / "out").directory
    for row in json.loads((out / "metrics.json").read_text()):
        assert row["agreement"] in (0.0, 1.0) and not {"guarantees", "robustness"} & set(row)
    assert "Under attack" not in (out / "report.html").read_text()


def test_an_extra_adds_a_benchmark_a_column_a_file_and_a_section(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def halves(settings: Any, benchmarks: list[Any], methods: list[Method]) -> list[Further]:
        part = replace(benchmarks[0], comparisons=benchmarks[0].comparisons[:5], split="test")
        half = type(part)(name="b-half", split="test", comparisons=part.comparisons)
        return [Further(benchmark=half, of="b", methods=methods[:1])]

    def measure(predicted: Predicted) -> Measured:
        values = {
            MethodKey(p[0].method, p[0].branches): Counted(len(p), len(predicted.results[0]))
            for _, results in predicted.further
            for p in results
        }
        return Measured(values=values, records=[f"{predicted.test.name}: {len(values)}"])

    def sections(rows: list[MetricRow], records: list[str]) -> Sections:
        shown = [(row.method, row.extras["robustness"].half) for row in rows if row.extras]
        columns = {"method": lambda item: item[0], "half": lambda item: item[1]}
        return Sections(front=[Table.of("Halves", shown, columns, " ".join(records))])

    checked.clear()
    config.evaluate.methods.append("own:base")
    extra = EvaluationExtra(
        name="robustness",  # a section that is there
        check=lambda section, evaluate: checked.append(type(evaluate).__name__),
        benchmarks=halves,
        measure=measure,
        column=Counted,
        sections=sections,
        write=lambda records, section, out: out.write_json("halves", records),
        finished=lambda directory: checked.append(directory.name),
    )
    monkeypatch.setattr(hooks, "extras", lambda: (extra,))
    monkeypatch.setattr("judgetrain.evaluate.metrics.rows.extras", lambda: (extra,))
    monkeypatch.setattr("judgetrain.evaluate.report.report.extras", lambda: (extra,))
    monkeypatch.setattr(rooms, "kinds", lambda: KINDS)
    assert stages.EVALUATE.name == "evaluate" and not refused(config, "evaluate")
    assert checked == ["EvaluateConfig", "evaluate.methods: own by base"]
    out = run("evaluate", config, {}, tmp_path / "out").directory
    longer, first, own_row = (MetricRow.from_row(row) for row in json.loads((out / "metrics.json").read_text()))
    assert (own_row.method, own_row.agreement) == ("own:base", 0.0), "the label is B"
    assert (longer.extras, first.extras) == ({"robustness": Counted(5, 10)}, {})
    assert json.loads((out / "halves.json").read_text()) == ["b: 1"]
    text = (out / "report.md").read_text()
    assert "### Halves" in text and "| longer | 5 |" in text and text.index("### Halves") < text.index("### Results")
    hooks.require_finished(out)
    assert checked[2:] == ["out"]
