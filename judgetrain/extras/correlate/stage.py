"""Stage ``correlate``: a rating for each response, correlated with every score of it (glass-box paper, section 4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from judgetrain.amounts import agree, amount
from judgetrain.artifacts.executor import Work
from judgetrain.artifacts.files import named
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed, tokens_of
from judgetrain.data.intervals import Resampling
from judgetrain.engines.answers import spending
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.errors import DataError
from judgetrain.evaluate.metrics.intervals import with_intervals
from judgetrain.evaluate.report.report import write_report
from judgetrain.extras.correlate.answers import (
    Answer,
    Answers,
    RaterColumn,
    SelfevalRun,
    answers_of,
    read_runs,
    scores_of,
)
from judgetrain.extras.correlate.columns import read_columns
from judgetrain.extras.correlate.report import KINDS, TITLE, Row, tables
from judgetrain.extras.correlate.stages import CorrelateSettings
from judgetrain.extras.selfeval.stage import answered_dialogues
from judgetrain.judges.factory import Models
from judgetrain.judges.method import Method
from judgetrain.judges.settings import check_directories
from judgetrain.schema import Comparison, Dialogue
from judgetrain.scorers.probdiff import DELTA, average

RESAMPLES = 200
"""Resamples of whole prompts for a 95% interval."""
SHARD = 64
"""Answers rated together; the unit of resume."""
DIGITS = 4
"""Decimal places to which a published row and ours are compared."""


def run(settings: CorrelateSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``ratings.jsonl`` (of the raters asked), ``correlations.json``, ``report.md`` and ``report.html``.

    Raises:
        DataError: no response has a rating, or none has both a rating and a score.
    """
    config = settings.correlate
    runs = read_runs(_directories(settings, inputs), config.models)
    answers = answers_of(runs)
    scores = scores_of(runs) + read_columns(config.scores, "correlate.scores", answers)
    ratings = read_columns(config.ratings, "correlate.ratings", answers)
    for column in (*scores, *ratings):
        _log_left_out(column, out)
    # Files are read before any rater is asked: an error in them must not cost money.
    with spending(settings.asked_engines, config, "correlate", out) as budget:
        ratings += _ask_raters(answers, _dialogues(runs, inputs), Models(settings, inputs, out, budget))
    if not any(rating.values for rating in ratings):
        raise DataError("no response has a rating: see correlate.ratings, and what correlate.raters answered")

    # Where correlate.against names none, scores are set against every rating.
    against = [rating for name in config.against for rating in ratings if rating.name == name] or ratings
    other_ratings = [rating for rating in ratings if rating not in against]
    correlations = correlate(against, [*scores, *other_ratings], config.published, settings.seed)
    if not any(row["n"] for row in correlations):
        raise DataError(
            f"no response has both a rating and a score: ratings are of such as {_first_answer(against)}, scores of "
            f"such as {_first_answer(scores)}; ids, sources' names and models have to be the same (see "
            "correlate.models)"
        )
    averages = list(means(ratings, _categories(runs), _confident(scores)))
    out.write_json("correlations", {"correlations": correlations, "means": averages})
    write_report(out, TITLE, tables(correlations, averages), "correlations.json")


def check_here(settings: CorrelateSettings) -> None:
    """Read the files of ratings and scores, and look at the raters' directories, before anything runs."""
    read_columns(settings.correlate.ratings, "correlate.ratings", {})
    read_columns(settings.correlate.scores, "correlate.scores", {})
    check_directories(settings.engine, settings.methods, "correlate.raters")


def _directories(settings: CorrelateSettings, inputs: Mapping[str, Path]) -> list[Path]:
    """Return the directories of this run's stage selfeval and of those of other runs, each once."""
    directories = []
    if "selfeval" in inputs:
        directories.append(inputs["selfeval"])
    for pattern in settings.correlate.runs:
        # A pattern that matches nothing stays, so that the error names it.
        directories += named(pattern) or [Path(pattern)]
    return list(dict.fromkeys(path.resolve() for path in directories))


def _log_left_out(column: RaterColumn, out: StageRun) -> None:
    """Log how many values of a column count for nothing, and why."""
    if column.stand_ins:
        out.log(
            f"correlate: {amount(column.stand_ins, 'value')} of {column.name} {agree(column.stand_ins, 'are')} -1, "
            "for none: left out"
        )
    if column.elsewhere:
        out.log(
            f"correlate: {amount(column.elsewhere, 'value')} of {column.name} {agree(column.elsewhere, 'are')} "
            "of answers that no run gave: left out"
        )


def _first_answer(columns: Sequence[RaterColumn]) -> Answer | None:
    """Return the first answer of the first column that has values."""
    for column in columns:
        for answer in column.values:
            return answer
    return None


