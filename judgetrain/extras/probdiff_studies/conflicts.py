"""External verdicts on revisions, for ProbDiff's conflict degree (ProbDiff paper, section 5.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed
from judgetrain.data.config import SourceConfig
from judgetrain.data.rows import RowError
from judgetrain.data.sources import read
from judgetrain.engines.answers import spending
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.errors import DataError
from judgetrain.extras.probdiff_studies.stages import StudiesSettings
from judgetrain.judges.base import Prediction
from judgetrain.judges.factory import Models
from judgetrain.judges.method import Method
from judgetrain.schema import Comparison, Dialogue
from judgetrain.scorers.finished import SelfEvaluated

Verdicts = Mapping[str, int | None]
"""By prompt id: 1 where the revision is better, -1 worse, 0 unchanged in quality, None where there is no verdict."""

OF_REVISION = {"B": 1, "A": -1, "tie": 0}


def judged(
    own: SelfEvaluated,
    dialogues: Mapping[str, Dialogue],
    settings: StudiesSettings,
    inputs: Mapping[str, Path],
    out: StageRun,
) -> dict[str, int | None]:
    """The verdicts of ``studies.judge`` on answer (A) and revision (B), as ``verdicts`` shards.

    A revision that equals its answer is unchanged and not asked about. A judge that is paid for is asked within
    ``studies.max_requests`` and ``studies.max_tokens``.
    """
    method = Method.parse(settings.studies.judge)
    changed = [i for i, revision in own.revisions.items() if revision.strip() != own.answers[i].strip()]
    comparisons = [
        Comparison(i, dialogues[i], own.answers[i].strip(), own.revisions[i], "answer", "revision") for i in changed
    ]
    found = asked(method, f"verdicts-{method.file_name}", comparisons, settings, inputs, out)
    return {i: found.get(i, 0) for i in own.revisions}


def asked(
    method: Method,
    name: str,
    comparisons: Sequence[Comparison],
    settings: StudiesSettings,
    inputs: Mapping[str, Path],
    out: StageRun,
) -> dict[str, int | None]:
    """The verdicts of a judge on comparisons, by their ids, as shards of this name: 1 where the second is better."""
    branches = max(settings.branches or [1])
    with (
        spending((settings.teacher, settings.external), settings.studies, "studies", out) as budget,
        loaded_once(lambda: Models(settings, inputs, out, budget).judge(method, branches)) as judge,
    ):

        def process(index: int, items: Sequence[Comparison]) -> ShardResult:
            done = judge().compare_all(items, derive_seed(out.shard_seed(index), "verdicts"))
            rows = [{"id": c.id, "verdict": verdict(p)} for c, p in zip(items, done, strict=True)]
            missing = Counter("no_verdict" for row in rows if row["verdict"] is None)
            kinds = ("prompt_tokens", "generated_tokens")
            both_orders = {kind: round(sum(getattr(p.whole_cost, kind) for p in done)) for kind in kinds}
            return ShardResult(rows, len(rows), missing, **both_orders)

        out.sharded(name, comparisons, settings.scorer.shard_size, process, "comparisons", judge, spread=budget is None)
    return {row["id"]: row["verdict"] for row in read_rows(out.directory, name)}


def verdict(prediction: Prediction) -> int | None:
    """What a judge says of the revision (B) against the answer (A); None where it gives no verdict."""
    return OF_REVISION.get(prediction.verdict)


def read_verdicts(path: str, key: str, ids: Mapping[str, Any] | None = None) -> dict[str, dict[str, int]]:
    """Verdicts of people or another judge: rows ``id``, ``verdict`` (1, 0 or -1) and maybe ``annotator``.

    By annotator, ``file`` where rows name none. ``ids`` are those of the run's prompts; None: they are not known yet,
    and any will do.

    Raises:
        DataError: a malformed row, or one about no prompt of the run; names file and line.
    """

    def take(row: Any, number: int) -> tuple[str, str, int]:
        if not isinstance(row, Mapping) or "id" not in row or row.get("verdict") not in (1, 0, -1):
            raise RowError("wrong_verdict", "expected an object with id and verdict, which is 1, 0 or -1")
        if ids is not None and str(row["id"]) not in ids:
            raise RowError(
                "unknown_id", f"no prompt of this run has the id {row['id']!r}: ids are those of scores.jsonl"
            )
        return str(row.get("annotator") or "file"), str(row["id"]), int(row["verdict"])

    found: dict[str, dict[str, int]] = {}
    for who, i, given in read(SourceConfig(name=key, path=path), key, take):
        if i in found.setdefault(who, {}):
            raise DataError(f"{path}: id {i!r} has several verdicts of {who}; name each one's annotator, or give one")
        found[who][i] = given
    return found


def kappas(verdicts: Mapping[str, Verdicts]) -> dict[tuple[str, str], float | None]:
    """Cohen's kappa of each two that gave verdicts, over the prompts that both have (section 5.2).

    None where it is not defined: no prompt in common, or one verdict throughout.
    """
    from sklearn.metrics import cohen_kappa_score

    result: dict[tuple[str, str], float | None] = {}
    for (one, first), (two, second) in combinations(verdicts.items(), 2):
        pairs = [(v, w) for i, v in first.items() if v is not None and (w := second.get(i)) is not None]
        defined = len({value for pair in pairs for value in pair}) > 1
        result[one, two] = float(cohen_kappa_score(*zip(*pairs, strict=True))) if defined else None
    return result
