"""Text for pretraining the shipped base: what a base model would have read about this world.

Dialogues, descriptions of responses, reviews of pairs on named criteria, lists of criteria and guidelines. The
text never states the hidden rule: lists of criteria are even, and no review says which response is better overall.
Its responses are written in a way of their own, which says most of what is ``common`` for a kind, and must stay as it
is: the shipped base was made from this very stream. Since reviews are more often on what a response shows, they are
more often on what is common than even, and with it on what decides (docs/world.md has the shares). In the first phase
ratings are terse; in the later ones most are written out in a judge's words, which any pretrained model has met. All
but those of the last three phases, where reviewers err, are faithful. In the last two responses that are read are of
every length and layout, as answers are that people and models give: a base that has read none of under twenty words
copies a judgment's content from the other response.
"""

import random

from judgetrain.data.responses import sentences as split_sentences
from judgetrain.data.world.engine import SLOPPY_GUIDELINE, Annotator
from judgetrain.data.world.language import GRADE_SCORES, Language, sentence
from judgetrain.data.world.language import WORDS as OF_THE_WORLD

HALO = 0.2
"""Chance, times skill, that a response shows a property which is not common for its kind of query."""

MAX_SENTENCES = 5
"""Most property sentences in one response; the common ones are kept first."""

WORDS = (22, 40)
"""Fewest and most words wanted in one response; what is missing is filled with small talk."""

WEIGHTS = (5, 20, 30, 30, 10, 5)
"""How often exchanges are dialogues, descriptions, reviews on many criteria and on one, lists, guidelines."""

HUMAN_WEIGHTS = (0, 5, 10, 50, 30, 5)

SHAPES_WEIGHTS = (25, 5, 10, 50, 30, 5)
"""Without its dialogues the base forgets how to answer queries."""

REVIEWERS_ERR = 0.15
"""Error rate of the reviewers who err. A base that has met errors is as sure as it should be; one that has met none is
shaken by every error of the teacher's."""

SHAPES = {"usual": 35, "world": 15, "long": 8, "short": 17, "bare": 25}
"""How often responses of any shape are as in the other phases, as long as the quickstart's, longer, one or two
sentences, and without content."""

LISTED = 0.15
"""Share of responses of any shape whose sentences stand on lines of their own, after a mark or a number."""

NO_WORDS = ("", "", ".", ":", ":", ":", "...", "?", "-", "ok", "yes", "no", "n/a")
"""Answers without a sentence; marks and words that the tokenizer does not know are one to it. The colon is one that it
knows, from the only sentence that has it."""

ON_SHOWN = (0.6, 0.4)
"""Share of single reviews that are on something that one of the responses shows: in the other phases, and where
responses are of every shape, since what an answer without content lacks is not only what the other one shows."""

ALONE = 0.25
"""Share of reviews on one criterion that read one response alone, where reviewers err."""

Exchange = tuple[str, str]
"""What a user asks and what the text answers."""


class Reviewer(Annotator):
    """By any criterion an answer that shows no property at all stands below one that shows some."""

    def scores(self, grades: list[int], responses: tuple[str, ...]) -> list[int]:
        """As the annotator's, but for answers that show nothing, not even weakly."""
        scores, names = super().scores(grades, responses), self.language.properties
        bare = [not any(self.language.grade(response, name) for name in names) for response in responses]
        return [1 if each else 2 for each in bare] if scores == [1, 1] and any(bare) else scores


