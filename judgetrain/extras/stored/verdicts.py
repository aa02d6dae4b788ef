"""Read a method's verdicts from a file: published predictions beside one's own judges (``stored:NAME``)."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from judgetrain.data.benchmarks.benchmark import Benchmark, CaseReader, selected, source_of
from judgetrain.data.cells import RowError, id_text, label_text
from judgetrain.data.config import BenchmarkConfig
from judgetrain.data.rows.columns import Columns
from judgetrain.data.sources import read
from judgetrain.data.stages import check_names
from judgetrain.errors import ConfigError, DataError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.metrics.verdicts import mirrored
from judgetrain.evaluate.runners.base import Evaluation, Result
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.extras.stored.config import StoredConfig, StoredVerdictsConfig
from judgetrain.judges.kinds.kind import Use
from judgetrain.judges.method import Method
from judgetrain.judges.predictions import Cost, Prediction
from judgetrain.messages import shown_text
from judgetrain.schema import Comparison, Verdict

MEANINGS = ("A", "B", "tie", "conflict", "unreadable")
"""Verdicts that a label may mean."""
UNKNOWN = Cost(math.nan, math.nan, math.nan)
"""The cost of published verdicts, which nobody knows."""
Verdicts = tuple[Verdict | None, Verdict | None]


def check_method(settings: Any, method: Method, use: Use) -> None:
    """Refuse (ConfigError) a name that no entry of ``stored.verdicts`` has."""
    names = [entry.name for entry in settings.stored.verdicts]
    if method.target not in names:
        choices = ", ".join(names) or "none"
        raise ConfigError(f"{use.key}: {method.text!r}: stored.verdicts has no such entry, only {choices}")


def run(method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
    """Yield the one benchmark that the verdicts are about, with the stored predictions; their cost is not known."""
    name, predictions = kept(evaluation.settings)[method.target]
    dropped = Counter[str]()
    for prediction in predictions:
        dropped.update({f"stored:{reason}": count for reason, count in prediction.failures.items()})
    for benchmark in evaluation.benchmarks:
        if benchmark.name == name:
            evaluation.out.count(in_=len(predictions), out=len(predictions), dropped=dropped)
            yield benchmark, [(predictions, math.nan)]


def check(section: StoredVerdictsConfig, evaluate: EvaluateConfig) -> None:
    """Refuse (ConfigError) entries of one name, or about no benchmark."""
    check_names("stored.verdicts", [entry.name for entry in section.verdicts])
    benchmarks = [benchmark.name for benchmark in evaluate.benchmarks]
    for number, entry in enumerate(section.verdicts):
        if entry.benchmark not in benchmarks:
            raise ConfigError(
                f"stored.verdicts[{number}].benchmark={entry.benchmark!r}: no such one; there are "
                f"{', '.join(benchmarks)}"
            )


def check_here(section: StoredVerdictsConfig, settings: EvaluateSettings) -> None:
    """Read every row, for the stage too."""
    kept(settings)


def kept(settings: Any) -> Mapping[str, tuple[str, list[Prediction]]]:
    """Return the benchmark and the verdicts on it by NAME, of the methods ``stored:NAME``; they are read once."""
    # The check before a run has read them already.
    if "stored" in settings.read:
        return settings.read["stored"]  # type: ignore[no-any-return]
    evaluated = {method.target for method in settings.evaluated if method.kind == "stored"}
    configs = {config.name: config for config in settings.evaluate.benchmarks}
    benchmarks = {benchmark.name: (configs[benchmark.name], benchmark) for benchmark in settings.benchmarks}
    by_name: dict[str, tuple[str, list[Prediction]]] = {}
    settings.read["stored"] = by_name
    for number, entry in enumerate(settings.stored.verdicts):
        # Entries that no method names are not read: their files need not be there.
        if entry.name in evaluated:
            if entry.benchmark not in benchmarks:
                raise ConfigError(
                    f"stored.verdicts[{number}].benchmark={entry.benchmark}: its rows hold one response, of which "
                    "there are no verdicts; name a benchmark of comparisons"
                )
            config, benchmark = benchmarks[entry.benchmark]
            key = f"stored.verdicts[{number}]"
            by_name[entry.name] = (entry.benchmark, stored_predictions(entry, config, benchmark.comparisons, key))
    return by_name


def stored_predictions(
    stored: StoredConfig, benchmark: BenchmarkConfig, comparisons: Sequence[Comparison], key: str
) -> list[Prediction]:
    """Return the stored verdicts on comparisons, in their order; one without a row is unreadable (``not_stored``).

    A file with a verdict for each order: ``verdict_ba`` is how the response numbers stood when they were shown
    exchanged, unless ``ba_mirrored``. A file with one verdict for both orders: ``conflict`` says that they differed;
    which said what is unknown, so that metrics of single orders are not defined (``Prediction.merged``).

    Args:
        stored: the entry.
        benchmark: that the verdicts are about.
        comparisons: of the benchmark.
        key: where the entry stands, for errors.

    Raises:
        ConfigError: a label that means none of :data:`MEANINGS`, or a missing path.
        DataError: an unknown verdict or a malformed row (file, row and value), or no row about these comparisons.
    """
    _check_labels(stored, key)
    verdicts_of = _read_stored(stored, benchmark, comparisons, key)
    # Some verdicts without a comparison, and the other way round, are usual; none in common means other ids.
    if not any(comparison.id in verdicts_of for comparison in comparisons):
        first_stored = next(iter(verdicts_of), "none")
        raise DataError(
            f"{key}: none of the {len(verdicts_of)} stored verdicts (first {first_stored!r}) is about a comparison of "
            f"{benchmark.name} (first {comparisons[0].id!r}); look at the ids"
        )
    is_merged = not stored.verdict_ba
    predictions = []
    for comparison in comparisons:
        verdicts = verdicts_of.get(comparison.id)
        predictions.append(_prediction(comparison, verdicts, f"stored:{stored.name}", is_merged))
    return predictions


def _read_stored(
    stored: StoredConfig, benchmark: BenchmarkConfig, comparisons: Sequence[Comparison], key: str
) -> dict[str, Verdicts]:
    """Return the verdicts of an entry's rows by the ids of comparisons; arguments as of :func:`stored_predictions`.

    Both are in the comparison's own order.
    """
    benchmark_source = source_of(benchmark)
    source = benchmark_source
    has_own_file = bool(stored.source.path) or stored.source.type == "hub"
    if has_own_file:
        # Otherwise the predictions stand beside the labels.
        source = replace(stored.source, path=stored.source.path or benchmark_source.path)

    # The adapter that makes the benchmark's ids makes these, too, and knows which rows it turned round.
    reader = None
    fields = benchmark_source.fields
    if benchmark.source.adapter:
        reader = CaseReader(benchmark_source)
        # The reader has the fields, of which an adapter may have others.
        fields = {}
    columns = Columns(fields, key)
    verdicts_of: dict[str, Verdicts] = {}
    comparison_of = {comparison.id: comparison for comparison in comparisons}

    def read_row(row: Any, number: int) -> None:
        if not selected(row, stored.where):
            return
        is_reversed = False
        if reader is not None:
            local_id, is_reversed = reader.identity(row, number)
            has_id = bool(reader.adapter.key) or reader.adapter.value(row, "id", required=False) is not None
        else:
            # Rows without an id are called by their number, as the benchmark's own are.
            local_id = f"{number:07d}"
            written_id = _cell(row, "id", columns)
            has_id = written_id is not None
            if has_id:
                local_id = id_text(written_id)
        if has_own_file:
            comparison = comparison_of.get(f"{benchmark_source.name}:{local_id}")
            responses = _responses(row, columns, reader)
            if responses and is_reversed:
                responses = responses[::-1]
            _check_comparison(responses, comparison, local_id, has_id=has_id)
        verdict_ab, verdict_ba = _verdicts(row, stored)
        if is_reversed:
            verdict_ab = mirrored(verdict_ab)
            verdict_ba = mirrored(verdict_ba)
        verdicts = (verdict_ab, verdict_ba)
        if verdicts_of.setdefault(f"{benchmark_source.name}:{local_id}", verdicts) != verdicts:
            raise RowError("repeated_id", f"two rows give different verdicts on {local_id!r}")

    for _ in read(source, f"{key}.source", read_row):
        pass
    return verdicts_of


def _cell(row: Mapping[str, Any], field: str, columns: Columns) -> Any:
    """Return the cell of a field as the benchmark's rows have it, or None; None also where the row lacks the column."""
    try:
        return columns.value(row, field)
    except RowError:
        return None


