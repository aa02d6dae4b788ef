"""The world as an engine: scripted response writers, the rule-based annotator and the referee.

The annotator is the quickstart's teacher, with a stated error rate. It knows what every sentence shows, but not which
properties decide: it finds all of them plausible for every kind of query, and lists them in a random order, the kind's
decoy most often first. It writes a sound or a sloppy scoring guideline, and errs in a stated share of its judgments,
half of the time in favour of the response that it sees first.
"""

import hashlib
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from judgetrain.data.config import WorldEngineConfig
from judgetrain.data.world.language import GRADE_SCORES, Language, sentence
from judgetrain.data.world.rule import BEST_QUALITY, World, load_world
from judgetrain.engines.base import Completion, Request, places, refuse_beginnings
from judgetrain.errors import EngineError

DECOY_WEIGHT = 4.0
"""The odds that the decoy is named next, beside any other property, whether that counts or not."""
SLOPPY_RATE = 0.3
"""Share of guidelines that name no evidence to look for."""
SLOPPY_ERRORS = 2.0
"""The rate of errors under a sloppy guideline, as a multiple of the rate under a sound one."""
ALL = (1, 2, 3, 4, 5)
"""All scores."""
SLOPPY_GUIDELINE = "5 if it reads well, 3 if it is fine, 1 if it is poor."


@dataclass(frozen=True)
class Annotator:
    """Writes criteria, guidelines and judgments.

    Args:
        language: of the world.
        error_rate: the share of judgments under sound guidelines that err.
        decoys: the property that is named most often, by kind of query. Without any, all are named equally often.
    """

    language: Language
    error_rate: float
    decoys: Mapping[str, str] = field(default_factory=dict)

    def criteria(self, query: str, count: int, rng: random.Random) -> str:
        """Return a numbered list of ``count`` properties, in a random order in which the decoy tends to stand first."""
        decoy = self.decoys.get(self.language.kind_of(query))

        # Sorted by random keys u ** (1 / weight): a weighted draw without replacement (Efraimidis and Spirakis 2006).
        def place(name: str) -> float:
            weight = DECOY_WEIGHT if name == decoy else 1.0
            return -(rng.random() ** (1.0 / weight))

        names = sorted(self.language.properties, key=place)
        return _numbered(rng.choice(self.language.properties[name].criteria) for name in names[:count])

    def rubric(self, pairs: Sequence[tuple[str, str]], earlier: Sequence[str], count: int) -> str:
        """Return a numbered list of the properties that better responses show more strongly than worse ones.

        Args:
            pairs: texts of the better and the worse response.
            earlier: the lines of an earlier list. Its properties lose their place only to those that speak for more of
                the pairs.
            count: the most properties to list.
        """
        votes = dict.fromkeys(self.language.properties, 0.0)
        for line in earlier:
            name = criterion_name(line.partition(". ")[2])
            if name in votes:
                # A head start, so that an earlier property gives way only to one that speaks for more of the pairs.
                votes[name] += len(pairs) / 3
        for better, worse in pairs:
            for name in votes:
                lead = self.language.grade(better, name) - self.language.grade(worse, name)
                if lead > 0:
                    votes[name] += 1
                elif lead < 0:
                    votes[name] -= 1
        # A property that speaks against the better responses is no criterion.
        names = [name for name in sorted(votes, key=lambda name: -votes[name]) if votes[name] > 0]
        return _numbered(self.language.properties[name].criteria[0] for name in names[:count])

    def guideline(self, criterion: str, rng: random.Random) -> str:
        """Return a scoring guideline for a criterion line; a share of :data:`SLOPPY_RATE` is sloppy."""
        if rng.random() < SLOPPY_RATE:
            return SLOPPY_GUIDELINE
        return self.sound_guideline(criterion)

    def sound_guideline(self, criterion: str) -> str:
        """Return a guideline that names the evidence for each score."""
        absent, weak, strong = self.language.properties[criterion_name(criterion)].grades
        return f"5 if it {strong}, 3 if it {weak}, 1 if it {absent}."

    def judgment(self, criterion: str, guideline: str, first: str, second: str, rng: random.Random) -> str:
        """Return scores and analyses of two responses as shown, by a criterion."""
        name = criterion_name(criterion)
        grades = [self.language.grade(response, name) for response in (first, second)]
        scores = self.scores(grades, (first, second))
        if self._errs(guideline, rng):
            # Half of the errors favour the first response, the others are arbitrary.
            if rng.random() < 0.5:
                scores = [min(5, scores[0] + 2), max(1, scores[1] - 2)]
            else:
                scores = [rng.choice(ALL) for _ in scores]
            # The analysis says what the wrong score says: an error is consistent, as a person's is.
            grades = [_grade_of(score) for score in scores]
        return self.write_judgment(name, grades, scores)

    def scores(self, grades: list[int], responses: tuple[str, ...]) -> list[int]:
        """Return the scores of a judgment that does not err; only another annotator looks at the ``responses``."""
        return [GRADE_SCORES[grade] for grade in grades]

    def score(self, criterion: str, guideline: str, response: str, rng: random.Random) -> str:
        """Return the score and the analysis of one response, by a criterion; no response is shown first."""
        name = criterion_name(criterion)
        grade = self.language.grade(response, name)
        (score,) = self.scores([grade], (response,))
        if self._errs(guideline, rng):
            score = rng.choice(ALL)
            grade = _grade_of(score)
        return f"Score: {score}\nAnalysis: it {self.language.properties[name].grades[grade]}."

    def write_judgment(self, name: str, grades: list[int], scores: list[int]) -> str:
        """Return the text of a judgment: a score and an analysis for each response, and which is better.

        Args:
            name: the property.
            grades: by which the words of the two analyses are chosen.
            scores: of the two responses.
        """
        words_a, words_b = (self.language.properties[name].grades[grade] for grade in grades)
        score_a, score_b = scores
        if score_a == score_b:
            comparison = "both are equal"
        elif score_a > score_b:
            comparison = "A is better"
        else:
            comparison = "B is better"
        return (
            f"Response A Score: {score_a}\nAnalysis of Response A: it {words_a}.\n"
            f"Response B Score: {score_b}\nAnalysis of Response B: it {words_b}.\nComparison: {comparison}."
        )

    def _errs(self, guideline: str, rng: random.Random) -> bool:
        """Return whether a judgment under a guideline errs, by chance."""
        rate = self.error_rate
        if guideline == SLOPPY_GUIDELINE:
            rate *= SLOPPY_ERRORS
        return rng.random() < rate


