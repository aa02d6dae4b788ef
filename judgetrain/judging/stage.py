"""Stage ``judge``: a file of comparisons in, verdicts with their reasons out."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path

from judgetrain.amounts import agree, amount
from judgetrain.artifacts.executor import Work
from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.losses import Losses
from judgetrain.artifacts.pages import render
from judgetrain.artifacts.shards import markers_of, read_rows, shards_of
from judgetrain.artifacts.stage_run import ShardResult, StageRun
from judgetrain.data.labelled import OVERALL, Scale
from judgetrain.data.rubrics import read_rubric
from judgetrain.engines.answers import Budget, spending
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.errors import ConfigError, DataError, JudgetrainError
from judgetrain.judges.base import Judge
from judgetrain.judges.factory import Models
from judgetrain.judges.forfeits import without_forfeits
from judgetrain.judges.kinds.kind import kind_of
from judgetrain.judges.method import Method
from judgetrain.judges.predictions import Cost, Prediction, Score
from judgetrain.judges.saved import SETTINGS, learned_rubric, overridden
from judgetrain.judging.items import JudgedRow, read_items
from judgetrain.judging.rows import (
    SCORES,
    VERDICTS,
    JudgingCost,
    Row,
    agreement_lines,
    dropped,
    reason_of,
    row_of,
    score_report,
    score_rows,
    summary_of,
    summary_of_scores,
    verdict_report,
)
from judgetrain.judging.stages import JudgeSettings
from judgetrain.judging.votes import Labels, labels_that_count, response_labels_that_count
from judgetrain.rubrics import Criterion
from judgetrain.schema import Candidates, Comparison

SHARDS = "judged"
PAGE = Path(__file__).with_name("templates") / "verdicts.html"
SHOWN = 100
"""Comparisons on the page to look at, more than anybody reads."""


def run(settings: JudgeSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``verdicts.jsonl``, ``summary.json`` and a page; of rows with one response or a list, ``scores.jsonl``.

    The shards ``judged`` keep the rows as they are finished. A row that cannot be judged is among them with its reason.
    Where the run ends early, as at a limit of what may be spent, ``verdicts.jsonl`` holds the rows that are finished.
    """
    config = settings.verdicts
    method = settings.method
    items = read_items(config, settings.world, settings.seed, lambda line: out.log(f"judge: {line}"))
    for notice in _notices(items, settings):
        out.log(f"judge: {notice}")
    labels = labels_that_count(items, lambda line: out.log(f"judge: {line}"))
    response_labels = response_labels_that_count(items, lambda line: out.log(f"judge: {line}"))
    with spending(settings.asked_engines, config, "verdicts", out) as budget:
        models = Models(settings, inputs, out, budget)
        # Before the judge is loaded, which may take minutes.
        check_rows(items, settings)
        try:
            with judge_of(models, settings) as judge:
                # Also where some rows could not be read, which have no group.
                scored = any(item.group for item in items)
                labelled = any(item.votes for item in items)
                process = shard_of(method, judge, settings, scored, labelled)
                # What is paid for is asked by one process, which counts what it spends.
                spread = budget is None
                work = Work(process=process, load=judge, spread=spread)
                out.sharded(SHARDS, items, config.shard_size, work, "comparisons")
        except (JudgetrainError, KeyboardInterrupt):
            # What was judged, and paid for, is there to read although the run failed or was stopped.
            _keep_finished(out, len(items))
            raise
    # All items with labels have the same scales, those of their source.
    scales = next((item.scales for item in items if item.scales), {})
    _write(settings, budget, labels, response_labels, scales, out)


def _notices(items: Sequence[JudgedRow], settings: JudgeSettings) -> Iterator[str]:
    """Yield what a user may not expect of the rows and of how they are judged, and last how many there are."""
    config = settings.verdicts
    method = settings.method
    if settings.world is not None and not config.systems and config.source.type == "world":
        yield f"{amount(len(items), 'comparison')} of the generated world; verdicts.source.path=FILE takes yours"

    directory = Path(method.target).expanduser()
    # A trained judge brings settings, which the command line overrides without a word.
    if settings.judge and method.is_directory and (directory / SETTINGS).is_file():
        different = overridden(settings.judge, directory)
        if different:
            yield f"its judge.json asks otherwise than this command; to do as it says, add {' '.join(different)}"
    if settings.criteria_file and method.most and settings.judge and settings.judge.rubric == "only":
        yield f"by every criterion of {settings.criteria_file}; @{method.most} counts its own"

    losses = Losses()
    for item in items:
        if item.failure is not None:
            losses.lose(reason_of(item.failure), item.failure)
    yield from losses.sentences(len(items), {}, "rows")

    empty = 0
    for item in items:
        if item.failure is None and item.group is None and item.comparison.forfeit:
            empty += 1
    if empty:
        yield f"{amount(empty, 'comparison')} {agree(empty, 'hold')} an empty response, which loses without being read"
    yield from about_judge(settings)
    yield from _about_own_criteria(items, settings)
    kept = f"{amount(config.shard_size, 'row')}"
    if config.shard_size == 1:
        kept = "row"
    yield f"{amount(len(items), 'row')}, kept after every {kept}"


