"""The quickstart's external judge and corrector, in the place of a strong model behind an endpoint.

Unlike the annotator it knows the hidden rule: what decides for each kind of query. It errs in a stated share of its
answers, half of the time in favour of what it sees first. That a strong model is right this often about real text is
an assumption; here it stands in so that everything around it runs without a network.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from judgetrain.data.world.annotator import criterion_name
from judgetrain.data.world.language import GRADE_SCORES, Language
from judgetrain.data.world.writers import sentence

BEST_QUALITY = 6
"""The highest quality by the hidden rule: both crucial properties shown strongly."""


@dataclass(frozen=True)
class Referee:
    """Compares, rates, prefers and corrects; ``error_rate`` is the share of answers that err."""

    language: Language
    error_rate: float

    def one_step(self, query: str, first: str, second: str, rng: random.Random) -> str:
        """Which of two responses is better, by the hidden rule."""
        a, b = (self.language.quality(query, response) for response in (first, second))
        mark = self._slip("ABC", rng) or ("C" if a == b else "A" if a > b else "B")
        crucial = self.language.kinds[self.language.kind_of(query)].primary
        return f"What counts most here is {crucial}. [[{mark}]]"

    def rating(self, query: str, response: str, lowest: int, highest: int, rng: random.Random) -> str:
        """How good a response is, by the hidden rule, on a scale of whole numbers."""
        share = self.language.quality(query, response) / BEST_QUALITY
        if rng.random() < self.error_rate:
            share = rng.random()
        return f"[[{lowest + round(share * (highest - lowest))}]]"

    def preference(
        self, criterion: str, responses: tuple[str, str], critiques: tuple[str, str], rng: random.Random
    ) -> str:
        """Which of two critiques says what the responses show; by chance where neither is closer to it.

        Raises:
            KeyError: the world has no such criterion.
        """
        name = criterion_name(criterion)
        words = self.language.properties[name].grades
        grades = [self.language.grade(response, name) for response in responses]
        findings = [f"Response {side}: it {words[grade]}." for side, grade in zip("AB", grades, strict=True)]
        findings += [
            f"Response {side} Score: {GRADE_SCORES[grade]}\n" for side, grade in zip("AB", grades, strict=True)
        ]
        x, y = (sum(finding in critique for finding in findings) for critique in critiques)
        mark = self._slip("XY", rng) or ("X" if x > y else "Y" if y > x else rng.choice("XY"))
        return f"[[{mark}]]"

    def correction(self, response: str, judgment: str, skill: float, rng: random.Random) -> str:
        """The response with a sentence for each property that the judgment finds missing or weak.

        Each is written strongly with chance ``skill``, else left out; what the judgment does not name stays as it is.
        """
        lacking = [p for p in self.language.properties.values() if any(words in judgment for words in p.grades[:2])]
        added = [sentence(self.language, p.name, 2, rng) for p in lacking if rng.random() < skill]
        return " ".join([response, *added])

    def _slip(self, marks: str, rng: random.Random) -> str | None:
        """A wrong answer in a share of :attr:`error_rate`: half the first mark, half any of them."""
        if rng.random() >= self.error_rate:
            return None
        return marks[0] if rng.random() < 0.5 else rng.choice(marks)
