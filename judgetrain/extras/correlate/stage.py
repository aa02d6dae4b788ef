"""Stage ``correlate``: a rating for each response, correlated with every score of it (glass-box paper, section 4)."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from judgetrain.artifacts.files import named
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed, tokens_of
from judgetrain.data.cells import RowError, label_text
from judgetrain.data.sources import read
from judgetrain.engines.answers import spending
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.errors import DataError
from judgetrain.evaluate.metrics.intervals import with_intervals
from judgetrain.evaluate.report.naming import told_apart
from judgetrain.evaluate.report.report import write_report
from judgetrain.extras.correlate.config import ColumnConfig
from judgetrain.extras.correlate.report import KINDS, TITLE, Row, tables
from judgetrain.extras.correlate.stages import CorrelateSettings
from judgetrain.extras.selfeval.stage import answered_dialogues
from judgetrain.extras.selfeval.stages import finished_settings, model_of
from judgetrain.judges.factory import Models
from judgetrain.judges.method import Method
from judgetrain.judges.settings import check_directories
from judgetrain.schema import Comparison, Dialogue
from judgetrain.scorers.probdiff import DELTA, average

RESAMPLES = 200
"""Of whole prompts, of the 95% intervals."""
SHARD = 64
"""Answers rated together; the unit of resume."""


def run(settings: CorrelateSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``ratings.jsonl`` (of the raters asked), ``correlations.json``, ``report.md`` and ``report.html``."""
    config = settings.correlate
    runs = read_runs(_directories(settings, inputs), config.models)
    answers = answers_of(runs)
    scores = scores_of(runs) + read_columns(config.scores, "correlate.scores", answers)
    ratings = read_columns(config.ratings, "correlate.ratings", answers)
    for column in (*scores, *ratings):
        lost = {"-1, for none": column.stand_ins, "of answers that no run gave": column.elsewhere}
        for why, n in lost.items():
            if n:
                out.log(f"correlate: {n} values of {column.name} are {why}: left out")
    with spending(settings.asked_engines, config, "correlate", out) as budget:
        ratings += _asked(answers, _dialogues(runs, inputs), Models(settings, inputs, out, budget))
    if not any(rating.values for rating in ratings):
        raise DataError("no response has a rating: see correlate.ratings, and what correlate.raters answered")
    chosen = [r for name in config.against for r in ratings if r.name == name] or ratings
    beside = [r for r in ratings if r not in chosen]
    found = correlate(chosen, [*scores, *beside], config.published, RESAMPLES, settings.seed)
    if not any(row["n"] for row in found):
        rated, scored = (next((next(iter(c.values)) for c in side if c.values), None) for side in (chosen, scores))
        told = f"no response has both a rating and a score: ratings are of such as {rated}, scores of such as {scored}"
        raise DataError(f"{told}; ids, sources' names and models have to be the same (see correlate.models)")
    categories = {item: row.get("category") for run in runs for item, row in run.scores.items()}
    probdiff = next((column.values for column in scores if column.name == "probdiff"), {})
    averages = list(means(ratings, categories, {item: d >= DELTA for item, d in probdiff.items()}))
    out.write_json("correlations", {"correlations": found, "means": averages})
    write_report(out, TITLE, tables(found, averages), "correlations.json")


def check_here(settings: CorrelateSettings) -> None:
    """Read the files of ratings and scores, and look at the raters' directories."""
    read_columns(settings.correlate.ratings, "correlate.ratings", {})
    read_columns(settings.correlate.scores, "correlate.scores", {})
    check_directories(settings.engine, settings.methods, "correlate.raters")


def _directories(settings: CorrelateSettings, inputs: Mapping[str, Path]) -> list[Path]:
    own = [inputs["selfeval"]] if "selfeval" in inputs else []
    others = [path for pattern in settings.correlate.runs for path in named(pattern) or [Path(pattern)]]
    return list(dict.fromkeys(path.resolve() for path in (*own, *others)))