def _categories(runs: Sequence[SelfevalRun]) -> dict[Answer, str | None]:
    """Return each answer's category; None where its benchmark has none."""
    categories: dict[Answer, str | None] = {}
    for run_ in runs:
        for answer, row in run_.scores.items():
            categories[answer] = row.get("category")
    return categories


def _confident(scores: Sequence[RaterColumn]) -> dict[Answer, bool]:
    """Return whether the discrepancy of each answer is at least the threshold, where score probdiff was computed."""
    for column in scores:
        if column.name == "probdiff":
            return {answer: discrepancy >= DELTA for answer, discrepancy in column.values.items()}
    return {}


def _dialogues(runs: Sequence[SelfevalRun], inputs: Mapping[str, Path]) -> dict[Answer, Dialogue]:
    """Return the dialogue that each answer ends; empty where this run has no dialogues."""
    if "dialogues" not in inputs:
        return {}
    # Runs beside this one answered the same prompts, or their ratings could not be compared.
    questions = [Dialogue.from_row(row) for row in read_rows(inputs["dialogues"], "dialogues")]
    dialogues: dict[Answer, Dialogue] = {}
    for run_ in runs:
        by_id = {dialogue.id: dialogue for dialogue in answered_dialogues(questions, run_.responses)}
        for answer, row in run_.scores.items():
            dialogues[answer] = by_id[row["id"]]
    return dialogues


def _ask_raters(answers: Answers, dialogues: Mapping[Answer, Dialogue], models: Models) -> list[RaterColumn]:
    """Return what each rater of ``correlate.raters`` gives every answer, and write it to ``ratings.jsonl``.

    Runs that gave the same answer share its rating, which is asked for once.
    """
    methods = models.settings.methods
    if not methods:
        return []
    sharing: dict[tuple[Answer, str], list[Answer]] = {}
    for answer, texts in answers.items():
        for run_answer, text in texts.items():
            sharing.setdefault((answer, text), []).append(run_answer)
    questions = []
    for (_, text), run_answers in sharing.items():
        first = run_answers[0]

        # A rater reads response A alone.
        questions.append(Comparison("/".join(map(str, first)), dialogues[first], text, ""))

    columns = []
    rows = []
    for method in methods:
        column = RaterColumn(method.name, 1)
        ratings = _rate(method, questions, models)
        for ((answer, text), run_answers), value in zip(sharing.items(), ratings, strict=True):
            if value is None:
                continue
            column.values |= dict.fromkeys(run_answers, value)
            rows.append({"rater": method.name, **answer._asdict(), "response": text, "value": value})
        columns.append(column)
    # Written in the form that correlate.ratings reads, so that another run can take them over without asking.
    models.out.write_rows("ratings", rows)
    return columns


def _rate(method: Method, questions: Sequence[Comparison], models: Models) -> list[float | None]:
    """Return one rater's ratings, kept as shards ``ratings-RATER``; None where a rating cannot be read.

    Args:
        method: the rater.
        questions: each with one response.
        models: the stage's models.
    """
    # By rater: adding one to correlate.raters leaves the others' finished shards alone.
    name = f"ratings-{method.file_name}"
    out = models.out
    with loaded_once(lambda: models.judge(method)) as judge:

        def process(index: int, items: Sequence[Comparison]) -> ShardResult:
            replies = judge().rate(items, derive_seed(out.shard_seed(index), "ratings"))
            rows = []
            for item, reply in zip(items, replies, strict=True):
                rows.append({"id": item.id, "value": reply.answer, "failure": reply.failure, "text": reply.text})
            failures = Counter(reply.failure for reply in replies if reply.failure)
            return ShardResult(rows, len(rows), failures, **tokens_of(replies))

        # A budget is counted in this process, so its requests stay here.
        spread = models.budget is None
        work = Work(process=process, load=judge, spread=spread, gpus=models.gpus(method))
        out.sharded(name, questions, SHARD, work, "answers")
    return [row["value"] for row in read_rows(out.directory, name)]


def correlate(
    ratings: Sequence[RaterColumn], scores: Sequence[RaterColumn], published: Mapping[str, Sequence[float]], seed: int
) -> list[Row]:
    """Correlate every score, and every other rating, with each rating, by benchmark and model.

    Correlations are of the score times ``better``, so that more of it is better. Intervals resample prompts whole, all
    turns of one together.

    Args:
        ratings: what is correlated with.
        scores: what is correlated.
        published: printed correlations by ``BENCHMARK/MODEL/SCORE``, without signs; they are about the first rating.
        seed: of the intervals.

    Returns:
        Rows in the order of the columns, each over the ``n`` responses of a model on a benchmark that have both.
        ``without`` counts rated responses that have no score. A correlation is None where it is not defined. ``same``
        says whether all three published ones are so to four digits, but for signs; None where nothing is published. A
        published row that has no score has n 0.
    """
    rows = []
    for number, rating in enumerate(ratings):
        printed = {}
        # A paper's figures are about one rating; shown beside the others they would look wrong.
        if number == 0:
            printed = _by_cell(published)
        others = [other for other in ratings if other is not rating]
        for (benchmark, model), answers in _cells(rating).items():
            for column in (*scores, *others):
                if any(answer in column.values for answer in answers):
                    # Taken out, so that those without a score of ours are left at the end.
                    values = printed.pop((benchmark, model, column.name), None)
                    rows.append(_correlation(rating, column, answers, values, seed))

        # What is left of the published correlations has no score in this run.
        for (benchmark, model, score), values in printed.items():
            rows.append(_unmatched(rating, benchmark, model, score, values))
    return rows


