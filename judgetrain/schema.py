"""The rows that every source is read into: dialogues, and comparisons of two responses to one dialogue."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

from judgetrain.errors import DataError
from judgetrain.messages import reference_text, role_texts
from judgetrain.rubrics import Rubric, label_of_line
from judgetrain.thoughts import shown

Verdict = Literal["A", "B", "tie"]
Order = Literal["AB", "BA", "A", "B"]
"""The responses that a judgment was shown, in their order; A or B stands for one response by itself."""
ORDERS: tuple[Order, Order] = ("AB", "BA")
RESPONSES: tuple[Order, Order] = ("A", "B")
Reads = Literal["one", "two"]
"""The number of responses that a judgment reads."""

_MIRROR: dict[str, Verdict] = {"A": "B", "B": "A", "tie": "tie"}


def mirror(verdict: Verdict) -> Verdict:
    """Return the verdict on the same two responses shown in the other order."""
    return _MIRROR[verdict]


@dataclass(frozen=True)
class Message:
    """One turn of a dialogue. ``role`` is ``system``, ``user`` or ``assistant``."""

    role: str
    content: str


Prompt = str | Sequence[Message | Mapping[str, Any]]
"""The query alone, or the messages up to it, as ``{"role": "user", "content": "..."}``.

Calls of tools and their results become text (:mod:`judgetrain.messages`)."""


Reference = str | float | Sequence[Any] | None
"""A reference answer: a text, a number, a list of them, or messages (:func:`~judgetrain.messages.reference_text`)."""


def messages_of(prompt: Prompt) -> tuple[Message, ...]:
    """Return the messages of a prompt; the last one is the user's query.

    Raises:
        DataError: there is no message, an entry is none (:func:`~judgetrain.messages.role_texts`), or the last is not
            the user's.
    """
    if isinstance(prompt, str):
        return (Message("user", prompt),)

    # A single message is a mapping: going through it would give its keys.
    if not isinstance(prompt, Iterable) or isinstance(prompt, Mapping):
        raise DataError(f"expected a prompt: a text, or a list of messages; found {type(prompt).__name__}")

    turns = [asdict(turn) if isinstance(turn, Message) else turn for turn in prompt]
    messages = tuple(Message(role, text) for role, text in role_texts(turns))
    if not messages:
        raise DataError("expected the last message to be the user's, found none at all")
    if messages[-1].role != "user":
        raise DataError(f"expected the last message to be the user's, found {messages[-1].role}")
    return messages


@dataclass(frozen=True)
class Dialogue:
    """A dialogue whose last message is the user's query.

    Args:
        id: unique over all sources (``source:local-id``).
        source: the name of the corpus.
        messages: its turns, the query last.
        reference: the corpus' own answer to the query.
        category: the corpus' own label of the dialogue.
        rubric: the criteria that responses are to be judged by.
    """

    id: str
    source: str
    messages: tuple[Message, ...]
    reference: str | None = None
    category: str | None = None
    rubric: Rubric | None = None

    @property
    def query(self) -> str:
        """Return the last user message."""
        return self.messages[-1].content

    @property
    def user_texts(self) -> tuple[str, ...]:
        """Return the text of every message of the user."""
        return tuple(message.content for message in self.messages if message.role == "user")

    @property
    def context(self) -> str:
        """Return all messages before the query as ``Role: text`` lines; empty for a single-turn dialogue."""
        return "\n".join(f"{m.role.capitalize()}: {m.content}" for m in self.messages[:-1])

    def to_row(self) -> dict[str, Any]:
        """Return a dictionary for JSON; the inverse of :meth:`from_row`."""
        row = asdict(self)
        row["messages"] = [asdict(message) for message in self.messages]
        return _rubric_row(row, self.rubric)

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Dialogue:
        """Return the dialogue that :meth:`to_row` wrote."""
        return cls(
            id=row["id"],
            source=row["source"],
            messages=tuple(Message(message["role"], message["content"]) for message in row["messages"]),
            reference=row.get("reference"),
            category=row.get("category"),
            rubric=_rubric_in(row),
        )


@dataclass(frozen=True)
class Rating:
    """People's score of one response by itself.

    Args:
        score: from 0 (worst) to 1.
        reason: why, where people say it.
        by_criterion: their scores by single criteria, by :func:`~judgetrain.rubrics.criterion_key`.
        whole: whether they scored the response as a whole; False: ``score`` is made of those by criterion.
    """

    score: float
    reason: str | None = None
    by_criterion: Mapping[str, float] = field(default_factory=dict)
    whole: bool = True

    def of_criterion(self, line: str) -> float | None:
        """Return the score that people gave by the criterion of this line itself, or None."""
        label = label_of_line(line, self.by_criterion)
        if label is None:
            return None
        return self.by_criterion[label]

    def by(self, line: str) -> float | None:
        """Return the score by a criterion, given its line: its own, or the whole response's; None without either."""
        own_score = self.of_criterion(line)
        if own_score is None and self.whole:
            return self.score
        return own_score

    def to_row(self) -> dict[str, Any]:
        """Return a dictionary for JSON, whose items are the arguments of the class."""
        row: dict[str, Any] = {"score": self.score, "reason": self.reason}
        # Rows made before there were labels by criterion stay equal to the byte.
        if self.by_criterion:
            row |= {"by_criterion": dict(self.by_criterion), "whole": self.whole}
        return row