def _dialogues(runs: Sequence[Run], inputs: Mapping[str, Path]) -> dict[Item, Dialogue]:
    if "dialogues" not in inputs:
        return {}
    asked = [Dialogue.from_row(row) for row in read_rows(inputs["dialogues"], "dialogues")]
    found: dict[Item, Dialogue] = {}
    for each in runs:
        answered = {d.id: d for d in answered_dialogues(asked, each.responses)}
        found |= {item: answered[row["id"]] for item, row in each.scores.items()}
    return found


def _asked(answers: Answers, dialogues: Mapping[Item, Dialogue], models: Models) -> list[Column]:
    """What each rater of ``correlate.raters`` gives every answer; all of it is in ``ratings.jsonl``, too.

    Runs that gave the same answer share its rating.
    """
    given: dict[tuple[Item, str], list[Item]] = {}
    for item, known in answers.items() if models.settings.methods else ():
        for place, text in known.items():
            given.setdefault((item, text), []).append(place)
    pairs = [
        Comparison("/".join(map(str, places[0])), dialogues[places[0]], text, "") for (_, text), places in given.items()
    ]
    columns, rows = [], []
    for method in models.settings.methods:
        column = Column(method.name, 1)
        for ((item, text), places), value in zip(given.items(), _rated(method, pairs, models), strict=True):
            if value is not None:
                column.values |= dict.fromkeys(places, value)
                rows.append({"rater": method.name, **item._asdict(), "response": text, "value": value})
        columns.append(column)
    if columns:
        models.out.write_rows("ratings", rows)
    return columns


def _rated(method: Method, answers: Sequence[Comparison], models: Models) -> list[float | None]:
    """One rater's ratings, as ``ratings-RATER`` shards; a rating that cannot be read is none."""
    name, out = f"ratings-{method.file_name}", models.out
    with loaded_once(lambda: models.judge(method)) as judge:

        def process(index: int, items: Sequence[Comparison]) -> ShardResult:
            replies = judge().rate(items, derive_seed(out.shard_seed(index), "ratings"))
            said = [{"value": reply.answer, "failure": reply.failure, "text": reply.text} for reply in replies]
            missing = Counter(reply.failure for reply in replies if reply.failure)
            rows = [{"id": item.id, **each} for item, each in zip(items, said, strict=True)]
            return ShardResult(rows, len(rows), missing, **tokens_of(replies))

        spread, gpus = models.budget is None, models.gpus(method)
        out.sharded(name, answers, SHARD, process, "answers", judge, spread=spread, gpus=gpus)
    return [row["value"] for row in read_rows(out.directory, name)]


class Item(NamedTuple):
    """A response: of which model to which question, that is which turn (from 1) of which prompt of a benchmark."""

    benchmark: str
    model: str
    id: str
    turn: int


@dataclass
class Column:
    """Numbers of responses by one rater or score; ``better``: 1 where more of it is better, else -1.

    ``elsewhere``: rows of a file that are about an answer that no run gave. ``stand_ins``: items with -1 for none.
    """

    name: str
    better: int
    values: dict[Item, float] = field(default_factory=dict)
    elsewhere: int = 0
    stand_ins: int = 0


@dataclass(frozen=True)
class Run:
    """A finished stage selfeval: its model, its rows of answers, and by score 1 or -1: what is better.

    ``scores``: its rows of scores by item. An item's ``model`` is the run's name: several runs of one model are told
    apart by the settings that differ.
    """

    model: str
    responses: Sequence[Row]
    scores: Mapping[Item, Row]
    better: Mapping[str, int]


def read_runs(directories: Sequence[Path], called: Mapping[str, str]) -> list[Run]:
    """Finished stages selfeval, whatever their scores; ``called``: what models' paths are called (DataError: a
    directory holds none)."""
    settings = [finished_settings(directory) for directory in directories]
    models = [called.get(path, path) for path in map(model_of, settings)]
    result = []
    for directory, model, name in zip(directories, models, told_apart(models, settings), strict=True):
        metrics = json.loads((directory / "metrics.json").read_text(encoding="utf-8"))
        responses, scores = (list(read_rows(directory, rows)) for rows in ("responses", "scores"))
        items = _items([str(row["id"]) for row in scores], name)
        better = {row["method"]: row["better"] for row in metrics}
        result.append(Run(model, responses, dict(zip(items, scores, strict=True)), better))
    return result


