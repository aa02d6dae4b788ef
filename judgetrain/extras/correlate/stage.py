"""Stage ``correlate``: a rating for each response, correlated with every score of it (glass-box paper, section 4)."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed, tokens_of
from judgetrain.engines.answers import spending
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.errors import DataError
from judgetrain.evaluate.report.page import write_report
from judgetrain.extras.correlate.columns import (
    Column,
    Finished,
    Item,
    items_of,
    merged,
    read_columns,
    read_finished,
    scores_of,
)
from judgetrain.extras.correlate.correlation import correlate, means
from judgetrain.extras.correlate.report import TITLE, tables
from judgetrain.extras.correlate.stages import CorrelateSettings
from judgetrain.judges.factory import Models
from judgetrain.judges.method import Method
from judgetrain.schema import Comparison, Dialogue
from judgetrain.scorers.probdiff import DELTA
from judgetrain.scorers.respond import answered_dialogues

RESAMPLES = 200
"""Of whole prompts, of the 95% intervals."""
SHARD = 64
"""Answers rated together; the unit of resume."""


def run(settings: CorrelateSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``ratings.jsonl`` (of the raters asked), ``correlations.json``, ``report.md`` and ``report.html``."""
    config = settings.correlate
    runs = _runs(settings, inputs)
    named = [(each, config.models.get(each.model, each.model)) for each in runs]
    items = [items_of(each, model) for each, model in named]
    scores = merged(column for each, own in zip(runs, items, strict=True) for column in scores_of(each, own))
    scores += read_columns(config.scores, "correlate.scores")
    ratings = read_columns(config.ratings, "correlate.ratings")
    ratings += _asked(_answers(runs, items, inputs), settings, inputs, out)
    if not any(rating.values for rating in ratings):
        raise DataError("no response has a rating: see correlate.ratings, and what correlate.raters answered")
    chosen = [r for name in config.against for r in ratings if r.name == name] or ratings
    beside = [r for r in ratings if r not in chosen]
    found = correlate(chosen, [*scores, *beside], config.published, RESAMPLES, settings.seed)
    if not any(row.n for row in found):
        raise DataError(_no_pair(chosen, scores))
    averages = list(means(ratings, _categories(runs, items), _confident(scores, DELTA)))
    rows = {"correlations": [asdict(row) for row in found], "means": [vars(mean) for mean in averages]}
    out.write_json("correlations", rows)
    write_report(out, TITLE, tables(found, averages), "correlations.json")


def _runs(settings: CorrelateSettings, inputs: Mapping[str, Path]) -> list[Finished]:
    """This run's stage selfeval and the others, each once."""
    own = [inputs["selfeval"]] if "selfeval" in inputs else []
    patterns = [str(Path(pattern).expanduser()) for pattern in settings.correlate.runs]
    others = [Path(path) for pattern in patterns for path in sorted(glob.glob(pattern)) or [pattern]]
    return [read_finished(path) for path in dict.fromkeys(p.resolve() for p in (*own, *others))]


def _categories(runs: Sequence[Finished], items: Sequence[Sequence[Item]]) -> dict[Item, str | None]:
    """Every answer's category."""
    pairs = ((own, each.scores) for each, own in zip(runs, items, strict=True))
    return {item: row.get("category") for own, rows in pairs for item, row in zip(own, rows, strict=True)}


def _confident(scores: Sequence[Column], delta: float) -> dict[Item, bool]:
    """Whether each answer's discrepancy is at least the threshold."""
    found = next((column.values for column in scores if column.name == "probdiff"), {})
    return {item: d >= delta for item, d in found.items()}


def _answers(
    runs: Sequence[Finished], items: Sequence[Sequence[Item]], inputs: Mapping[str, Path]
) -> Iterator[tuple[Item, Comparison]]:
    """Every answer with its prompt, as a comparison's first response."""
    if "dialogues" not in inputs:
        return
    asked = {row["id"]: Dialogue.from_row(row) for row in read_rows(inputs["dialogues"], "dialogues")}
    for each, own in zip(runs, items, strict=True):
        rows = {str(row["dialogue_id"]): row for row in each.responses}
        dialogues = {d.id: d for d in answered_dialogues(list(asked.values()), each.responses)}
        for item, row in zip(own, each.scores, strict=True):
            if text := rows[row["id"]]["text"].strip():
                yield item, Comparison("/".join(map(str, item)), dialogues[row["id"]], text, "")


def _asked(
    answers: Iterator[tuple[Item, Comparison]], settings: CorrelateSettings, inputs: Mapping[str, Path], out: StageRun
) -> list[Column]:
    """What each rater of ``correlate.raters`` gives every answer; all of it is in ``ratings.jsonl``, too."""
    given = list(answers)
    columns = [_rated(Method.parse(text), given, settings, inputs, out) for text in settings.correlate.raters]
    rated = ({"rater": c.name, **item._asdict(), "value": value} for c in columns for item, value in c.values.items())
    if columns:
        out.write_rows("ratings", rated)
    return columns


def _rated(
    method: Method,
    answers: Sequence[tuple[Item, Comparison]],
    settings: CorrelateSettings,
    inputs: Mapping[str, Path],
    out: StageRun,
) -> Column:
    """One rater's ratings, as ``ratings-RATER`` shards; a rating that cannot be read is none."""
    name = f"ratings-{method.file_name}"
    with spending((settings.teacher, settings.external), settings.correlate, "correlate", out) as budget:
        models = Models(settings, inputs, out, budget)

        with loaded_once(lambda: models.judge(method)) as judge:

            def process(index: int, items: Sequence[tuple[Item, Comparison]]) -> ShardResult:
                replies = judge().rate([c for _, c in items], derive_seed(out.shard_seed(index), "ratings"))
                rows = [
                    {**item._asdict(), "value": reply.answer, "failure": reply.failure, "text": reply.text}
                    for (item, _), reply in zip(items, replies, strict=True)
                ]
                missing = Counter(reply.failure for reply in replies if reply.failure)
                return ShardResult(rows, len(rows), missing, **tokens_of(replies))

            gpus = models.gpus(method)
            out.sharded(name, answers, SHARD, process, "answers", judge, spread=budget is None, gpus=gpus)
    rows = [row for row in read_rows(out.directory, name) if row["value"] is not None]
    return Column(method.name, 1, {Item(*(row[f] for f in Item._fields)): float(row["value"]) for row in rows})


def _no_pair(ratings: Sequence[Column], scores: Sequence[Column]) -> str:
    """Why nothing can be correlated: an example of either side."""
    rated, scored = (next((next(iter(c.values)) for c in side if c.values), None) for side in (ratings, scores))
    return (
        f"no response has both a rating and a score: ratings are of such as {rated}, scores of such as {scored}; "
        "ids, benchmarks (the sources' names) and models have to be the same (correlate.models renames a model's path)"
    )