@dataclass(frozen=True)
class Comparison:
    """A dialogue and two responses, with the models that wrote them and, where known, the right verdict.

    :meth:`of` makes one of a prompt and two texts: ``Comparison.of("Name a prime.", "7", "8")``.

    One rated response without another to compare it with is a comparison too (:attr:`alone`): it stands as
    ``response_a``, with ``rating_a``, and ``response_b`` is empty.

    Args:
        id: unique in its data set.
        dialogue: the dialogue that both responses answer.
        response_a: the first response.
        response_b: the second response.
        model_a: the model that wrote the first response; empty where it is unknown.
        model_b: the model that wrote the second response; empty where it is unknown.
        label: the verdict of people (or of the synthetic world), in this comparison's order. Training reads it with
            ``label.source=given`` alone.
        group: a subset or scenario, for tables by group.
        made: how the pair was constructed, where its construction decides the better side (``responses.contrast``).
        rubric: the criteria that it is to be judged by.
        rating_a: people's rating of the first response. With both ratings, ``label`` says which is higher.
        rating_b: people's rating of the second response.
    """

    id: str
    dialogue: Dialogue
    response_a: str
    response_b: str
    model_a: str = ""
    model_b: str = ""
    label: Verdict | None = None
    group: str | None = None
    made: str | None = None
    rubric: Rubric | None = None
    rating_a: Rating | None = None
    rating_b: Rating | None = None

    @classmethod
    def of(
        cls, prompt: Prompt, response_a: str, response_b: str, reference: Reference = None, **fields: Any
    ) -> Comparison:
        """Return a comparison of two responses to a prompt, without what their models thought.

        Args:
            prompt: the query, or the messages up to it.
            response_a: the first response.
            response_b: the second response.
            reference: a reference answer to the prompt.
            fields: the other fields of this class. Without ``id``, the texts decide it: equal texts have equal ids.

        Raises:
            DataError: the prompt is no prompt (:func:`messages_of`), or the reference no text.
        """
        messages = messages_of(prompt)
        response_a = shown(response_a)
        response_b = shown(response_b)
        dialogue = Dialogue(_id_of_turns(messages), "given", messages, reference_text(reference))
        comparison_id = fields.pop("id", None) or _id_of_pair(messages, response_a, response_b)
        rubric: Rubric | None = fields.pop("rubric", None)
        if rubric is not None:
            rubric = rubric.for_query(dialogue.query)
        return cls(comparison_id, dialogue, response_a, response_b, rubric=rubric, **fields)

    def with_rubric(self, rubric: Rubric | None) -> Comparison:
        """Return the comparison with a rubric's criteria for its query, unless it brings criteria of its own."""
        if self.rubric is not None or rubric is None:
            return self
        return replace(self, rubric=rubric.for_query(self.dialogue.query))

    @property
    def content(self) -> str:
        """Return a hash of the texts in their order, 16 hexadecimal digits; id, label and group do not change it."""
        return _id_of_pair(self.dialogue.messages, self.response_a, self.response_b)

    @property
    def number(self) -> int:
        """Return a number below 2**40 that the texts alone decide.

        It seeds a judge's random numbers, so that a comparison gets the same verdict alone and among others.
        """
        return int(self.content[:10], 16)

    @property
    def alone(self) -> bool:
        """Return whether it is one rated response, which is judged by itself (in order A)."""
        return self.rating_a is not None and self.rating_b is None and not self.response_b

    @property
    def forfeit(self) -> Verdict | None:
        """Return the verdict where a response is blank: it loses, whoever judges; two blank ones tie. Else None."""
        if self.alone:
            return None

        has_a = bool(self.response_a.strip())
        has_b = bool(self.response_b.strip())
        if has_a and has_b:
            return None
        if has_a:
            return "A"
        if has_b:
            return "B"
        return "tie"

    @property
    def longer(self) -> Verdict:
        """Return the response with more characters, without blanks around it; a tie at equal length."""
        length_a, length_b = self._lengths
        if length_a == length_b:
            return "tie"
        return "A" if length_a > length_b else "B"

    @property
    def length_ratio(self) -> float:
        """Return the natural logarithm of how many times as long response A is as response B.

        Length is in characters without blanks around a text, and one more, so that an empty one has a logarithm.
        """
        length_a, length_b = self._lengths
        return math.log1p(length_a) - math.log1p(length_b)

    @property
    def _lengths(self) -> tuple[int, int]:
        """Return the numbers of characters of both responses, without blanks around them."""
        return len(self.response_a.strip()), len(self.response_b.strip())

    @property
    def characters(self) -> int:
        """Return the number of characters in the dialogue and both responses."""
        in_dialogue = sum(len(message.content) for message in self.dialogue.messages)
        return in_dialogue + len(self.response_a) + len(self.response_b)

    def swapped(self) -> Comparison:
        """Return the same comparison with responses, models, ratings and the label exchanged."""
        return replace(
            self,
            response_a=self.response_b,
            response_b=self.response_a,
            model_a=self.model_b,
            model_b=self.model_a,
            label=None if self.label is None else mirror(self.label),
            rating_a=self.rating_b,
            rating_b=self.rating_a,
        )

    def to_row(self) -> dict[str, Any]:
        """Return a dictionary for JSON; the inverse of :meth:`from_row`."""
        row = asdict(self)
        row["dialogue"] = self.dialogue.to_row()
        row = _rubric_row(row, self.rubric)
        for name, rating in (("rating_a", self.rating_a), ("rating_b", self.rating_b)):
            if rating is not None:
                row[name] = rating.to_row()
        # Rows made before a field was added stay equal to the byte.
        for name in _SELDOM:
            if row[name] is None:
                del row[name]
        return row

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Comparison:
        """Return the comparison that :meth:`to_row` wrote."""
        fields = dict(row)
        fields["dialogue"] = Dialogue.from_row(row["dialogue"])
        fields["rubric"] = _rubric_in(row)
        for name in ("rating_a", "rating_b"):
            if row.get(name):
                fields[name] = Rating(**row[name])
        return cls(**fields)