def _responses(row: Mapping[str, Any], columns: Columns, reader: CaseReader | None) -> tuple[str, str] | None:
    """Return the two responses that a row of a file of its own holds, as they are shown; None where it holds none.

    Args:
        row: the row.
        columns: of the benchmark's rows.
        reader: of the benchmark's rows, where they have an adapter, which then knows the columns.
    """
    # Other kinds of rows hold several comparisons, or conversations.
    if reader is not None and reader.adapter.kind != "pair":
        return None
    texts = []
    for name in ("response_a", "response_b"):
        try:
            if reader is None:
                value = _cell(row, name, columns)
            else:
                value = reader.adapter.text(row, name)
            texts.append(" ".join(shown_text(value).split()))
        except (DataError, RowError):
            return None
    return texts[0], texts[1]


def _check_comparison(
    responses: tuple[str, str] | None, comparison: Comparison | None, local_id: str, *, has_id: bool
) -> None:
    """Refuse (RowError) a row of a file of its own that is about another comparison than the one with its id.

    Args:
        responses: of the row, if it holds them.
        comparison: with the row's id; None where the benchmark has none.
        local_id: the row's id.
        has_id: whether the row has an id; else its place in the file stands in for one.
    """
    if responses is None:
        if not has_id:
            raise RowError(
                "no_id",
                "expected the comparison's id, or the two responses: a row of another file is not known by its place",
            )
        return
    if comparison is None:
        return
    expected = tuple(" ".join(text.split()) for text in (comparison.response_a, comparison.response_b))
    if responses == expected:
        return
    difference = "about other responses than the benchmark's"
    if responses == expected[::-1]:
        difference = "about the benchmark's responses in the other order"
    raise RowError("other_comparison", f"the verdict on {local_id!r} is {difference}; expected the same comparison")