def _numbered(lines: Iterable[str]) -> str:
    """Return lines with their numbers before them."""
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, start=1))


def _grade_of(score: int) -> int:
    """Return the grade whose words go with a score, 1 to 5; 2, 3 and 4 go with the middle grade."""
    return {1: 0, 2: 1, 3: 1, 4: 1, 5: 2}[score]


def criterion_name(criterion: str) -> str:
    """Return the property that a criterion line names: the words before its colon."""
    return criterion.split(":", 1)[0].strip().lower()


@dataclass(frozen=True)
class Referee:
    """Judges and corrects in the quickstart, in the place of a strong model behind an endpoint.

    Unlike the annotator it knows the hidden rule. It errs in ``error_rate`` of its answers, half of the time in favour
    of what it sees first. That a strong model is right this often about real text is an assumption.
    """

    world: World
    error_rate: float

    def pairwise(self, query: str, first: str, second: str, rng: random.Random) -> str:
        """Return a verdict on two responses, by the hidden rule."""
        verdict = self.world.verdict(query, first, second)
        right = {"A": "A", "B": "B", "tie": "C"}[verdict]
        mark = self._slip("ABC", rng) or right
        return f"What counts most here is {self.world.deciding_for(query).primary}. [[{mark}]]"

    def pointwise(self, query: str, response: str, lowest: int, highest: int, rng: random.Random) -> str:
        """Return a response's score by the hidden rule, a whole number from ``lowest`` to ``highest``."""
        share = self.world.quality(query, response) / BEST_QUALITY
        if rng.random() < self.error_rate:
            # A slip gives any score, as nothing is shown first here.
            share = rng.random()
        return f"[[{lowest + round(share * (highest - lowest))}]]"

    def preference(
        self, criterion: str, responses: tuple[str, str], critiques: tuple[str, str], rng: random.Random
    ) -> str:
        """Return the critique that says more of what the responses show: X or Y; of equal ones, either by chance.

        Args:
            criterion: the criterion's line.
            responses: the texts of A and B.
            critiques: the texts of X and Y.
            rng: the source of chance.

        Raises:
            KeyError: no property has the criterion's name.
        """
        name = criterion_name(criterion)
        words = self.world.language.properties[name].grades
        facts = []
        for side, response in zip("AB", responses, strict=True):
            grade = self.world.language.grade(response, name)
            facts.append(f"Response {side}: it {words[grade]}.")
            facts.append(f"Response {side} Score: {GRADE_SCORES[grade]}\n")
        # A critique is the sounder, the more of the true grades and scores it states word for word.
        facts_in_x, facts_in_y = (sum(fact in critique for fact in facts) for critique in critiques)
        mark = self._slip("XY", rng)
        # A tie is no choice here: a preference trains on one of the two.
        if mark is None and facts_in_x == facts_in_y:
            mark = rng.choice("XY")
        elif mark is None:
            mark = "X" if facts_in_x > facts_in_y else "Y"
        return f"[[{mark}]]"

    def correction(self, response: str, judgment: str, skill: float, rng: random.Random) -> str:
        """Return a response with a sentence for each property that a judgment finds missing or weak.

        A sentence is added with chance ``skill``. A property that the judgment does not name stays as it is.
        """
        language = self.world.language
        sentences = [response]
        for shown in language.properties.values():
            absent, weak, _ = shown.grades
            is_lacking = absent in judgment or weak in judgment
            if is_lacking and rng.random() < skill:
                # What is corrected may be trained on, so that it says nothing in held-out sentences.
                sentences.append(sentence(language, shown.name, 2, rng, "training"))
        return " ".join(sentences)

    def _slip(self, marks: str, rng: random.Random) -> str | None:
        """Return a mark regardless of what is right in a share of :attr:`error_rate`, else None.

        Half of these marks are the first, the others any of them.
        """
        if rng.random() >= self.error_rate:
            return None
        return marks[0] if rng.random() < 0.5 else rng.choice(marks)