def about_judge(settings: JudgeSettings) -> Iterator[str]:
    """Yield sentences on who judges and by what: a base that never learned to, and a rubric with its weights."""
    if settings.method.target == "base" and settings.base is not None:
        name = settings.base.path
        yield f"the judge is {name}, which never learned to judge: take a small model's verdicts to be at chance"
    rubric = None
    source = settings.criteria_file
    if source:
        rubric = read_rubric(source)
    elif settings.method.is_directory and settings.method.goes_by_criteria:
        rubric = learned_rubric(Path(settings.method.target).expanduser())
        source = "the criteria that it was taught by"
    if rubric is not None:
        # Where there is a rubric for each kind of query, these are the criteria of all other queries.
        criteria = ", ".join(f"{_name_of(criterion)} (weight {criterion.weight:g})" for criterion in rubric.criteria)
        yield f"by {source}: {criteria}"


def _about_own_criteria(items: Sequence[JudgedRow], settings: JudgeSettings) -> Iterator[str]:
    """Yield a sentence on rows whose criteria take the place of those of the file that the user names."""
    if not settings.criteria_file:
        return
    own = sum((item.group or item.comparison).rubric is not None for item in items)
    if own:
        yield (
            f"{own} of {amount(len(items), 'row')} {agree(own, 'bring')} criteria, which take the place of those of "
            f"{settings.criteria_file}; to judge all by the file, set verdicts.source.fields={{criteria: ''}}"
        )


def _name_of(criterion: Criterion) -> str:
    """Return a criterion's name, or its text where it has none."""
    return criterion.name or criterion.text


def judge_of(models: Models, settings: JudgeSettings) -> AbstractContextManager[Callable[[], Judge]]:
    """Return a function that loads the judge of ``verdicts.judge`` when it is first called, as a context manager.

    The judge is closed at the end of the context.
    """
    return loaded_once(lambda: models.judge(settings.method, settings.method.most or 1))


def shard_of(
    method: Method, judge: Callable[[], Judge], settings: JudgeSettings, scored: bool = False, labelled: bool = False
) -> Callable[[int, Sequence[JudgedRow]], ShardResult]:
    """Return a function that judges a shard: all that can be judged in one call, the others with their reason.

    Args:
        method: of the judge.
        judge: returns it.
        settings: of the stage.
        scored: True: the rows hold responses that are scored one by one.
        labelled: True: some of these have labels.
    """

    def process(index: int, items: Sequence[JudgedRow]) -> ShardResult:
        if scored:
            rows, costs = _scored(items, judge, method.name, settings.seed, labelled)
        else:
            rows, costs = _compared(items, judge, method.name, settings.seed)
        cost = sum(costs, Cost())
        lost: Counter[str] = Counter()
        for row in rows:
            reason = dropped(row)
            if reason is not None:
                lost[reason] += 1
        finished = len(rows) - lost.total()
        facts = {"calls": round(cost.calls)}
        return ShardResult(rows, len(items), lost, **cost.tokens, counts_out=finished, facts=facts)

    return process


def _compared(
    items: Sequence[JudgedRow], judge: Callable[[], Judge], name: str, seed: int
) -> tuple[list[Row], list[Cost]]:
    """Return the rows of comparisons, and what each of those that were judged cost."""

    # The judge is not loaded where nothing is to be judged.
    def ask(comparisons: Sequence[Comparison]) -> list[Prediction]:
        return judge().compare_batch(comparisons, seed)

    readable = [item.comparison for item in items if item.failure is None]
    predictions = iter(without_forfeits(readable, ask, name))
    rows: list[Row] = []
    costs: list[Cost] = []
    for item in items:
        prediction = None
        if item.failure is None:
            prediction = next(predictions)
        if prediction is not None:
            costs.append(prediction.whole_cost)
        # In the order of the items, whatever was judged.
        rows.append(row_of(item.comparison, prediction, name, item.failure))
    return rows, costs