def _items(ids: Sequence[str], name: str) -> Iterator[Item]:
    """The items of a run's answers.

    The earlier answers of a conversation have ids that end in ``#`` and their number; the last one has none.
    """
    known, turns = set(ids), dict[str, int]()
    for each in ids:
        base, mark, number = each.rpartition("#")
        if mark and base in known and number.isdecimal():
            turns[base] = max(turns.get(base, 0), int(number))
    for each in ids:
        base, _, number = each.rpartition("#")
        turn = int(number) if base in turns and number.isdecimal() else 1 + turns.get(each, 0)
        benchmark, _, local = (base if base in turns else each).partition(":")
        yield Item(benchmark, name, local, turn)


def scores_of(runs: Sequence[Run]) -> list[Column]:
    """Every score of the runs; answers that could not be scored are not among a score's values."""
    found: dict[str, Column] = {}
    for run in runs:
        for name, better in run.better.items():
            column = found.setdefault(name, Column(name, better))
            for item, row in run.scores.items():
                if not isinstance(value := row["scores"][name], str):
                    column.values[item] = float(value)
    return list(found.values())


Answers = Mapping[Item, Mapping[Item, str]]
"""What the runs answered, by items with the model's own name: by the runs' items, the text."""


def answers_of(runs: Sequence[Run]) -> dict[Item, dict[Item, str]]:
    """Every answer that is not empty."""
    found: dict[Item, dict[Item, str]] = {}
    for run in runs:
        for item, row in run.scores.items():
            if text := row["response"].strip():
                found.setdefault(item._replace(model=run.model), {})[item] = text
    return found


def read_columns(configs: Sequence[ColumnConfig], key: str, answers: Answers) -> list[Column]:
    """The columns that files hold; ``key`` is where their list stands, for messages (ConfigError: a missing path;
    DataError: a row without id, benchmark, model or number, one that is there twice, or one that may be about the
    answers of several runs; names file and line).

    A row is about the answer that it holds (column ``response``) or, if it holds none, about its model's only one.
    """
    found: dict[str, Column] = {}
    for i, config in enumerate(configs):
        column = found.setdefault(config.name, Column(config.name, 1))
        for row in read(config.source, f"{key}[{i}].source", _taker(config, column, answers)):
            column.values.update(row)
    kept = {config.name for config in configs if config.keep_minus_one}
    for column in (column for name, column in found.items() if name not in kept):
        if all(value >= 0 or value == -1 for value in column.values.values()):
            known = {item: value for item, value in column.values.items() if value != -1}
            column.stand_ins, column.values = len(column.values) - len(known), known
    return list(found.values())


def _taker(config: ColumnConfig, column: Column, answers: Answers) -> Any:
    def take(row: Any, number: int) -> dict[Item, float]:
        if not isinstance(row, Mapping) or config.id not in row or config.value not in row:
            raise RowError("missing_field", f"expected an object with the columns {config.id} and {config.value}")
        if any(label_text(row.get(name)) != value for name, value in config.where.items()):
            return {}
        benchmark, model = (config.benchmark or row.get("benchmark"), config.model or row.get("model"))
        if not benchmark or not model:
            raise RowError("missing_field", "expected the columns benchmark and model, or keys of these names")
        value, first = row[config.value], int(row.get("turn") or 1)
        result: dict[Item, float] = {}
        for turn, x in enumerate(value if isinstance(value, list) else [value], start=first):
            if _is_number(x):
                item = Item(str(benchmark), str(model), label_text(row[config.id]), turn)
                places = _places(item, row.get("response"), answers)
                column.elsewhere += not places
                result |= dict.fromkeys(places, float(x))
        if twice := column.values.keys() & result.keys():
            raise RowError("twice", f"{next(iter(twice))}: there is a row of it already; choose with where")
        return result

    return take


def _places(item: Item, response: object, answers: Answers) -> list[Item]:
    """The runs' items that a row is about: those with this answer, or the only one. Itself where no run has it."""
    known = answers.get(item, {})
    if not known:
        return [item]
    if isinstance(response, str):
        return [place for place, text in known.items() if text == response.strip()]
    if len(set(known.values())) > 1:
        names = ", ".join(place.model for place in known)
        raise RowError("several_runs", f"{item}: answers of several runs: {names}; give the answer (column response)")
    return list(known)


