"""Methods whose verdicts are read from a file: published predictions beside one's own judges (``stored:NAME``)."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from judgetrain.data.benchmarks.benchmark import Benchmark, CaseReader, selected, source_of
from judgetrain.data.cells import RowError, label_text
from judgetrain.data.config import BenchmarkConfig
from judgetrain.data.sources import read
from judgetrain.data.stages import check_names
from judgetrain.errors import ConfigError, DataError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.metrics.verdicts import mirrored
from judgetrain.evaluate.runners.base import Evaluation, Result
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.extras.stored.config import StoredConfig, StoredVerdictsConfig
from judgetrain.judges.base import Cost, Prediction
from judgetrain.judges.kinds.kind import Use
from judgetrain.judges.method import Method
from judgetrain.schema import Comparison, Verdict

MEANINGS = ("A", "B", "tie", "conflict", "unreadable")
UNKNOWN = Cost(math.nan, math.nan, math.nan)
"""What published verdicts cost."""
Verdicts = tuple[Verdict | None, Verdict | None]


def check_method(settings: Any, method: Method, use: Use) -> None:
    """Refuse (ConfigError) a name that no entry of ``stored.verdicts`` has."""
    names = [stored.name for stored in settings.stored.verdicts]
    if method.target not in names:
        known = ", ".join(names) or "none"
        raise ConfigError(f"{use.key}: {method.text!r}: stored.verdicts has no such entry, only {known}")


def run(method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
    """Yield the one benchmark that the verdicts are about, with what was stored; nothing is known of its cost."""
    about, predictions = kept(evaluation.settings)[method.target]
    for benchmark in evaluation.benchmarks:
        if benchmark.name == about:
            dropped = Counter(f"stored:{reason}" for p in predictions for reason in Counter(p.failures).elements())
            evaluation.out.count(in_=len(predictions), out=len(predictions), dropped=dropped)
            yield benchmark, [(predictions, math.nan)]


def check(section: StoredVerdictsConfig, evaluate: EvaluateConfig) -> None:
    """Refuse entries of one name, or about no benchmark."""
    check_names("stored.verdicts", [s.name for s in section.verdicts])
    benchmarks = [b.name for b in evaluate.benchmarks]
    for i, stored in enumerate(section.verdicts):
        if stored.benchmark not in benchmarks:
            known = ", ".join(benchmarks)
            raise ConfigError(f"stored.verdicts[{i}].benchmark={stored.benchmark!r}: no such one; there are {known}")


def check_here(section: StoredVerdictsConfig, settings: EvaluateSettings) -> None:
    """Read every row, for the stage too."""
    kept(settings)


def kept(settings: Any) -> Mapping[str, tuple[str, list[Prediction]]]:
    """Of the methods ``stored:NAME``, by NAME, the benchmark and the verdicts on it; read once."""
    if "stored" not in settings.read:
        wanted = {m.target for m in settings.evaluated if m.kind == "stored"}
        loaded = {b.name: (b, of) for b, of in zip(settings.evaluate.benchmarks, settings.benchmarks, strict=True)}
        found = settings.read["stored"] = {}
        for i, stored in enumerate(settings.stored.verdicts):
            if stored.name in wanted:
                config, benchmark = loaded[stored.benchmark]
                read = stored_predictions(stored, config, benchmark.comparisons, f"stored.verdicts[{i}]")
                found[stored.name] = stored.benchmark, read
    return settings.read["stored"]  # type: ignore[no-any-return]


def stored_predictions(
    stored: StoredConfig, benchmark: BenchmarkConfig, comparisons: Sequence[Comparison], key: str
) -> list[Prediction]:
    """The stored verdicts on comparisons, in their order; a comparison without one is unreadable (``not_stored``)
    (ConfigError: a label that means none of A, B, tie, conflict, unreadable; a missing path; DataError: an unknown
    verdict or a malformed row (file, row and value), or no row about these comparisons).

    A file with a verdict for each order: ``verdict_ba`` is how the response numbers stood when they were shown
    exchanged, unless ``ba_mirrored``. A file with one verdict for both orders: ``conflict`` says that they differed;
    which said what is unknown, so that metrics of single orders are not defined (``Prediction.merged``).
    """
    _check_labels(stored, key)
    own, source = source_of(benchmark), stored.source
    # The entry's own source, else the benchmark's: predictions beside the labels.
    source = replace(source, path=source.path or own.path) if source.path or source.type == "hub" else own
    reader = CaseReader(own) if benchmark.source.adapter else None
    found: dict[str, Verdicts] = {}

    def take(row: Any, number: int) -> None:
        if not selected(row, stored.where):
            return
        if reader is not None:
            local, reversed_ = reader.identity(row, number)
        else:
            column = benchmark.source.fields.get("id", "id")
            local, reversed_ = str(row.get(column, f"{number:07d}")), False
        verdicts = _verdicts(row, stored)
        if reversed_:
            verdicts = mirrored(verdicts[0]), mirrored(verdicts[1])
        if found.setdefault(f"{own.name}:{local}", verdicts) != verdicts:
            raise RowError("repeated_id", f"two rows give different verdicts on {local!r}")

    for _ in read(source, f"{key}.source", take):
        pass
    if not any(c.id in found for c in comparisons):
        example = next(iter(found), "none")
        told = f"{key}: none of the {len(found)} stored verdicts (first {example!r}) is about a comparison of"
        raise DataError(f"{told} {benchmark.name} (first {comparisons[0].id!r}); look at the ids")
    name, merged = f"stored:{stored.name}", not stored.verdict_ba
    return [_prediction(c, found.get(c.id), name, merged) for c in comparisons]


def _prediction(comparison: Comparison, verdicts: Verdicts | None, name: str, merged: bool) -> Prediction:
    ab, ba = verdicts or (None, None)
    unreadable = (ab is None) + (ba is None)
    failures = {"unreadable" if verdicts else "not_stored": unreadable} if unreadable else {}
    return Prediction(
        comparison_id=comparison.id,
        method=name,
        verdict_ab=ab,
        verdict_ba=ba,
        cost=UNKNOWN,
        judgments=2,
        failures=failures,
        merged=merged,
    )


def _verdicts(row: Mapping[str, Any], stored: StoredConfig) -> Verdicts:
    first = _meaning(row, stored.verdict_ab, stored)
    if not stored.verdict_ba:
        if first == "conflict":
            return "A", "B"
        both = cast(Verdict, first) if first in ("A", "B", "tie") else None
        return both, both
    second = _meaning(row, stored.verdict_ba, stored)
    ab, ba = (cast(Verdict, v) if v in ("A", "B", "tie") else None for v in (first, second))
    return ab, ba if stored.ba_mirrored else mirrored(ba)


def _meaning(row: Mapping[str, Any], column: str, stored: StoredConfig) -> str:
    if column not in row:
        raise RowError("missing_field", f"expected the column {column!r} of verdicts, found {', '.join(map(str, row))}")
    text = label_text(row[column])
    labels = stored.labels or {name: name for name in MEANINGS}
    if text not in labels:
        raise RowError("unknown_verdict", f"{column} {row[column]!r} is not one of {', '.join(labels)}")
    return labels[text]


def _check_labels(stored: StoredConfig, key: str) -> None:
    allowed = MEANINGS if not stored.verdict_ba else tuple(m for m in MEANINGS if m != "conflict")
    for text, meaning in stored.labels.items():
        if meaning not in allowed:
            raise ConfigError(f"{key}.labels.{text}={meaning!r}: allowed are {', '.join(allowed)}")
