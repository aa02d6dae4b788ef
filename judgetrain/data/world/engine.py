"""The world as an engine: scripted response writers, the rule-based annotator and the referee.

The annotator is the quickstart's teacher, with a stated error rate. It knows what every sentence shows, but not which
properties decide: it finds all of them plausible for every kind of query, and lists them in a random order, the kind's
decoy most often first. It writes a sound or a sloppy scoring guideline, and errs in a stated share of its judgments,
half of the time in favour of the response that it sees first.
"""

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from judgetrain.data.config import WorldEngineConfig
from judgetrain.data.world.language import GRADE_SCORES, Language, sentence
from judgetrain.data.world.rule import BEST_QUALITY, World, load_world
from judgetrain.engines.base import Completion, Request, places
from judgetrain.errors import EngineError

DECOY_WEIGHT = 4.0
"""How much likelier the decoy is to be named next than any other property, whether that counts or not."""
SLOPPY_RATE = 0.3
"""Share of guidelines that name no evidence to look for."""
SLOPPY_ERRORS = 2.0
"""By how much judgments under a sloppy guideline err more often."""
ALL = (1, 2, 3, 4, 5)
SLOPPY_GUIDELINE = "5 if it reads well, 3 if it is fine, 1 if it is poor."


@dataclass(frozen=True)
class Annotator:
    """Writes criteria, guidelines and judgments; ``error_rate`` is the share of judgments that err.

    ``decoys``: by kind of query, the property that is thought of first; without it all are thought of alike.
    """

    language: Language
    error_rate: float
    decoys: Mapping[str, str] = field(default_factory=dict)

    def criteria(self, query: str, count: int, rng: random.Random) -> str:
        """Return a numbered list of ``count`` properties, in a random order in which the decoy tends to stand first."""
        decoy = self.decoys.get(self.language.kind_of(query))

        def place(name: str) -> float:
            weight = DECOY_WEIGHT if name == decoy else 1.0
            return -(rng.random() ** (1.0 / weight))

        names = sorted(self.language.properties, key=place)
        lines = (rng.choice(self.language.properties[name].criteria) for name in names[:count])
        return "\n".join(f"{i}. {line}" for i, line in enumerate(lines, start=1))

    def rubric(self, pairs: Sequence[tuple[str, str]], known: Sequence[str], count: int) -> str:
        """The properties that the better responses of pairs (better, worse) show most often more strongly.

        A property of the ``known`` list loses its place only to one that speaks for more of the pairs.
        """
        votes = dict.fromkeys(self.language.properties, 0.0)
        for name in (criterion_name(line.partition(". ")[2]) for line in known):
            if name in votes:
                votes[name] += len(pairs) / 3
        for better, worse in pairs:
            for name in votes:
                above = self.language.grade(better, name) - self.language.grade(worse, name)
                votes[name] += (above > 0) - (above < 0)
        names = [name for name in sorted(votes, key=lambda name: -votes[name]) if votes[name] > 0]
        lines = (self.language.properties[name].criteria[0] for name in names[:count])
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
    return min(2, (score - 1) // 2 + (score == 2))


def criterion_name(criterion: str) -> str:
    """The property that a criterion line names (the words before its colon)."""
    return criterion.split(":", 1)[0].strip().lower()


@dataclass(frozen=True)
class Referee:
    """The quickstart's external judge and corrector, in the place of a strong model behind an endpoint.

    Unlike the annotator it knows the hidden rule. It errs in ``error_rate`` of its answers, half of the time in favour
    of what it sees first. That a strong model is right this often about real text is an assumption.
    """

    world: World
    error_rate: float

    def pairwise(self, query: str, first: str, second: str, rng: random.Random) -> str:
        """Say which of two responses is better, by the hidden rule."""
        verdict = self.world.verdict(query, first, second)
        right = {"A": "A", "B": "B", "tie": "C"}[verdict]
        mark = self._slip("ABC", rng) or right
        return f"What counts most here is {self.world.deciding_for(query).primary}. [[{mark}]]"

    def pointwise(self, query: str, response: str, lowest: int, highest: int, rng: random.Random) -> str:
        """How good a response is, by the hidden rule, on a scale of whole numbers."""
        share = self.world.quality(query, response) / BEST_QUALITY
        if rng.random() < self.error_rate:
            share = rng.random()
        return f"[[{lowest + round(share * (highest - lowest))}]]"

    def preference(
        self, criterion: str, responses: tuple[str, str], critiques: tuple[str, str], rng: random.Random
    ) -> str:
        """Which of two critiques says what the responses show, or chance (KeyError: no such criterion)."""
        name = criterion_name(criterion)
        words = self.world.language.properties[name].grades
        grades = [
            (side, self.world.language.grade(response, name)) for side, response in zip("AB", responses, strict=True)
        ]
        findings = [f"Response {side}: it {words[grade]}." for side, grade in grades]
        findings += [f"Response {side} Score: {GRADE_SCORES[grade]}\n" for side, grade in grades]
        x, y = (sum(finding in critique for finding in findings) for critique in critiques)
        mark = self._slip("XY", rng) or ("X" if x > y else "Y" if y > x else rng.choice("XY"))
        return f"[[{mark}]]"

    def correction(self, response: str, judgment: str, skill: float, rng: random.Random) -> str:
        """The response with a sentence for each property that the judgment finds missing or weak.

        Each is written strongly with chance ``skill``, else left out; what the judgment does not name stays as it is.
        """
        lacking = [
            p for p in self.world.language.properties.values() if any(words in judgment for words in p.grades[:2])
        ]
        added = [sentence(self.world.language, p.name, 2, rng) for p in lacking if rng.random() < skill]
        return " ".join([response, *added])

    def _slip(self, marks: str, rng: random.Random) -> str | None:
        """A wrong answer in a share of :attr:`error_rate`: half the first mark, half any of them."""
        if rng.random() >= self.error_rate:
            return None
        return marks[0] if rng.random() < 0.5 else rng.choice(marks)


class WorldEngine:
    """Answers with the world's own rules; no model. Token counts are words.

    Step ``response`` writes a response with ``config.skill``; ``criteria``, ``rubric``, ``guideline``, ``judgment`` and
    ``score`` are the annotator's, which errs in ``config.error_rate`` of its judgments; ``pairwise``, ``pointwise``,
    ``preference`` and ``correction`` are the referee's, which errs as often, and corrects with ``config.skill``.
    """

    def __init__(self, config: WorldEngineConfig, world: World | None = None) -> None:
        """Serve the world of the configured rule, or another one."""
        self.name = config.name or "world"
        self._world = world or load_world(config.rule or 0)
        decoys = {kind: deciding.decoy for kind, deciding in self._world.deciding.items()}
        self._annotator = Annotator(self._world.language, config.error_rate, decoys)
        self._referee = Referee(self._world, config.error_rate)
        self._skill = config.skill

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """One completion per request; each depends on the seed, its place and its slots only."""
        return [self._complete(r, seed, place) for r, place in zip(requests, places(requests), strict=True)]

    def close(self) -> None:
        """Nothing to free."""

    def _complete(self, request: Request, seed: int, place: int) -> Completion:
        digest = hashlib.sha256(f"{seed} {place} {request.step} {sorted(request.slots.items())}".encode()).digest()
        rng = random.Random(digest)
        try:
            text = self._text(request, rng)
        except KeyError as error:
            return Completion(finish_reason="error", error=f"the world does not know {error}")
        prompt = " ".join(m["content"] for m in request.messages)
        return Completion(
            text=text, prompt_tokens=len(prompt.split()), generated_tokens=len(text.split()), finish_reason="stop"
        )

    def _text(self, request: Request, rng: random.Random) -> str:
        slot, annotator, referee = request.slots, self._annotator, self._referee
        match request.step:
            case "response":
                return self._world.respond(slot["query"], self._skill, rng)
            case "criteria":
                return annotator.criteria(slot["query"], int(slot["count"]), rng)
            case "rubric":
                return annotator.rubric(json.loads(slot["shown"]), slot["criteria"].splitlines(), int(slot["count"]))
            case "guideline":
                return annotator.guideline(slot["criterion"], rng)
            case "judgment":
                shown = slot["response_a"], slot["response_b"]
                return annotator.judgment(slot["criterion"], slot["guideline"], *shown, rng)
            case "score":
                return annotator.score(slot["criterion"], slot["guideline"], slot["response"], rng)
            case "pairwise":
                return referee.pairwise(slot["query"], slot["response_a"], slot["response_b"], rng)
            case "pointwise":
                scale = int(slot["lowest"]), int(slot["highest"])
                return referee.pointwise(slot["query"], slot["response"], *scale, rng)
            case "preference":
                shown, critiques = (slot["response_a"], slot["response_b"]), (slot["judgment_x"], slot["judgment_y"])
                return referee.preference(slot["criterion"], shown, critiques, rng)
            case "correction":
                return referee.correction(slot["response"], slot["judgment"], self._skill, rng)
        raise EngineError(f"the world's engine cannot do step {request.step!r}; choose another engine type")