def _by_cell(published: Mapping[str, Sequence[float]]) -> dict[tuple[str, str, str], list[float]]:
    """Return published correlations by benchmark, model and score."""
    cells = {}
    for name, values in published.items():
        benchmark, _, rest = name.partition("/")
        # A model's name may hold slashes, a benchmark's and a score's do not.
        model, _, score = rest.rpartition("/")
        cells[benchmark, model, score] = list(values)
    return cells


def _cells(rating: RaterColumn) -> dict[tuple[str, str], list[Answer]]:
    """Return the rated answers by benchmark and model."""
    cells: dict[tuple[str, str], list[Answer]] = {}
    for answer in rating.values:
        cells.setdefault((answer.benchmark, answer.model), []).append(answer)
    return cells


def _correlation(
    rating: RaterColumn, score: RaterColumn, answers: Sequence[Answer], printed: list[float] | None, seed: int
) -> Row:
    """Return one row of :func:`correlate`, over a model's answers on a benchmark."""
    scored = [answer for answer in answers if answer in score.values]
    x = [score.better * score.values[answer] for answer in scored]
    y = [rating.better * rating.values[answer] for answer in scored]
    # All of them are of one model on one benchmark.
    benchmark = answers[0].benchmark
    model = answers[0].model

    # A seed for each row, so that further scores or models change no other row's interval.
    cell_seed = derive_seed(seed, rating.name, score.name, benchmark, model)
    figures = with_intervals(x, y, Resampling(RESAMPLES, cell_seed), [answer.id for answer in scored])
    same = None
    if printed is not None:
        # All three at once: one that is off by a digit makes the row no reproduction.
        same = _without_signs(figures) == [abs(value) for value in printed]
    return {
        "rating": rating.name,
        "benchmark": benchmark,
        "model": model,
        "score": score.name,
        "better": score.better,
        "n": len(scored),
        "without": len(answers) - len(scored),
        **figures,
        "published": printed,
        "same": same,
    }


def _without_signs(figures: Mapping[str, float | None]) -> list[float | None]:
    """Return the correlations as papers print them: rounded, and without signs."""
    printed: list[float | None] = []
    for kind in KINDS:
        value = figures[kind]
        if value is None:
            printed.append(None)
        else:
            printed.append(round(abs(value), DIGITS))
    return printed


def _unmatched(rating: RaterColumn, benchmark: str, model: str, score: str, printed: list[float]) -> Row:
    """Return the row of a published correlation whose score this run does not have."""
    intervals = [f"{kind}_ci" for kind in KINDS]
    return {
        "rating": rating.name,
        "benchmark": benchmark,
        "model": model,
        "score": score,
        "better": 1,
        "n": 0,
        "without": 0,
        **dict.fromkeys([*KINDS, *intervals]),
        "published": printed,
        "same": False,
    }


def means(
    ratings: Sequence[RaterColumn], categories: Mapping[Answer, str | None], confident: Mapping[Answer, bool]
) -> Iterator[Row]:
    """Yield ratings and confidence side by side (ProbDiff paper, table 5): a row a benchmark, category and model.

    Category ``all`` is the whole benchmark.

    Args:
        ratings: all of them.
        categories: of all answers.
        confident: whether an answer's discrepancy is at least the threshold; answers that have none are left out.
    """
    groups: dict[tuple[str, str, str], list[Answer]] = {}
    # An answer counts in its category, and in that of the whole benchmark.
    for answer, category in categories.items():
        names = ["all"]
        if category and category != "all":
            names.append(category)
        for name in names:
            groups.setdefault((answer.benchmark, name, answer.model), []).append(answer)

    def whole_benchmark_first(group: tuple[str, str, str]) -> tuple[str, bool, tuple[str, str, str]]:
        return group[0], group[1] != "all", group

    for group in sorted(groups, key=whole_benchmark_first):
        benchmark, category, model = group
        answers = groups[group]
        averages = {}
        for rating in ratings:
            average_rating = average([rating.values.get(answer) for answer in answers])
            if average_rating is not None:
                averages[rating.name] = average_rating
        yield {
            "benchmark": benchmark,
            "category": category,
            "model": model,
            "n": len(answers),
            "ratings": averages,
            "confidence": average([confident.get(answer) for answer in answers]),
        }