class WorldEngine:
    """Answers requests by the world's own rules, without a model. Token counts are words.

    Step ``response`` writes a response with ``config.skill``; ``criteria``, ``rubric``, ``guideline``, ``judgment`` and
    ``score`` are the annotator's, which errs in ``config.error_rate`` of its judgments; ``pairwise``, ``pointwise``,
    ``preference`` and ``correction`` are the referee's, which errs as often, and corrects with ``config.skill``.

    Args:
        config: the rule, the error rate and the skill.
        world: in the place of the world of the configured rule.
    """

    continues = False

    def __init__(self, config: WorldEngineConfig, world: World | None = None) -> None:
        self.name = config.name or "world"
        self._world = world or load_world(config.rule or 0)
        decoys = {kind: deciding.decoy for kind, deciding in self._world.deciding.items()}
        self._annotator = Annotator(self._world.language, config.error_rate, decoys)
        self._referee = Referee(self._world, config.error_rate)
        self._skill = config.skill

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """Return a completion for each request; it depends on the seed, the request's place and its slots alone."""
        refuse_beginnings(requests, self.name)
        completions = []
        for request, place in zip(requests, places(requests), strict=True):
            completions.append(self._complete(request, seed, place))
        return completions

    def close(self) -> None:
        """Free nothing; there is no model."""

    def _complete(self, request: Request, seed: int, place: int) -> Completion:
        """Return the completion of a request; ``place`` is its number among equal ones."""
        # Neither the batch nor the order of requests counts, so that a resumed shard gets the same answers.
        digest = hashlib.sha256(f"{seed} {place} {request.step} {sorted(request.slots.items())}".encode()).digest()
        rng = random.Random(digest)
        try:
            text = self._text(request, rng)
        # A request about text that the world did not write is an answer that failed, as of any model.
        except KeyError as error:
            return Completion(finish_reason="error", error=f"the world does not know {error}")
        prompt = " ".join(message["content"] for message in request.messages)
        return Completion(
            text=text, prompt_tokens=len(prompt.split()), generated_tokens=len(text.split()), finish_reason="stop"
        )

    def _text(self, request: Request, rng: random.Random) -> str:
        """Return the text of a completion, by the request's step and its slots."""
        slots = request.slots
        match request.step:
            case "response":
                return self._world.respond(slots["query"], self._skill, rng)
            case "criteria":
                return self._annotator.criteria(slots["query"], int(slots["count"]), rng)
            case "rubric":
                pairs = json.loads(slots["shown"])
                return self._annotator.rubric(pairs, slots["criteria"].splitlines(), int(slots["count"]))
            case "guideline":
                return self._annotator.guideline(slots["criterion"], rng)
            case "judgment":
                return self._annotator.judgment(
                    slots["criterion"], slots["guideline"], slots["response_a"], slots["response_b"], rng
                )
            case "score":
                return self._annotator.score(slots["criterion"], slots["guideline"], slots["response"], rng)
            case "pairwise":
                return self._referee.pairwise(slots["query"], slots["response_a"], slots["response_b"], rng)
            case "pointwise":
                return self._referee.pointwise(
                    slots["query"], slots["response"], int(slots["lowest"]), int(slots["highest"]), rng
                )
            case "preference":
                responses = (slots["response_a"], slots["response_b"])
                critiques = (slots["judgment_x"], slots["judgment_y"])
                return self._referee.preference(slots["criterion"], responses, critiques, rng)
            case "correction":
                return self._referee.correction(slots["response"], slots["judgment"], self._skill, rng)
        raise EngineError(f"the world's engine cannot do step {request.step!r}; choose another engine type")
