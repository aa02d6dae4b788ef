"""The schema every source is read into: dialogues, and comparisons of two responses to one dialogue."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from judgetrain.errors import DataError
from judgetrain.messages import said
from judgetrain.rubrics import Rubric

Verdict = Literal["A", "B", "tie"]
Order = Literal["AB", "BA", "A", "B"]
"""What a judgment was shown: both responses, in one order or the other, or one response by itself."""
ORDERS: tuple[Order, Order] = ("AB", "BA")
RESPONSES: tuple[Order, Order] = ("A", "B")
Reads = Literal["one", "two"]
"""How many responses a judgment reads."""

_MIRROR: dict[str, Verdict] = {"A": "B", "B": "A", "tie": "tie"}


def mirror(verdict: Verdict) -> Verdict:
    """The verdict on the same two responses shown in the other order."""
    return _MIRROR[verdict]


@dataclass(frozen=True)
class Message:
    """One turn of a dialogue. ``role`` is ``system``, ``user`` or ``assistant``."""

    role: str
    content: str


Prompt = str | Sequence[Message | Mapping[str, Any]]
"""What a user asks: the query alone, or the messages up to it, as ``{"role": "user", "content": "..."}``.

Calls of tools and what tools gave back are told as text (:mod:`judgetrain.messages`)."""


def messages_of(prompt: Prompt) -> tuple[Message, ...]:
    """The messages of a prompt; the last one is the user's query.

    Raises:
        DataError: no message, one that is none (:func:`~judgetrain.messages.said`), or the last is not the user's.
    """
    if isinstance(prompt, str):
        return (Message("user", prompt),)
    if not isinstance(prompt, Iterable) or isinstance(prompt, Mapping):
        raise DataError(f"expected a prompt: a text, or a list of messages; found {type(prompt).__name__}")
    found = [Message(*each) for each in said([asdict(m) if isinstance(m, Message) else m for m in prompt])]
    if not found or found[-1].role != "user":
        last = found[-1].role if found else "none at all"
        raise DataError(f"expected the last message to be the user's, found {last}")
    return tuple(found)


@dataclass(frozen=True)
class Dialogue:
    """A dialogue whose last message is the user's query.

    ``id`` is unique over all sources (``source:local-id``). ``reference`` is the corpus' own answer, ``category`` the
    corpus' own label and ``rubric`` the criteria that responses are to be judged by, where it has them.
    """

    id: str
    source: str
    messages: tuple[Message, ...]
    reference: str | None = None
    category: str | None = None
    rubric: Rubric | None = None

    @property
    def query(self) -> str:
        """The last user message."""
        return self.messages[-1].content

    @property
    def asked(self) -> tuple[str, ...]:
        """All that the user said, an entry a turn."""
        return tuple(m.content for m in self.messages if m.role == "user")

    @property
    def context(self) -> str:
        """All messages before the query as ``Role: text`` lines; empty for a single-turn dialogue."""
        return "\n".join(f"{m.role.capitalize()}: {m.content}" for m in self.messages[:-1])

    def to_row(self) -> dict[str, Any]:
        """A JSON-ready dictionary; the inverse of :meth:`from_row`."""
        row = asdict(self) | {"messages": [asdict(m) for m in self.messages]}
        return _rubric_row(row, self.rubric)

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Dialogue:
        """Read back what :meth:`to_row` wrote."""
        messages = tuple(Message(m["role"], m["content"]) for m in row["messages"])
        rubric = Rubric.from_row(row["rubric"]) if row.get("rubric") else None
        return cls(row["id"], row["source"], messages, row.get("reference"), row.get("category"), rubric)


@dataclass(frozen=True)
class Rating:
    """How good a response is by itself, as people say: ``score`` from 0 (worst) to 1, and why, where they say it."""

    score: float
    reason: str | None = None


@dataclass(frozen=True)
class Comparison:
    """A dialogue and two responses, with the models that wrote them and, where known, the right verdict.

    ``label`` is the human (or world's) verdict, in this comparison's own order. Training reads it with
    ``label.source=given`` alone. ``group`` is a subset or scenario name for per-group tables. ``made`` says how the
    pair was constructed, where its better side is known by construction (``responses.contrast``). ``rubric``: the
    criteria that it is to be judged by, where they are given. ``rating_a`` and ``rating_b``: what people say of each
    response by itself; the ``label`` then says which is rated higher. A response that nothing else is set against is
    :attr:`alone`: it stands as ``response_a``, with its rating, and ``response_b`` is empty.
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
        cls, prompt: Prompt, response_a: str, response_b: str, reference: str | None = None, **fields: Any
    ) -> Comparison:
        """A comparison of two responses to a prompt; ``fields`` are the others of this class.

        Its ``id``, unless given, is made of the text: the same texts have the same id.

        Raises:
            DataError: the prompt is no prompt (:func:`messages_of`).
        """
        messages = messages_of(prompt)
        asked = [asdict(m) for m in messages]
        dialogue = Dialogue(_id_of(asked), "given", messages, reference)
        name = fields.pop("id", None) or _id_of([asked, response_a, response_b])
        return cls(name, dialogue, response_a, response_b, **fields)

    @property
    def content(self) -> str:
        """16 hexadecimal digits that its texts alone decide, in their order: not its id, label or group."""
        return _id_of([[asdict(m) for m in self.dialogue.messages], self.response_a, self.response_b])

    @property
    def number(self) -> int:
        """A number below 2**40 that its texts alone decide, whatever it is called and wherever it stands.

        A judge's random numbers for it follow from this, so that it is judged alike alone and among others.
        """
        return int(self.content[:10], 16)

    @property
    def alone(self) -> bool:
        """Whether it is one rated response, which is judged by itself alone (in order A)."""
        return self.rating_a is not None and self.rating_b is None and not self.response_b

    @property
    def forfeit(self) -> Verdict | None:
        """The verdict where a response holds no text: it loses, whoever judges, and two such are a tie. Else None."""
        if self.alone:
            return None
        a, b = bool(self.response_a.strip()), bool(self.response_b.strip())
        return None if a and b else "A" if a else "B" if b else "tie"

    @property
    def longer(self) -> Verdict:
        """The response with more characters, blanks around it left out; a tie at equal length."""
        a, b = len(self.response_a.strip()), len(self.response_b.strip())
        return "tie" if a == b else "A" if a > b else "B"

    @property
    def characters(self) -> int:
        """How much text there is to read: the dialogue and both responses."""
        return sum(len(m.content) for m in self.dialogue.messages) + len(self.response_a) + len(self.response_b)

    def swapped(self) -> Comparison:
        """The same comparison with the responses (and the label) exchanged."""
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
        """A JSON-ready dictionary; the inverse of :meth:`from_row`."""
        row = _rubric_row(asdict(self) | {"dialogue": self.dialogue.to_row()}, self.rubric)
        return {name: value for name, value in row.items() if value is not None or name not in _SELDOM}

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Comparison:
        """Read back what :meth:`to_row` wrote."""
        found = {name: Rating(**row[name]) for name in ("rating_a", "rating_b") if row.get(name)}
        rubric = Rubric.from_row(row["rubric"]) if row.get("rubric") else None
        return cls(**(row | found | {"dialogue": Dialogue.from_row(row["dialogue"]), "rubric": rubric}))


def _rubric_row(row: dict[str, Any], rubric: Rubric | None) -> dict[str, Any]:
    del row["rubric"]
    return row if rubric is None else row | {"rubric": rubric.to_row()}


_SELDOM = ("made", "rating_a", "rating_b")
"""Fields of a comparison that its row leaves out where they are None."""


@dataclass(frozen=True)
class Candidates:
    """Responses to one dialogue, each to be scored by itself; ``rubric``: by which criteria, where they are given.

    Raises:
        DataError: no response.
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
        cls, prompt: Prompt, responses: Sequence[str], reference: str | None = None, rubric: Rubric | None = None
    ) -> Candidates:
        """Responses to a prompt.

        Raises:
            DataError: the prompt is no prompt (:func:`messages_of`), or there is no response.
        """
        messages = messages_of(prompt)
        name = _id_of([asdict(m) for m in messages])
        return cls(name, Dialogue(name, "given", messages, reference), tuple(responses), rubric)


def _id_of(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