_SELDOM = ("made", "rating_a", "rating_b")
"""Fields that a comparison's row leaves out where they are None."""


def _rubric_row(row: dict[str, Any], rubric: Rubric | None) -> dict[str, Any]:
    """Return a row with its rubric as JSON values at its end, or without the key where there is no rubric."""
    # asdict took the rubric apart. Rows without one are, to the byte, what they were before there were rubrics.
    del row["rubric"]
    if rubric is not None:
        row["rubric"] = rubric.to_row()
    return row


def _rubric_in(row: dict[str, Any]) -> Rubric | None:
    """Return the rubric that a row holds, or None."""
    if not row.get("rubric"):
        return None
    return Rubric.from_row(row["rubric"])


@dataclass(frozen=True)
class Candidates:
    """Responses to one dialogue, each to be scored by itself.

    Args:
        id: made of the prompt's text.
        dialogue: the dialogue that all responses answer.
        responses: one at least.
        rubric: the criteria to score by, where they are given.

    Raises:
        DataError: there is no response.
    """

    id: str
    dialogue: Dialogue
    responses: tuple[str, ...]
    rubric: Rubric | None = None

    def __post_init__(self) -> None:
        if not self.responses:
            raise DataError("expected a response at least, found none")

    @classmethod
    def of(
        cls, prompt: Prompt, responses: Sequence[str], reference: Reference = None, rubric: Rubric | None = None
    ) -> Candidates:
        """Return the responses to a prompt as candidates, without what their models thought.

        Raises:
            DataError: the prompt is no prompt (:func:`messages_of`), the reference no text, or there is no response.
        """
        messages = messages_of(prompt)
        prompt_id = _id_of_turns(messages)
        dialogue = Dialogue(prompt_id, "given", messages, reference_text(reference))
        if rubric is not None:
            rubric = rubric.for_query(dialogue.query)
        return cls(prompt_id, dialogue, tuple(map(shown, responses)), rubric)

    def with_rubric(self, rubric: Rubric | None) -> Candidates:
        """Return the candidates with a rubric's criteria for their query, unless they bring criteria of their own."""
        if self.rubric is not None or rubric is None:
            return self
        return replace(self, rubric=rubric.for_query(self.dialogue.query))


DIGITS = 16
"""Hexadecimal digits of a SHA-256 that make an id."""


@lru_cache(maxsize=8)
def _turns_as_json(messages: tuple[Message, ...]) -> tuple[str, Any]:
    """Return the id of messages, and the hash of a JSON list that begins with them, to go on from.

    They are kept, since thousands of comparisons may share a long prompt.
    """
    # Ids of kept artifacts were made of these very bytes: no other option of json.dumps will do.
    turns = json.dumps([asdict(message) for message in messages])
    return hashlib.sha256(turns.encode()).hexdigest()[:DIGITS], hashlib.sha256(f"[{turns}".encode())


def _id_of_turns(messages: tuple[Message, ...]) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of messages in JSON."""
    identifier, _ = _turns_as_json(messages)
    return identifier


def _id_of_pair(messages: tuple[Message, ...], response_a: str, response_b: str) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of a JSON list of messages and two responses."""
    _, beginning = _turns_as_json(messages)
    whole = beginning.copy()
    whole.update(f", {json.dumps(response_a)}, {json.dumps(response_b)}]".encode())
    digits: str = whole.hexdigest()
    return digits[:DIGITS]