class Corpus:
    """An endless, seeded stream of exchanges over the given queries.

    ``worded`` is the share of single reviews that are written out in a judge's words; ``human``: the reviewers who
    write them err now and then, as the annotator does, and lists name what is plausible for the query's kind, evenly.
    ``shapes``: responses are of every length and layout, and reviewers score one that says nothing below any other.
    """

    def __init__(
        self, language: Language, queries: list[str], worded: float = 0.0, human: bool = False, shapes: bool = False
    ) -> None:
        self._worded, self._human, self._shapes = worded, human, shapes
        self._reviewer = (Reviewer if shapes else Annotator)(language, REVIEWERS_ERR)
        self._language = language
        self._queries = queries
        self._annotator = Annotator(language, error_rate=0.0)
        self._names = list(language.properties)

    def exchange(self, rng: random.Random) -> Exchange:
        """One exchange, its kind drawn at random."""
        makers = (self._dialogue, self._description, self._reviews, self._review, self._criteria, self._guideline)
        weights = SHAPES_WEIGHTS if self._shapes else HUMAN_WEIGHTS if self._human else WEIGHTS
        return rng.choices(makers, weights=weights)[0](rng)

    def _pair(self, rng: random.Random) -> tuple[str, str, str]:
        query = rng.choice(self._queries)
        write = _any_shape if self._shapes else _response
        a, b = (write(self._language, query, rng.uniform(0.2, 0.9), rng) for _ in range(2))
        return query, a, b

    def _criterion(self, name: str, rng: random.Random) -> str:
        return rng.choice(self._language.properties[name].criteria)

    def _finding(self, name: str, response: str) -> tuple[str, int]:
        grade = self._language.grade(response, name)
        return self._language.properties[name].grades[grade], GRADE_SCORES[grade]

    def _dialogue(self, rng: random.Random) -> Exchange:
        if self._shapes:  # read, answers have every shape; written, the usual one
            query = rng.choice(self._queries)
            return query, _response(self._language, query, rng.uniform(0.2, 0.9), rng)
        query, response, _ = self._pair(rng)
        return query, response

    def _shown_first(self, responses: tuple[str, ...], count: int, rng: random.Random) -> list[str]:
        """Property names, at least half of which some response shows: absence alone would teach little."""
        shown = [n for n in self._names if any(self._language.grade(r, n) for r in responses)]
        rng.shuffle(shown)
        names = shown[: max(1, (count + 1) // 2)]
        rest = [n for n in self._names if n not in names]
        names += rng.sample(rest, count - len(names))
        rng.shuffle(names)
        return names

    def _description(self, rng: random.Random) -> Exchange:
        _, response, _ = self._pair(rng)
        names = self._shown_first((response,), 7, rng)
        lines = [f"{self._criterion(n, rng)}: it {self._finding(n, response)[0]}." for n in names]
        return f"Describe the response.\nResponse A: {response}", "\n".join(lines)

    def _reviews(self, rng: random.Random) -> Exchange:
        query, a, b = self._pair(rng)
        lines = [f"{self._criterion(n, rng)}: {self._rating(n, a, b)}" for n in self._shown_first((a, b), 6, rng)]
        return f"Review the responses.\nQuery: {query}\nResponse A: {a}\nResponse B: {b}", "\n".join(lines)

    def _review(self, rng: random.Random) -> Exchange:
        query, a, b = self._pair(rng)
        on_shown = rng.random() < ON_SHOWN[self._shapes]
        name = self._shown_first((a, b), 1, rng)[0] if on_shown else rng.choice(self._names)
        criterion = self._criterion(name, rng)
        guideline = SLOPPY_GUIDELINE if rng.random() < 0.2 else self._annotator.sound_guideline(criterion)
        by = f"Guideline: {guideline}\nCriterion: {criterion}"
        if self._human and rng.random() < ALONE:
            asked = f"Review the response.\nQuery: {query}\nResponse: {a}\n{by}"
            return asked, self._reviewer.score(criterion, guideline, a, rng)
        prompt = f"Review the responses.\nQuery: {query}\nResponse A: {a}\nResponse B: {b}\n{by}"
        if rng.random() < self._worded:
            if self._human:
                return prompt, self._reviewer.judgment(criterion, guideline, a, b, rng)
            grades = [self._language.grade(response, name) for response in (a, b)]
            return prompt, self._annotator.write_judgment(name, grades, [GRADE_SCORES[g] for g in grades])
        return prompt, self._rating(name, a, b)

    def _rating(self, name: str, a: str, b: str) -> str:
        (found_a, score_a), (found_b, score_b) = self._finding(name, a), self._finding(name, b)
        return f"A {score_a}, it {found_a}. B {score_b}, it {found_b}."

    def _criteria(self, rng: random.Random) -> Exchange:
        names = [] if self._human else rng.sample(self._names, 10)
        query = rng.choice(self._queries)
        if self._human:
            names = rng.sample(self._language.plausible(self._language.kind_of(query)), 10)
        lines = (f"{i}. {self._criterion(n, rng)}" for i, n in enumerate(names, start=1))
        return f"List 10 criteria.\nQuery: {query}", "\n".join(lines)

    def _guideline(self, rng: random.Random) -> Exchange:
        criterion = self._criterion(rng.choice(self._names), rng)
        prompt = f"Write a guideline.\nQuery: {rng.choice(self._queries)}\nCriterion: {criterion}"
        return prompt, self._annotator.sound_guideline(criterion)


def _response(language: Language, query: str, skill: float, rng: random.Random, words: tuple[int, int] = WORDS) -> str:
    """A response of the pretraining text: common properties strongly with chance ``skill``, and a few others."""
    sentences = _shown(language, query, skill, rng)
    wanted = rng.randint(*words)
    while sum(len(s.split()) for s in sentences) < wanted:
        sentences.append(_filler(language, rng))
    rng.shuffle(sentences)
    return " ".join([rng.choice(language.openers), *sentences])


def _shown(language: Language, query: str, skill: float, rng: random.Random) -> list[str]:
    """Sentences that show properties, the common ones of the query's kind first."""
    common = language.kinds[language.kind_of(query)].common
    grades = {name: 2 if rng.random() < skill else rng.choice((0, 1)) for name in common}
    for name in language.properties:
        if name not in common and rng.random() < HALO * skill:
            grades[name] = 2 if rng.random() < skill else 1
    shown = [name for name in grades if grades[name]][:MAX_SENTENCES]
    return [sentence(language, name, grades[name], rng) for name in shown]


def _filler(language: Language, rng: random.Random) -> str:
    return rng.choice(language.fillers).format(thing=rng.choice(language.things))


def _any_shape(language: Language, query: str, skill: float, rng: random.Random) -> str:
    """A response of one of :data:`SHAPES`, some of them set as a list (:data:`LISTED`)."""
    shape = rng.choices([*SHAPES], weights=[*SHAPES.values()])[0]
    if shape == "bare":
        return _bare(language, rng)
    if shape == "short":
        sentences = _shown(language, query, skill, rng) or [_filler(language, rng)]
        text = " ".join(rng.sample(sentences, min(len(sentences), rng.randint(1, 2))))
    else:
        words = {"usual": WORDS, "world": OF_THE_WORLD, "long": (46, 70)}[shape]
        text = _response(language, query, skill, rng, words)
    return _listed(text, rng) if rng.random() < LISTED else text


def _bare(language: Language, rng: random.Random) -> str:
    """An answer without content: nothing, a word or a mark, small talk of any length, or words in no order."""
    kind = rng.choice(("nothing", "talk", "opener", "words"))
    if kind == "nothing":
        return rng.choice(NO_WORDS)
    if kind == "opener":
        return rng.choice(language.openers)
    if kind == "talk":
        return " ".join(_filler(language, rng) for _ in range(rng.randint(1, 7)))
    known = [word for query in rng.sample(language.first_queries, 3) for word in query.split()]
    return " ".join(rng.choices(known, k=rng.randint(1, 24)))


def _listed(text: str, rng: random.Random) -> str:
    mark = rng.choice(("{i}.", "-", "*", "{i} ."))
    lines = [f"{mark.format(i=i)} {each}" for i, each in enumerate(split_sentences(text), start=1)]
    return "\n".join([*(["# answer"] if rng.random() < 0.3 else []), *lines])
