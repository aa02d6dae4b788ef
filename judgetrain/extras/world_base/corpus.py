"""Text for pretraining the shipped base: what a base model would have read about this world, and no rule.

Dialogues, descriptions of responses, reviews of pairs and of single responses on named criteria, lists of criteria and
guidelines. What decides is drawn anew for every text, so that no property stands out for any kind of query: the base
can read and write, and knows nothing of what counts. A test counts that over 20,000 texts.

In the first phase ratings are terse; later most are written out in a judge's words, which any pretrained model has met,
and reviewers err. In the last phase responses that are read are of every length and layout, as answers are that people
and models give: a base that has read none of under twenty words copies a judgment's content from the other response.
"""

import random

from judgetrain.data.responses import sentences as split_sentences
from judgetrain.data.world.engine import SLOPPY_GUIDELINE, Annotator
from judgetrain.data.world.language import GRADE_SCORES, Language, sentence, small_talk
from judgetrain.data.world.rule import draw_grades, write

WEIGHTS = (5, 20, 30, 30, 10, 5)
"""How often texts are dialogues, descriptions, reviews on many criteria and on one, lists, guidelines."""

WEIGHTS_LAST = (20, 5, 10, 50, 20, 5)
"""The same in the last phase. Without its dialogues the base forgets how to answer queries."""

REVIEWERS_ERR = 0.15
"""Error rate of the reviewers who err. A base that has met errors is as sure as it should be; one that has met none is
shaken by every error of the teacher's."""

SHAPES = {"usual": 50, "long": 8, "short": 17, "bare": 25}
"""How often responses of any shape are as the world's writers write, longer, one or two sentences, and without
content."""

LISTED = 0.15
"""Share of responses of any shape whose sentences stand on lines of their own, after a mark or a number."""

NO_WORDS = ("", "", ".", ":", ":", ":", "...", "?", "-", "ok", "yes", "no", "n/a")
"""Answers without a sentence; marks and words that the tokenizer does not know are one to it. The colon is one that it
knows, from the only sentence that has it."""

ON_SHOWN = 0.6
"""Share of reviews on one criterion that are on something that one of the responses shows."""

ON_SHOWN_LAST = 0.4
"""The same in the last phase: what an answer without content lacks is not only what the other one shows."""

ALONE = 0.35
"""Share of reviews on one criterion that read one response alone, where reviewers err."""

WHOLE_LIST = 0.75
"""Share of lists that name every property; the others name some of them."""

Exchange = tuple[str, str]
"""What a user asks and what the text answers."""


class Reviewer(Annotator):
    """Scores an answer that shows no property at all below one that shows some, by any criterion."""

    def scores(self, grades: list[int], responses: tuple[str, ...]) -> list[int]:
        """Return the annotator's scores, but for answers that show nothing, not even weakly."""
        scores = super().scores(grades, responses)
        names = self.language.properties
        bare = [not any(self.language.grade(response, name) for name in names) for response in responses]
        if scores != [1, 1] or not any(bare):
            return scores
        return [1 if shows_nothing else 2 for shows_nothing in bare]


