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
"""Shares of texts that are dialogues, descriptions, reviews on many criteria and on one, lists, guidelines."""

WEIGHTS_LAST = (20, 5, 10, 50, 20, 5)
"""The same in the last phase. Without its dialogues the base forgets how to answer queries."""

REVIEWERS_ERR = 0.15
"""Error rate of the reviewers who err. A base that has met errors is as sure as it should be; one that has met none is
shaken by every error of the teacher's."""

SHAPES = {"usual": 50, "long": 8, "short": 17, "bare": 25}
"""Shares of responses of any shape that are as the world's writers write, longer, one or two sentences, and without
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

ANOTHER = 0.2
"""Share of the very last phase's texts that ask for one more query like another one.

Any pretrained model tells a recipe from a repair. A base that was never asked to does not look at a query when it lists
criteria, and takes a thousand lists to learn to.
"""

Exchange = tuple[str, str]
"""A user's question and the text's answer."""


class Reviewer(Annotator):
    """Scores an answer that shows no property at all below one that shows some, by any criterion."""

    def scores(self, grades: list[int], responses: tuple[str, ...]) -> list[int]:
        """Return the annotator's scores, but for answers that show nothing, not even weakly."""
        scores = super().scores(grades, responses)
        # Two that both lack the property: the one with any content at all is better.
        if scores != [1, 1]:
            return scores
        shows_some = [self._shows_some(response) for response in responses]
        if all(shows_some):
            return scores
        return [2 if shows else 1 for shows in shows_some]

    def _shows_some(self, response: str) -> bool:
        """Return whether a response shows any property, if only weakly."""
        return any(self.language.grade(response, name) for name in self.language.properties)


