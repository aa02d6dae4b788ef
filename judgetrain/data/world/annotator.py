"""The rule-based annotator: the quickstart's teacher, with a stated error rate.

It knows what every sentence shows, but not which properties decide: it lists the crucial criteria among
distractors in a random order, most often a distractor (the kind's decoy) first, writes a sound or a sloppy scoring
guideline, and errs in a stated share of its judgments, half of the time in favour of the response that it sees first.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from judgetrain.data.world.language import GRADE_SCORES, Language

DECOY_WEIGHT = 4.0
"""How much likelier the decoy is to be named next than any other plausible criterion, crucial or not."""
SLOPPY_RATE = 0.3
"""Share of guidelines that name no evidence to look for."""
SLOPPY_ERRORS = 2.0
"""By how much judgments under a sloppy guideline err more often."""
ALL = (1, 2, 3, 4, 5)
SLOPPY_GUIDELINE = "5 if it reads well, 3 if it is fine, 1 if it is poor."


@dataclass(frozen=True)
class Annotator:
    """Writes criteria, guidelines and judgments; ``error_rate`` is the share of judgments that err."""

    language: Language
    error_rate: float

    def criteria(self, query: str, count: int, rng: random.Random) -> str:
        """A numbered list of ``count`` plausible criteria for the query, the decoy earlier than the others."""
        kind = self.language.kinds[self.language.kind_of(query)]
        weights = {name: DECOY_WEIGHT if name == kind.decoy else 1.0 for name in self.language.plausible(kind.name)}
        names = sorted(weights, key=lambda name: -(rng.random() ** (1.0 / weights[name])))
        lines = (rng.choice(self.language.properties[name].criteria) for name in names[:count])
        return "\n".join(f"{i}. {line}" for i, line in enumerate(lines, start=1))

    def guideline(self, criterion: str, rng: random.Random) -> str:
        """A scoring guideline for a criterion line, sloppy in a share of :data:`SLOPPY_RATE`."""
        return SLOPPY_GUIDELINE if rng.random() < SLOPPY_RATE else self.sound_guideline(criterion)

    def sound_guideline(self, criterion: str) -> str:
        """A guideline that says what to look for."""
        absent, weak, strong = self.language.properties[criterion_name(criterion)].grades
        return f"5 if it {strong}, 3 if it {weak}, 1 if it {absent}."

    def judgment(self, criterion: str, guideline: str, first: str, second: str, rng: random.Random) -> str:
        """Scores and analyses of two responses as shown, by the criterion."""
        name = criterion_name(criterion)
        grades = [self.language.grade(response, name) for response in (first, second)]
        scores = self.scores(grades, (first, second))
        if self._errs(guideline, rng):  # half of such scores favour the first response, half are arbitrary
            favoured = rng.random() < 0.5
            scores = [min(5, scores[0] + 2), max(1, scores[1] - 2)] if favoured else [rng.choice(ALL) for _ in scores]
            grades = list(map(_grade_of, scores))
        return self.write_judgment(name, grades, scores)

    def scores(self, grades: list[int], responses: tuple[str, ...]) -> list[int]:
        """What a judgment that does not err gives to the responses as shown."""
        return [GRADE_SCORES[grade] for grade in grades]

    def score(self, criterion: str, guideline: str, response: str, rng: random.Random) -> str:
        """The score and the analysis of one response, by the criterion; nothing says which is shown first."""
        name = criterion_name(criterion)
        grade = self.language.grade(response, name)
        (score,) = self.scores([grade], (response,))
        if self._errs(guideline, rng):
            score = rng.choice(ALL)
            grade = _grade_of(score)
        return f"Score: {score}\nAnalysis: it {self.language.properties[name].grades[grade]}."

    def write_judgment(self, name: str, grades: list[int], scores: list[int]) -> str:
        """The text of a judgment: a score and an analysis for each response, with words that fit, and a comparison."""
        a, b = (self.language.properties[name].grades[grade] for grade in grades)
        said = "both are equal" if scores[0] == scores[1] else f"{'A' if scores[0] > scores[1] else 'B'} is better"
        return (
            f"Response A Score: {scores[0]}\nAnalysis of Response A: it {a}.\n"
            f"Response B Score: {scores[1]}\nAnalysis of Response B: it {b}.\nComparison: {said}."
        )

    def _errs(self, guideline: str, rng: random.Random) -> bool:
        return rng.random() < self.error_rate * (SLOPPY_ERRORS if guideline == SLOPPY_GUIDELINE else 1.0)


def _grade_of(score: int) -> int:
    """The grade whose words fit a score."""
    return min(2, (score - 1) // 2 + (score == 2))


def criterion_name(criterion: str) -> str:
    """The property that a criterion line names (the words before its colon)."""
    return criterion.split(":", 1)[0].strip().lower()