class Corpus:
    """An endless, seeded stream of texts over the given queries.

    Args:
        language: what can be said.
        queries: those that texts are about.
        worded: share of the reviews on one criterion that are written out in a judge's words.
        errors: whether the reviewers who write them err now and then, as the annotator does.
        shapes: whether responses that are read are of every length and layout; reviewers then score one that says
            nothing below any other.
    """

    def __init__(
        self, language: Language, queries: list[str], worded: float = 0.0, errors: bool = False, shapes: bool = False
    ) -> None:
        self._language = language
        self._queries = queries
        self._worded = worded
        self._errors = errors
        self._shapes = shapes
        self._annotator = Annotator(language, error_rate=0.0)
        reviewers = Reviewer if shapes else Annotator
        self._reviewer = reviewers(language, REVIEWERS_ERR if errors else 0.0)
        self._names = list(language.properties)

    def exchange(self, rng: random.Random) -> Exchange:
        """Return one text, its kind drawn at random."""
        makers = (self._dialogue, self._description, self._reviews, self._review, self._criteria, self._guideline)
        weights = WEIGHTS_LAST if self._shapes else WEIGHTS
        return rng.choices(makers, weights=weights)[0](rng)

    def _response(self, rng: random.Random) -> str:
        """Return a response as it is read: of any shape where shapes are meant."""
        return any_shape(self._language, rng) if self._shapes else response(self._language, rng)

    def _criterion(self, name: str, rng: random.Random) -> str:
        return rng.choice(self._language.properties[name].criteria)

    def _finding(self, name: str, text: str) -> str:
        grade = self._language.grade(text, name)
        return self._language.properties[name].grades[grade]

    def _dialogue(self, rng: random.Random) -> Exchange:
        return rng.choice(self._queries), response(self._language, rng)

    def _shown_first(self, responses: tuple[str, ...], count: int, rng: random.Random) -> list[str]:
        """Return property names, at least half of which some response shows: absence alone would teach little."""
        shown = [n for n in self._names if any(self._language.grade(r, n) for r in responses)]
        rng.shuffle(shown)
        names = shown[: max(1, (count + 1) // 2)]
        others = [n for n in self._names if n not in names]
        names += rng.sample(others, count - len(names))
        rng.shuffle(names)
        return names

    def _description(self, rng: random.Random) -> Exchange:
        text = self._response(rng)
        names = self._shown_first((text,), 7, rng)
        lines = [f"{self._criterion(n, rng)}: it {self._finding(n, text)}." for n in names]
        return f"Describe the response.\nResponse A: {text}", "\n".join(lines)

    def _reviews(self, rng: random.Random) -> Exchange:
        query = rng.choice(self._queries)
        a, b = self._response(rng), self._response(rng)
        lines = [f"{self._criterion(n, rng)}: {self._rating(n, a, b)}" for n in self._shown_first((a, b), 6, rng)]
        return f"Review the responses.\nQuery: {query}\nResponse A: {a}\nResponse B: {b}", "\n".join(lines)

    def _review(self, rng: random.Random) -> Exchange:
        query = rng.choice(self._queries)
        a, b = self._response(rng), self._response(rng)
        on_shown = rng.random() < (ON_SHOWN_LAST if self._shapes else ON_SHOWN)
        name = self._shown_first((a, b), 1, rng)[0] if on_shown else rng.choice(self._names)
        criterion = self._criterion(name, rng)
        guideline = SLOPPY_GUIDELINE if rng.random() < 0.2 else self._annotator.sound_guideline(criterion)
        by = f"Guideline: {guideline}\nCriterion: {criterion}"
        if self._errors and rng.random() < ALONE:
            asked = f"Review the response.\nQuery: {query}\nResponse: {a}\n{by}"
            return asked, self._reviewer.score(criterion, guideline, a, rng)
        asked = f"Review the responses.\nQuery: {query}\nResponse A: {a}\nResponse B: {b}\n{by}"
        if rng.random() < self._worded:
            return asked, self._reviewer.judgment(criterion, guideline, a, b, rng)
        return asked, self._rating(name, a, b)

    def _rating(self, name: str, a: str, b: str) -> str:
        scores = [GRADE_SCORES[self._language.grade(text, name)] for text in (a, b)]
        return f"A {scores[0]}, it {self._finding(name, a)}. B {scores[1]}, it {self._finding(name, b)}."

    def _criteria(self, rng: random.Random) -> Exchange:
        count = len(self._names)
        if rng.random() >= WHOLE_LIST:
            count = rng.randint(3, len(self._names) - 1)
        names = rng.sample(self._names, count)
        lines = (f"{i}. {self._criterion(n, rng)}" for i, n in enumerate(names, start=1))
        return f"List {count} criteria.\nQuery: {rng.choice(self._queries)}", "\n".join(lines)

    def _guideline(self, rng: random.Random) -> Exchange:
        criterion = self._criterion(rng.choice(self._names), rng)
        asked = f"Write a guideline.\nQuery: {rng.choice(self._queries)}\nCriterion: {criterion}"
        return asked, self._annotator.sound_guideline(criterion)


def response(language: Language, rng: random.Random) -> str:
    """Return a response whose two properties that follow its writer's care are drawn for it alone."""
    return write(language, _grades(language, rng), rng)


def _grades(language: Language, rng: random.Random) -> dict[str, int]:
    crucial = rng.sample(list(language.properties), 2)
    careful = rng.random() < 0.5
    return draw_grades(language.properties, crucial, careful, rng)


def any_shape(language: Language, rng: random.Random) -> str:
    """Return a response of one of :data:`SHAPES`, some of them set as a list (:data:`LISTED`)."""
    shape = rng.choices([*SHAPES], weights=[*SHAPES.values()])[0]
    if shape == "bare":
        return _bare(language, rng)
    if shape == "short":
        sentences = [sentence(language, name, grade, rng) for name, grade in _grades(language, rng).items()]
        sentences.append(small_talk(language, rng))
        text = " ".join(rng.sample(sentences, min(len(sentences), rng.randint(1, 2))))
    else:
        text = response(language, rng)
    if shape == "long":
        text += "".join(f" {small_talk(language, rng)}" for _ in range(rng.randint(1, 3)))
    return _listed(text, rng) if rng.random() < LISTED else text


def _bare(language: Language, rng: random.Random) -> str:
    """Return an answer without content: nothing, a word or a mark, small talk, or words in no order."""
    kind = rng.choice(("nothing", "talk", "opener", "words"))
    if kind == "nothing":
        return rng.choice(NO_WORDS)
    if kind == "opener":
        return rng.choice(language.openers)
    if kind == "talk":
        return " ".join(small_talk(language, rng) for _ in range(rng.randint(1, 7)))
    words = [word for query in rng.sample(language.first_queries, 3) for word in query.split()]
    return " ".join(rng.choices(words, k=rng.randint(1, 24)))


def _listed(text: str, rng: random.Random) -> str:
    mark = rng.choice(("{i}.", "-", "*", "{i} ."))
    lines = [f"{mark.format(i=i)} {line}" for i, line in enumerate(split_sentences(text), start=1)]
    if rng.random() < 0.3:
        lines.insert(0, "# answer")
    return "\n".join(lines)