def _scored(
    items: Sequence[JudgedRow], judge: Callable[[], Judge], name: str, seed: int, labelled: bool
) -> tuple[list[Row], list[Cost]]:
    """Return the rows of single responses, and what each of those that were judged cost."""
    # All in one call, so that the engine can batch them.
    groups = [item.group for item in items if item.failure is None and item.group is not None]
    scores_by_group: Iterator[list[Score]] = iter(())
    if groups:
        scores_by_group = iter(judge().score_batch(groups, seed))
    rows: list[Row] = []
    costs: list[Cost] = []
    for item in items:
        scores: list[Score] = []
        if item.failure is None:
            scores = next(scores_by_group)
        # A row that could not be read has one empty response, for its reason to stand in a row.
        group = item.group or Candidates(item.comparison.id, item.comparison.dialogue, ("",))
        labels = None
        if labelled:
            labels = item.labels
        rows.extend(score_rows(group, scores, name, item.failure, labels))
        costs.extend(score.cost for score in scores)
    return rows, costs


def check_rows(items: Sequence[JudgedRow], settings: JudgeSettings) -> None:
    """Refuse rows of which the judge cannot do what they ask for, with the remedy."""
    scored = sum(item.group is not None for item in items)
    pairs = sum(item.group is None and item.failure is None for item in items)
    if scored and pairs:
        raise DataError(
            f"verdicts.source: {amount(pairs, 'row')} {agree(pairs, 'hold')} two responses and {scored} one: "
            "give each its own file"
        )
    if scored and not kind_of(settings.method).scores(settings, settings.method):
        raise ConfigError(
            f"verdicts.source: {scored} of {amount(len(items), 'row')} {agree(scored, 'hold')} one response, or "
            "a list of them, not two: "
            "set judge.reads=one, with a branching judge, to score each by itself"
        )
    # Before anything is judged: criteria that the judge does not read would look as if it had gone by them.
    with_criteria = sum((item.group or item.comparison).rubric is not None for item in items)
    if with_criteria and not settings.method.goes_by_criteria:
        raise ConfigError(
            f"verdicts.judge={settings.method.text}: {with_criteria} of {amount(len(items), 'row')} "
            f"{agree(with_criteria, 'bring')} criteria, "
            "which branching judges alone read: set verdicts.source.fields={criteria: ''}"
        )


def _keep_finished(out: StageRun, total: int) -> None:
    """Write the rows of all finished shards, so that what was judged is there to read."""
    rows: list[Row] = []
    for path, _ in shards_of(out.directory, SHARDS):
        # A shard without its marker may be cut off.
        if out.path(f".{path.stem}.json").exists():
            rows.extend(read_rows(out.directory, path.stem))
    name = VERDICTS
    if any("score" in row for row in rows):
        name = SCORES
    file = out.write_rows(name, rows)
    out.log(f"judge: {len(rows)} of {amount(total, 'row')} {agree(len(rows), 'are')} judged: {file}")


def _write(
    settings: JudgeSettings,
    budget: Budget | None,
    labels: Labels,
    response_labels: Mapping[str, Mapping[str, float | None]],
    scales: Mapping[str, Scale],
    out: StageRun,
) -> None:
    """Write everything that is made of the rows.

    Args:
        settings: of the stage.
        budget: of a paid model.
        labels: those that count instead of rows' own, by id.
        response_labels: of single responses, by id and criterion.
        scales: of single responses' labels; empty where there are none.
        out: the stage's run.
    """

    judge = settings.method.name

    # Read again for each file, so that no more than a row is in memory.
    def rows() -> Iterator[Row]:
        return read_rows(out.directory, SHARDS)

    if any("score" in row for row in islice(rows(), 1)):
        file = out.write_rows(SCORES, rows())
        out.tell(score_report(rows(), judge, scales.get(OVERALL), response_labels))
        if scales:
            scores_summary = summary_of_scores(rows(), judge, scales, response_labels)
            out.write_json("summary", scores_summary)
            out.tell(agreement_lines(scores_summary))
        out.log(f"judge: {file}")
        return
    file = out.write_rows(VERDICTS, rows())
    page = out.path(PAGE.name)
    shown = list(islice(rows(), SHOWN))
    about = [*about_judge(settings)]
    write_text_atomic(page, render(PAGE, title=f"Verdicts of {judge}", about=about, rows=shown))
    # Of all shards, also those that an earlier run finished.
    calls = sum(marker["facts"]["calls"] for marker in markers_of(out.directory, SHARDS))
    spent: Mapping[str, int] = {}
    if budget is not None:
        spent = budget.spent
    cost = JudgingCost(calls=calls, tokens=out.totals()["tokens"], spent=spent)
    summary = summary_of(rows(), judge, cost, labels)
    out.write_json("summary", summary)
    out.tell(verdict_report(summary))
    for sentence in about:
        out.log(f"judge: {sentence}")
    out.log(f"judge: {file}")
    out.log(f"judge: {page}")
