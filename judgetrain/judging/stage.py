"""Stage ``judge``: a file of comparisons in, verdicts with their reasons out."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path

from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.pages import render
from judgetrain.artifacts.shards import markers_of, read_rows, shards_of
from judgetrain.artifacts.stage_run import ShardResult, StageRun
from judgetrain.engines.answers import Budget, spending
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.errors import ConfigError, DataError, JudgetrainError
from judgetrain.judges.base import Cost, Judge, Prediction
from judgetrain.judges.config import SETTINGS
from judgetrain.judges.factory import Models
from judgetrain.judges.kinds.kind import kind_of
from judgetrain.judges.method import Method
from judgetrain.judging.items import Item, read_items
from judgetrain.judging.rows import (
    SCORES,
    VERDICTS,
    Row,
    dropped,
    row_of,
    score_rows,
    scores_told,
    summary_of,
    verdicts_told,
)
from judgetrain.judging.stages import JudgeSettings
from judgetrain.schema import Candidates

SHARDS = "judged"
PAGE = Path(__file__).with_name("templates") / "verdicts.html"
SHOWN = 100
"""Comparisons on the page to look at: as many as anybody reads."""


def run(settings: JudgeSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``verdicts.jsonl``, ``summary.json`` and a page; of rows with one response or a list, ``scores.jsonl``.

    The shards ``judged`` keep the rows as they are finished. A row that cannot be judged is among them with its reason.
    Where the run ends early, as at a limit of what may be spent, ``verdicts.jsonl`` holds the rows that are finished.
    """
    config, method = settings.verdicts, settings.method
    items = read_items(config, settings.world, settings.seed, lambda told: out.log(f"judge: {told}"))
    if settings.world is not None and not config.systems and config.source.type == "world":
        out.log(f"judge: {len(items)} comparisons of the generated world; verdicts.source.path=FILE takes yours")
    directory = Path(method.target).expanduser()
    known = method.is_directory and (directory / SETTINGS).is_file()
    if known and settings.judge and (unlike := settings.judge.unlike(directory)):
        out.log(f"judge: its judge.json asks otherwise than this command; to do as it says, add {' '.join(unlike)}")
    if settings.criteria_file and method.most and settings.judge and settings.judge.rubric == "only":
        out.log(f"judge: by every criterion of {settings.criteria_file}; @{method.most} counts its own")
    if empty := sum(item.failure is None and bool(item.comparison.forfeit) and not item.group for item in items):
        out.log(f"judge: {empty} comparisons hold an empty response, which loses without being read")
    untaught = "; its model never learned to judge: a small one judges at chance" if method.target == "base" else ""
    out.log(f"judge: {len(items)} rows, told and kept every {config.shard_size}{untaught}")
    with spending(settings.asked_engines, config, "verdicts", out) as budget:
        models = Models(settings, inputs, out, budget)
        _check_rows(items, settings)
        try:
            with judge_of(models, settings) as judge:
                process = shard_of(method, judge, settings, any(item.group for item in items))
                out.sharded(SHARDS, items, config.shard_size, process, "comparisons", load=judge, spread=budget is None)
        except JudgetrainError:
            _keep_finished(out, len(items))
            raise
    _write(method.name, budget, out)


def judge_of(models: Models, settings: JudgeSettings) -> AbstractContextManager[Callable[[], Judge]]:
    """A function that loads the judge of ``verdicts.judge`` when it is first called; it is closed at the end."""
    return loaded_once(lambda: models.judge(settings.method, settings.method.most or 1))


def shard_of(
    method: Method, judge: Callable[[], Judge], settings: JudgeSettings, scored: bool = False
) -> Callable[[int, Sequence[Item]], ShardResult]:
    """What judges a shard: all that can be judged in one call, the others with their reason.

    ``scored``: the rows hold responses that are scored one by one.
    """

    def process(index: int, items: Sequence[Item]) -> ShardResult:
        open_ = [item for item in items if item.failure is None]
        pairs = [item.comparison for item in open_ if item.group is None and item.comparison.forfeit is None]
        groups = [item.group for item in open_ if item.group is not None]
        found = iter(judge().compare_all(pairs, settings.seed) if pairs else ())
        by_group = iter(judge().score_all(groups, settings.seed) if groups else ())
        rows: list[Row] = []
        costs: list[Cost] = []
        for item in items:
            comparison, failure = item.comparison, item.failure
            if scored:
                scores = [] if failure else next(by_group)
                group = item.group or Candidates(comparison.id, comparison.dialogue, ("",))
                rows += score_rows(group, scores, method.name, failure)
                costs += [score.cost for score in scores]
            else:
                settled = None if failure or not comparison.forfeit else Prediction.of(comparison, method.name)
                prediction = settled if failure or settled else next(found)
                rows.append(row_of(comparison, prediction, method.name, failure))
                costs += [prediction.whole_cost] if prediction else []
        spent, lost = sum(costs, Cost()), Counter(reason for row in rows if (reason := dropped(row)))
        out, facts = len(rows) - lost.total(), {"calls": round(spent.calls)}
        return ShardResult(rows, len(items), lost, **spent.tokens, counts_out=out, facts=facts)

    return process


def _check_rows(items: Sequence[Item], settings: JudgeSettings) -> None:
    """Refuse rows of which the judge cannot do what they ask for, with the remedy."""
    scored = sum(item.group is not None for item in items)
    if scored and (pairs := sum(item.group is None and item.failure is None for item in items)):
        raise DataError(f"verdicts.source: {pairs} rows hold two responses and {scored} one: give each its own file")
    if scored and not kind_of(settings.method).scores(settings, settings.method):
        told = f"verdicts.source: {scored} of {len(items)} rows hold one response, or a list of them, not two"
        raise ConfigError(f"{told}: set judge.reads=one, with a branching judge, to score each by itself")
    given = sum((item.group or item.comparison).rubric is not None for item in items)
    if given and not settings.method.goes_by_criteria:
        told = f"verdicts.judge={settings.method.text}: {given} of {len(items)} rows bring criteria"
        raise ConfigError(f"{told}, which branching judges alone read: set verdicts.source.fields={{criteria: ''}}")


def _keep_finished(out: StageRun, total: int) -> None:
    """Write the rows of all finished shards, so that what was judged is there to read."""
    done = [path for path, _ in shards_of(out.directory, SHARDS) if out.path(f".{path.stem}.json").exists()]
    rows = [row for path in done for row in read_rows(out.directory, path.stem)]
    place = out.write_rows(SCORES if any("score" in row for row in rows) else VERDICTS, rows)
    out.log(f"judge: {len(rows)} of {total} rows are judged: {place}")


def _write(judge: str, budget: Budget | None, out: StageRun) -> None:
    """Everything that is made of the rows, which are read once for each file: none of them is held."""

    def rows() -> Iterator[Row]:
        return read_rows(out.directory, SHARDS)

    if any("score" in row for row in islice(rows(), 1)):
        place = out.write_rows(SCORES, rows())
        out.tell(scores_told(rows(), judge))
        out.log(f"judge: {place}")
        return
    place = out.write_rows(VERDICTS, rows())
    page = out.path(PAGE.name)
    write_text_atomic(page, render(PAGE, title=f"Verdicts of {judge}", rows=list(islice(rows(), SHOWN))))
    calls = sum(marker["facts"]["calls"] for marker in markers_of(out.directory, SHARDS))
    summary = summary_of(rows(), judge, calls, out.totals()["tokens"], budget.spent if budget else {})
    out.write_json("summary", summary)
    out.tell(verdicts_told(summary))
    for path in (place, page):
        out.log(f"judge: {path}")
