"""Stage ``judge``: a file of comparisons in, verdicts with their reasons out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

from judgetrain.artifacts.fingerprint import ContentHashes, fingerprint
from judgetrain.artifacts.reuse import adopt
from judgetrain.artifacts.shards import markers_of, read_rows, shards_of
from judgetrain.artifacts.stage_run import ShardResult, StageRun
from judgetrain.engines.answers import Budget, spending
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.errors import JudgetrainError
from judgetrain.judges.base import Judge, Prediction
from judgetrain.judges.factory import Models
from judgetrain.judges.method import Method
from judgetrain.judges.views.tree_page import DIRECTORY, write_views
from judgetrain.judges.views.verdict_rows import VERDICTS, verdict_views
from judgetrain.judging.config import VerdictsConfig
from judgetrain.judging.items import Item, read_items
from judgetrain.judging.rows import Row, row_of
from judgetrain.judging.stages import JudgeSettings
from judgetrain.judging.summary import Summary

SHARDS = "judged"
FORMAT = 1
"""Raised when the code changes what stands in a row."""
PAGES = 100
"""Comparisons that have a page to look at: as many as anybody reads."""


def run(settings: JudgeSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``verdicts.jsonl``, ``summary.json``, and pages.

    The shards ``judged`` keep the rows as they are finished; those of an earlier run that judged the same in the same
    way are taken over. A row that cannot be judged is among them with its reason. Where the run ends early, as at a
    limit of what may be spent, ``verdicts.jsonl`` holds the rows that are finished.
    """
    config, method = settings.verdicts, settings.method
    items = read_items(config, settings.world, settings.seed, lambda told: out.log(f"judge: {told}"))
    if settings.world is not None and not config.systems and config.source.type == "world":
        out.log(
            f"judge: {len(items)} comparisons of the generated world; a file of your own is verdicts.source.path=FILE"
        )
    with spending(settings.asked_engines, config, "verdicts", out) as budget:
        models = Models(settings, inputs, out, budget)
        adopt(SHARDS, _key(settings, models, items, out), out)
        try:
            with judge_of(models, settings) as judge:
                process = shard_of(method, judge, settings)
                out.sharded(SHARDS, items, config.shard_size, process, "comparisons", load=judge, spread=budget is None)
        except JudgetrainError:
            _keep_finished(out, len(items))
            raise
    _write(method.name, budget, out)


def judge_of(models: Models, settings: JudgeSettings) -> AbstractContextManager[Callable[[], Judge]]:
    """A function that loads the judge of ``verdicts.judge`` when it is first called; it is closed at the end."""
    return loaded_once(lambda: models.judge(settings.method, settings.method.most or 1))


def shard_of(
    method: Method, judge: Callable[[], Judge], settings: JudgeSettings
) -> Callable[[int, Sequence[Item]], ShardResult]:
    """What judges a shard: all that can be judged in one call, the others with their reason."""

    def process(index: int, items: Sequence[Item]) -> ShardResult:
        shown = [item.comparison for item in items if item.failure is None]
        found = iter(judge().compare_all(shown, settings.seed) if shown else ())
        rows: list[Row] = []
        cost: Counter[str] = Counter()
        for item in items:
            prediction: Prediction | None = next(found) if item.failure is None else None
            rows.append(row_of(item.comparison, prediction, method.name, item.failure))
            cost.update(asdict(prediction.whole_cost) if prediction else {})
        spent = {name: round(number) for name, number in cost.items()}
        return ShardResult(
            rows,
            len(rows),
            Counter(reason for row in rows if (reason := dropped(row))),
            prompt_tokens=spent.get("prompt_tokens", 0),
            generated_tokens=spent.get("generated_tokens", 0),
            counts_out=sum(row["verdict"] not in (None, "unreadable") for row in rows),
            facts={"calls": spent.get("calls", 0)},
        )

    return process


def dropped(row: Mapping[str, Any]) -> str | None:
    """Why a row has no verdict, in a word; None where it has one."""
    if row["failure"]:
        return str(row["failure"]).partition(":")[0]
    return "unreadable" if row["verdict"] == "unreadable" else None


def _key(settings: JudgeSettings, models: Models, items: Sequence[Item], out: StageRun) -> str:
    """What decides the rows: the comparisons as they are shown and told of, and the judge and how it is asked."""
    hashes, method, config = ContentHashes.of_run(out.home), settings.method, settings.verdicts
    asked = VerdictsConfig(judge=config.judge, shard_size=config.shard_size)
    return fingerprint(
        {
            "format": FORMAT,
            "judge": models.identity(method, hashes),
            "settings": hashes.identity(replace(settings, verdicts=asked)),
            "items": [[item.comparison.to_row(), item.failure] for item in items],
        }
    )


def _keep_finished(out: StageRun, total: int) -> None:
    """Write the rows of all finished shards, so that what was judged is there to read."""
    done = [path for path, _ in shards_of(out.directory, SHARDS) if out.path(f".{path.stem}.json").exists()]
    rows = [row for path in done for row in read_rows(out.directory, path.stem)]
    place = out.write_rows(VERDICTS, rows)
    out.log(f"judge: {len(rows)} of {total} comparisons are judged: {place}")


def _write(judge: str, budget: Budget | None, out: StageRun) -> None:
    """Everything that is made of the rows, which are read once for each file: none of them is held."""

    def rows() -> Iterator[Row]:
        return read_rows(out.directory, SHARDS)

    place = out.write_rows(VERDICTS, rows())
    pages = write_views(verdict_views(list(islice(rows(), PAGES))), out.path(DIRECTORY), f"Verdicts of {judge}")
    calls = sum(marker["facts"]["calls"] for marker in markers_of(out.directory, SHARDS))
    summary = Summary.of(rows(), judge, calls, out.totals()["tokens"], budget.spent if budget else {})
    out.write_json("summary", asdict(summary))
    out.tell(summary.told())
    for path in (place, pages):
        out.log(f"judge: {path}")
