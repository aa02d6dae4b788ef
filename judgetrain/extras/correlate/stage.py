"""Stage ``correlate``: a rating for each response, correlated with every score of it (glass-box paper, section 4)."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed, tokens_of
from judgetrain.engines.answers import spending
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.errors import DataError
from judgetrain.evaluate.report.report import write_report
from judgetrain.extras.correlate.columns import (
    Answers,
    Column,
    Item,
    Run,
    answers_of,
    read_columns,
    read_runs,
    scores_of,
)
from judgetrain.extras.correlate.correlation import correlate, means
from judgetrain.extras.correlate.report import TITLE, tables
from judgetrain.extras.correlate.stages import CorrelateSettings
from judgetrain.judges.factory import Models
from judgetrain.judges.method import Method
from judgetrain.schema import Comparison, Dialogue
from judgetrain.scorers.probdiff import DELTA
from judgetrain.scorers.stage import answered_dialogues

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
        raise DataError(_no_pair(chosen, scores))
    categories = {item: row.get("category") for run in runs for item, row in run.scores.items()}
    probdiff = next((column.values for column in scores if column.name == "probdiff"), {})
    averages = list(means(ratings, categories, {item: d >= DELTA for item, d in probdiff.items()}))
    out.write_json("correlations", {"correlations": found, "means": averages})
    write_report(out, TITLE, tables(found, averages), "correlations.json")


def _directories(settings: CorrelateSettings, inputs: Mapping[str, Path]) -> list[Path]:
    """This run's stage selfeval and the others, each once."""
    own = [inputs["selfeval"]] if "selfeval" in inputs else []
    patterns = [str(Path(pattern).expanduser()) for pattern in settings.correlate.runs]
    others = [Path(path) for pattern in patterns for path in sorted(glob.glob(pattern)) or [pattern]]
    return list(dict.fromkeys(path.resolve() for path in (*own, *others)))


def _dialogues(runs: Sequence[Run], inputs: Mapping[str, Path]) -> dict[Item, Dialogue]:
    """What every answer answers, a last one in its conversation."""
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


def _no_pair(ratings: Sequence[Column], scores: Sequence[Column]) -> str:
    """Why nothing can be correlated: an example of either side."""
    rated, scored = (next((next(iter(c.values)) for c in side if c.values), None) for side in (ratings, scores))
    return (
        f"no response has both a rating and a score: ratings are of such as {rated}, scores of such as {scored}; "
        "ids, benchmarks (the sources' names) and models have to be the same (correlate.models renames a model's path)"
    )
