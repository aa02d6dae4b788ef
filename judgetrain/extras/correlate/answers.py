"""Read the answers that finished runs of stage selfeval gave, and the scores that the runs gave them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from judgetrain.artifacts.shards import read_rows
from judgetrain.evaluate.report.naming import distinct_names
from judgetrain.extras.correlate.report import Row
from judgetrain.extras.selfeval.stages import finished_settings, model_of


class Answer(NamedTuple):
    """One response, by benchmark, model, prompt and turn (from 1)."""

    benchmark: str
    model: str
    id: str
    turn: int


Answers = Mapping[Answer, Mapping[Answer, str]]
"""The runs' responses. The outer key has the model's own name, the inner ones the names of the runs that gave it; the
value is the response's text."""


@dataclass
class RaterColumn:
    """Numbers of responses by one rater or score.

    Args:
        name: of the rater or score.
        better: 1 where more of it is better, else -1.
        values: by response.
        elsewhere: rows of a file that are about a response that no run gave.
        stand_ins: responses with -1, which stood for none.
    """

    name: str
    better: int
    values: dict[Answer, float] = field(default_factory=dict)
    elsewhere: int = 0
    stand_ins: int = 0


@dataclass(frozen=True)
class SelfevalRun:
    """A finished stage selfeval.

    Args:
        model: its model.
        responses: its rows of answers.
        scores: its rows of scores by answer. The answer's ``model`` is the run's name: several runs of one model are
            told apart by the settings that differ.
        better: by score, 1 where more of it is better, else -1.
    """

    model: str
    responses: Sequence[Row]
    scores: Mapping[Answer, Row]
    better: Mapping[str, int]


def read_runs(directories: Sequence[Path], model_names: Mapping[str, str]) -> list[SelfevalRun]:
    """Return finished stages selfeval, whatever their scores.

    Args:
        directories: of the stages.
        model_names: names of models by their paths; others are called by their paths.

    Raises:
        DataError: a directory holds no finished stage.
    """
    # A directory that holds no finished stage is refused here, before any of its rows is looked for.
    settings = [finished_settings(directory) for directory in directories]
    models = []
    for path in map(model_of, settings):
        models.append(model_names.get(path, path))
    runs = []
    for directory, model, name in zip(directories, models, distinct_names(models, settings), strict=True):
        metrics = json.loads((directory / "metrics.json").read_text(encoding="utf-8"))
        # One row an answer, so that ids and rows go together by place.
        scores = list(read_rows(directory, "scores"))
        answers = _answers([str(row["id"]) for row in scores], name)
        run = SelfevalRun(
            model=model,
            responses=list(read_rows(directory, "responses")),
            scores=dict(zip(answers, scores, strict=True)),
            better={row["method"]: row["better"] for row in metrics},
        )
        runs.append(run)
    return runs


def _answers(ids: Sequence[str], run: str) -> Iterator[Answer]:
    """Yield what the ids of a run's rows stand for, in their order.

    The earlier answers of a conversation have ids that end in ``#`` and their number; the last one has none.
    """
    all_ids = set(ids)
    # By a conversation's id, how many turns stand before its last answer: "mt:81#1" and "mt:81" are turns 1 and 2 of
    # "mt:81".
    earlier_turns: dict[str, int] = {}
    for identifier in ids:
        # From the right, so that a "#" of the source's own stays in the conversation's id.
        conversation, mark, number = identifier.rpartition("#")
        # A source's own ids may hold a "#"; then there is no conversation of the id before it.
        if mark and conversation in all_ids and number.isdecimal():
            earlier_turns[conversation] = max(earlier_turns.get(conversation, 0), int(number))
    for identifier in ids:
        # The second pass knows all conversations: an earlier turn's row may stand before the last one's.
        conversation, _, number = identifier.rpartition("#")
        prompt = identifier
        turn = 1 + earlier_turns.get(identifier, 0)
        if conversation in earlier_turns:
            prompt = conversation
            if number.isdecimal():
                turn = int(number)
        # Rows of stage dialogues have their source's name before their own id; files of ratings have the id alone.
        benchmark, _, local_id = prompt.partition(":")
        yield Answer(benchmark, run, local_id, turn)


def scores_of(runs: Sequence[SelfevalRun]) -> list[RaterColumn]:
    """Return every score of the runs; answers that could not be scored are not among a score's values."""
    columns: dict[str, RaterColumn] = {}
    for run in runs:
        for name, better in run.better.items():
            # One column for all runs: which model an answer is of stands in the answer.
            column = columns.setdefault(name, RaterColumn(name, better))
            for answer, row in run.scores.items():
                value = row["scores"][name]
                # A text is the reason why there is no score.
                if not isinstance(value, str):
                    column.values[answer] = float(value)
    return list(columns.values())


def answers_of(runs: Sequence[SelfevalRun]) -> dict[Answer, dict[Answer, str]]:
    """Return every answer that is not empty; see :data:`Answers`."""
    answers: dict[Answer, dict[Answer, str]] = {}
    for run in runs:
        for answer, row in run.scores.items():
            text = row["response"].strip()
            if text:
                # A file of ratings names the model, not the run, so that the outer key is what its rows can be found
                # by.
                answers.setdefault(answer._replace(model=run.model), {})[answer] = text
    return answers