def _is_number(value: Any) -> bool:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise RowError("no_number", f"expected a number, null or a list of them, found {value!r}")
    return value is not None and math.isfinite(value)


DIGITS = 4
"""Of a published row, all of which are to be the same."""


def correlate(
    ratings: Sequence[Column],
    scores: Sequence[Column],
    published: Mapping[str, Sequence[float]],
    resamples: int,
    seed: int,
) -> list[Row]:
    """Every score, and every other rating, against each rating: by benchmark and model, in the order of the columns.

    A row is over the ``n`` responses of a model on a benchmark that have both; ``without``: rated responses that have
    no score. Correlations are of the score times ``better``, so that more of it is better; None where one is not
    defined. Intervals resample prompts whole, all turns of one together.

    ``published`` rows, by ``BENCHMARK/MODEL/SCORE`` and without signs, are about the first rating. ``same``: whether
    all three are so to four digits, but for signs; None where nothing is printed. One that has no score has n 0.
    """
    printed: dict[tuple[str, str, str], list[float]] = {}
    for name, given in published.items():
        benchmark, _, rest = name.partition("/")
        model, _, score = rest.rpartition("/")  # a model's name may hold slashes
        printed[benchmark, model, score] = list(given)
    result = []
    for number, rating in enumerate(ratings):
        open_ = dict(printed) if number == 0 else {}
        cells: dict[tuple[str, str], list[Item]] = {}
        for item in rating.values:
            cells.setdefault((item.benchmark, item.model), []).append(item)
        for (benchmark, model), items in cells.items():
            for column in (*scores, *(other for other in ratings if other is not rating)):
                if any(item in column.values for item in items):
                    own = open_.pop((benchmark, model, column.name), None)
                    result.append(_row(rating, column, items, own, resamples, seed))
        for (benchmark, model, score), found in open_.items():
            row = {"rating": rating.name, "benchmark": benchmark, "model": model, "score": score, "better": 1}
            nothing = dict.fromkeys([*KINDS, *(f"{kind}_ci" for kind in KINDS)])
            result.append({**row, "n": 0, "without": 0, **nothing, "published": found, "same": False})
    return result


def _row(
    rating: Column, score: Column, items: Sequence[Item], printed: list[float] | None, resamples: int, seed: int
) -> Row:
    both = [item for item in items if item in score.values]
    x, y = [score.better * score.values[item] for item in both], [rating.better * rating.values[item] for item in both]
    cell = {"benchmark": items[0].benchmark, "model": items[0].model}
    own = derive_seed(seed, rating.name, score.name, *cell.values())
    found = with_intervals(x, y, resamples, own, [item.id for item in both])
    sizes = [None if found[kind] is None else round(abs(found[kind]), DIGITS) for kind in KINDS]
    same = None if printed is None else sizes == [abs(value) for value in printed]
    row = {"rating": rating.name, **cell, "score": score.name, "better": score.better}
    return {**row, "n": len(both), "without": len(items) - len(both), **found, "published": printed, "same": same}


def means(
    ratings: Sequence[Column], categories: Mapping[Item, str | None], confident: Mapping[Item, bool]
) -> Iterator[Row]:
    """Ratings and confidence side by side (ProbDiff paper, table 5): a row a benchmark, category and model.

    ``confident``: whether an answer's discrepancy is at least the threshold; items that have none are left out.
    Category ``all`` is the whole benchmark.
    """
    groups: dict[tuple[str, str, str], list[Item]] = {}
    for item, category in categories.items():
        for name in dict.fromkeys(("all", category or "all")):
            groups.setdefault((item.benchmark, name, item.model), []).append(item)
    for (benchmark, category, model), items in sorted(groups.items(), key=lambda g: (g[0][0], g[0][1] != "all", g[0])):
        given = {r.name: average([r.values.get(item) for item in items]) for r in ratings}
        yield {
            "benchmark": benchmark,
            "category": category,
            "model": model,
            "n": len(items),
            "ratings": {name: value for name, value in given.items() if value is not None},
            "confidence": average([confident.get(item) for item in items]),
        }