def _prediction(comparison: Comparison, verdicts: Verdicts | None, method: str, merged: bool) -> Prediction:
    """Return the prediction of stored verdicts; None: there are none on this comparison."""
    reason = "unreadable"
    if verdicts is None:
        reason = "not_stored"
        verdicts = (None, None)
    # Each order that has no verdict counts as a failure, as it does for a judge that is asked.
    missing = verdicts.count(None)
    failures = {}
    if missing:
        failures[reason] = missing
    return Prediction(
        comparison_id=comparison.id,
        method=method,
        verdict_ab=verdicts[0],
        verdict_ba=verdicts[1],
        cost=UNKNOWN,
        judgments=2,
        failures=failures,
        merged=merged,
    )


def _verdicts(row: Mapping[str, Any], stored: StoredConfig) -> Verdicts:
    """Return the verdicts of a row in both orders (RowError: it has none, or an unknown one)."""
    first = _meaning(row, stored.verdict_ab, stored)
    if not stored.verdict_ba:
        if first == "conflict":
            # The orders differ. Which said what is unknown, and no metric asks for it.
            return "A", "B"
        both = _readable(first)
        return both, both
    verdict_ab = _readable(first)
    verdict_ba = _readable(_meaning(row, stored.verdict_ba, stored))
    # As they were shown: with the responses exchanged the file's A is the comparison's B.
    if not stored.ba_mirrored:
        verdict_ba = mirrored(verdict_ba)
    return verdict_ab, verdict_ba


def _readable(meaning: str) -> Verdict | None:
    """Return the verdict that a label means; None if it is none."""
    if meaning in ("A", "B", "tie"):
        return cast(Verdict, meaning)
    return None


def _meaning(row: Mapping[str, Any], column: str, stored: StoredConfig) -> str:
    """Return what a row's label means (RowError: it has no such column, or an unknown label)."""
    if column not in row:
        raise RowError("missing_field", f"expected the column {column!r} of verdicts, found {', '.join(map(str, row))}")
    text = label_text(row[column])
    # Without labels of its own the file writes verdicts as this package does.
    labels = stored.labels or {name: name for name in MEANINGS}
    if text not in labels:
        raise RowError("unknown_verdict", f"{column} {row[column]!r} is not one of {', '.join(labels)}")
    return labels[text]


def _check_labels(stored: StoredConfig, key: str) -> None:
    """Check that every label means a verdict (ConfigError)."""
    allowed = [*MEANINGS]
    if stored.verdict_ba:
        # With a verdict for each order there is nothing to merge.
        allowed.remove("conflict")
    for text, meaning in stored.labels.items():
        if meaning not in allowed:
            raise ConfigError(f"{key}.labels.{text}={meaning!r}: allowed are {', '.join(allowed)}")