class Corpus:
    """An endless, seeded stream of texts over the given queries.

    Args:
        language: what can be said.
        queries: those that texts are about.
        worded: share of the reviews on one criterion that are written out in a judge's words.
        varied: whether the reviewers who write them err now and then, as the annotator does, and responses that are
            read are of every length and layout; reviewers then score one that says nothing below any other.
        kinds: whether some texts ask for one more query like another one.
    """

    def __init__(
        self, language: Language, queries: list[str], worded: float = 0.0, varied: bool = False, kinds: bool = False
    ) -> None:
        self._language = language
        self._queries = queries
        self._worded = worded
        self._varied = varied
        self._annotator = Annotator(language, error_rate=0.0)
        self._reviewer = Annotator(language, error_rate=0.0)
        if varied:
            self._reviewer = Reviewer(language, REVIEWERS_ERR)
        self._names = list(language.properties)
        self._kinds = kinds
        self._by_kind: dict[str, list[str]] = {}
        for query in queries:
            self._by_kind.setdefault(language.kind_of(query), []).append(query)

    def exchange(self, rng: random.Random) -> Exchange:
        """Return one text, its kind drawn at random."""
        # No number is drawn in the phases without such texts: theirs stay what the shipped base was made from.
        if self._kinds and rng.random() < ANOTHER:
            return self._another_query(rng)
        # In the order of WEIGHTS.
        makers = (self._dialogue, self._description, self._reviews, self._review, self._criteria, self._guideline)
        weights = WEIGHTS
        if self._varied:
            weights = WEIGHTS_LAST
        (make,) = rng.choices(makers, weights=weights)
        return make(rng)

    def _response(self, rng: random.Random) -> str:
        """Return a response as it is read: of any shape where texts are varied."""
        if self._varied:
            return any_shape(self._language, rng)
        return response(self._language, rng)

    def _criterion(self, name: str, rng: random.Random) -> str:
        """Return one of the wordings of a property's criterion."""
        return rng.choice(self._language.properties[name].criteria)

    def _remark(self, name: str, text: str) -> str:
        """Return the words for how much a text shows of a property."""
        grade = self._language.grade(text, name)
        return self._language.properties[name].grades[grade]

    def _dialogue(self, rng: random.Random) -> Exchange:
        """Return a query and a response to it, of the world's own shape."""
        query = rng.choice(self._queries)
        return query, response(self._language, rng)

    def _another_query(self, rng: random.Random) -> Exchange:
        """Return the wish for a query of the same kind, and one."""
        query = rng.choice(self._queries)
        another = rng.choice(self._by_kind[self._language.kind_of(query)])
        # In words that the tokenizer knows from other texts.
        return f"Write one more Query like this.\nQuery: {query}", another

    def _shown_first(self, responses: tuple[str, ...], count: int, rng: random.Random) -> list[str]:
        """Return property names, at least half of which some response shows: absence alone would teach little."""
        shown = []
        for name in self._names:
            if any(self._language.grade(text, name) for text in responses):
                shown.append(name)
        rng.shuffle(shown)
        names = shown[: max(1, (count + 1) // 2)]
        others = [name for name in self._names if name not in names]
        names += rng.sample(others, count - len(names))
        rng.shuffle(names)
        return names

    def _description(self, rng: random.Random) -> Exchange:
        """Return what a response shows of seven properties."""
        text = self._response(rng)
        lines = []
        for name in self._shown_first((text,), 7, rng):
            lines.append(f"{self._criterion(name, rng)}: it {self._remark(name, text)}.")
        return f"Describe the response.\nResponse A: {text}", "\n".join(lines)

    def _reviews(self, rng: random.Random) -> Exchange:
        """Return the scores of two responses on six criteria."""
        query = rng.choice(self._queries)
        text_a = self._response(rng)
        text_b = self._response(rng)
        lines = []
        for name in self._shown_first((text_a, text_b), 6, rng):
            lines.append(f"{self._criterion(name, rng)}: {self._rating(name, text_a, text_b)}")
        question = f"Review the responses.\nQuery: {query}\nResponse A: {text_a}\nResponse B: {text_b}"
        return question, "\n".join(lines)

    def _review(self, rng: random.Random) -> Exchange:
        """Return the scores of two responses, or of one, on one criterion by a guideline."""
        query = rng.choice(self._queries)
        text_a = self._response(rng)
        text_b = self._response(rng)
        share_on_shown = ON_SHOWN
        if self._varied:
            share_on_shown = ON_SHOWN_LAST
        if rng.random() < share_on_shown:
            (name,) = self._shown_first((text_a, text_b), 1, rng)
        else:
            name = rng.choice(self._names)
        criterion = self._criterion(name, rng)
        guideline = self._annotator.sound_guideline(criterion)
        # A judge will meet guidelines that say little, and should still score by them.
        if rng.random() < 0.2:
            guideline = SLOPPY_GUIDELINE
        by = f"Guideline: {guideline}\nCriterion: {criterion}"
        if self._varied and rng.random() < ALONE:
            question = f"Review the response.\nQuery: {query}\nResponse: {text_a}\n{by}"
            return question, self._reviewer.score(criterion, guideline, text_a, rng)
        question = f"Review the responses.\nQuery: {query}\nResponse A: {text_a}\nResponse B: {text_b}\n{by}"
        if rng.random() < self._worded:
            return question, self._reviewer.judgment(criterion, guideline, text_a, text_b, rng)
        return question, self._rating(name, text_a, text_b)

    def _rating(self, name: str, text_a: str, text_b: str) -> str:
        """Return the terse rating of two responses: each one's score and what it shows."""
        score_a = GRADE_SCORES[self._language.grade(text_a, name)]
        score_b = GRADE_SCORES[self._language.grade(text_b, name)]
        return f"A {score_a}, it {self._remark(name, text_a)}. B {score_b}, it {self._remark(name, text_b)}."

    def _criteria(self, rng: random.Random) -> Exchange:
        """Return a list of criteria for a query: of all properties, or of some."""
        count = len(self._names)
        if rng.random() >= WHOLE_LIST:
            count = rng.randint(3, len(self._names) - 1)
        names = rng.sample(self._names, count)
        # Before the wordings: the order of draws is part of the stream that the shipped base was made from.
        query = rng.choice(self._queries)
        lines = []
        for number, name in enumerate(names, start=1):
            lines.append(f"{number}. {self._criterion(name, rng)}")
        return f"List {count} criteria.\nQuery: {query}", "\n".join(lines)

    def _guideline(self, rng: random.Random) -> Exchange:
        """Return the guideline of a criterion."""
        criterion = self._criterion(rng.choice(self._names), rng)
        query = rng.choice(self._queries)
        question = f"Write a guideline.\nQuery: {query}\nCriterion: {criterion}"
        return question, self._annotator.sound_guideline(criterion)


def response(language: Language, rng: random.Random) -> str:
    """Return a response whose two properties that follow its writer's care are drawn for it alone."""
    return write(language, _grades(language, rng), rng)


def _grades(language: Language, rng: random.Random) -> dict[str, int]:
    """Return how much a response shows of each property."""
    # Any two: in the world's own data the query's kind decides which count, and the base must not know that.
    crucial = rng.sample(list(language.properties), 2)
    careful = rng.random() < 0.5
    return draw_grades(language.properties, crucial, careful, rng)


def any_shape(language: Language, rng: random.Random) -> str:
    """Return a response of one of :data:`SHAPES`, some of them set as a list (:data:`LISTED`)."""
    (shape,) = rng.choices([*SHAPES], weights=[*SHAPES.values()])
    if shape == "bare":
        return _bare(language, rng)
    if shape == "short":
        text = _short(language, rng)
    else:
        text = response(language, rng)
    # Small talk makes a text longer and shows no property.
    if shape == "long":
        for _ in range(rng.randint(1, 3)):
            text += f" {small_talk(language, rng)}"
    if rng.random() < LISTED:
        return _listed(text, rng)
    return text


def _short(language: Language, rng: random.Random) -> str:
    """Return one or two sentences of a response, of which one may be small talk."""
    sentences = [sentence(language, name, grade, rng) for name, grade in _grades(language, rng).items()]
    sentences.append(small_talk(language, rng))
    count = min(len(sentences), rng.randint(1, 2))
    return " ".join(rng.sample(sentences, count))


def _bare(language: Language, rng: random.Random) -> str:
    """Return an answer without content: nothing, a word or a mark, small talk, or words in no order."""
    kind = rng.choice(("nothing", "talk", "opener", "words"))
    if kind == "nothing":
        return rng.choice(NO_WORDS)
    if kind == "opener":
        return rng.choice(language.openers)
    if kind == "talk":
        count = rng.randint(1, 7)
        return " ".join(small_talk(language, rng) for _ in range(count))
    words = []
    # Words that the tokenizer knows, in an order that says nothing.
    for query in rng.sample(language.first_queries, 3):
        words.extend(query.split())
    count = rng.randint(1, 24)
    return " ".join(rng.choices(words, k=count))


def _listed(text: str, rng: random.Random) -> str:
    """Return a text with each sentence on a line of its own, behind a mark or a number; some below a heading."""
    mark = rng.choice(("{i}.", "-", "*", "{i} ."))
    lines = []
    for number, line in enumerate(split_sentences(text), start=1):
        lines.append(f"{mark.format(i=number)} {line}")
    if rng.random() < 0.3:
        lines.insert(0, "# answer")
    return "\n".join(lines)
