"""Models' answers judged against each other, beside their confidence (ProbDiff paper, section 5.1, figure 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from judgetrain.artifacts.stage_run import StageRun
from judgetrain.extras.probdiff_studies.conflicts import OF_REVISION, Verdicts, asked
from judgetrain.extras.probdiff_studies.models import groups_of
from judgetrain.extras.probdiff_studies.stages import StudiesSettings
from judgetrain.judges.method import Method
from judgetrain.schema import Comparison, Dialogue
from judgetrain.scorers.discrepancy import DELTA, confidence
from judgetrain.scorers.finished import SelfEvaluated


@dataclass(frozen=True, kw_only=True)
class Duel:
    """How often the first model's answers win against the second's in a group of prompts, as a judge sees it.

    Shares of the ``n`` prompts with a verdict, in both orders the same; ``without``: those that have none. The two
    confidences are over all prompts of the group.
    """

    first: str
    second: str
    group: str
    n: int
    without: int
    win: float | None
    tie: float | None
    lose: float | None
    confidence: float | None
    other_confidence: float | None


def won(
    models: Mapping[str, SelfEvaluated],
    dialogues: Mapping[str, Dialogue],
    settings: StudiesSettings,
    inputs: Mapping[str, Path],
    out: StageRun,
) -> list[Duel]:
    """The run's own model against every other, by group of prompts, as ``duels`` shards.

    Answers that are the same are a tie and not asked about.
    """
    method = Method.parse(settings.studies.duels)
    (name, own), *others = models.items()
    result = []
    for number, (other, theirs) in enumerate(others):
        answers = {i: (text.strip(), theirs.answers[i].strip()) for i, text in own.answers.items()}
        pairs = [Comparison(i, dialogues[i], a, b, name, other) for i, (a, b) in answers.items() if a and b and a != b]
        verdicts: dict[str, int | None] = {i: 0 for i, (a, b) in answers.items() if a and a == b}
        verdicts |= asked(method, f"duels-{number}-{method.file_name}", pairs, settings, inputs, out)
        for group, ids in groups_of(own.d, own.categories).items():
            result.append(_duel(name, other, group, own, theirs, ids, verdicts, DELTA))
    return result


def _duel(
    name: str,
    other: str,
    group: str,
    own: SelfEvaluated,
    theirs: SelfEvaluated,
    ids: Sequence[str],
    verdicts: Verdicts,
    delta: float,
) -> Duel:
    given = [v for i in ids if (v := verdicts.get(i)) is not None]
    win, tie, lose = (given.count(OF_REVISION[side]) / len(given) if given else None for side in ("A", "tie", "B"))
    return Duel(
        first=name,
        second=other,
        group=group,
        n=len(given),
        without=len(ids) - len(given),
        win=win,
        tie=tie,
        lose=lose,
        confidence=confidence([own.d[i] for i in ids], delta),
        other_confidence=confidence([theirs.d[i] for i in ids], delta),
    )
