"""The schema every source is read into: dialogues, and comparisons of two responses to one dialogue."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Verdict = Literal["A", "B", "tie"]
Order = Literal["AB", "BA"]
ORDERS: tuple[Order, Order] = ("AB", "BA")

_MIRROR: dict[str, Verdict] = {"A": "B", "B": "A", "tie": "tie"}


def mirror(verdict: Verdict) -> Verdict:
    """The verdict on the same two responses shown in the other order."""
    return _MIRROR[verdict]


@dataclass(frozen=True)
class Message:
    """One turn of a dialogue. ``role`` is ``system``, ``user`` or ``assistant``."""

    role: str
    content: str


@dataclass(frozen=True)
class Dialogue:
    """A dialogue whose last message is the user's query.

    ``id`` is unique over all sources (``source:local-id``). ``reference`` is the corpus' own answer and
    ``category`` the corpus' own label, where it has them.
    """

    id: str
    source: str
    messages: tuple[Message, ...]
    reference: str | None = None
    category: str | None = None

    @property
    def query(self) -> str:
        """The last user message."""
        return self.messages[-1].content

    @property
    def context(self) -> str:
        """All messages before the query as ``Role: text`` lines; empty for a single-turn dialogue."""
        return "\n".join(f"{m.role.capitalize()}: {m.content}" for m in self.messages[:-1])

    def to_row(self) -> dict[str, Any]:
        """A JSON-ready dictionary; the inverse of :meth:`from_row`."""
        return asdict(self) | {"messages": [asdict(m) for m in self.messages]}

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Dialogue:
        """Read back what :meth:`to_row` wrote."""
        messages = tuple(Message(m["role"], m["content"]) for m in row["messages"])
        return cls(row["id"], row["source"], messages, row.get("reference"), row.get("category"))


@dataclass(frozen=True)
class Comparison:
    """A dialogue and two responses, with the models that wrote them and, where known, the right verdict.

    ``label`` is the human (or world's) verdict, in this comparison's own order. Training reads it with
    ``label.source=given`` alone. ``group`` is a subset or scenario name for per-group tables. ``made`` says how the
    pair was constructed, where its better side is known by construction (``responses.contrast``).
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

    def swapped(self) -> Comparison:
        """The same comparison with the responses (and the label) exchanged."""
        return replace(
            self,
            response_a=self.response_b,
            response_b=self.response_a,
            model_a=self.model_b,
            model_b=self.model_a,
            label=None if self.label is None else mirror(self.label),
        )

    def to_row(self) -> dict[str, Any]:
        """A JSON-ready dictionary; the inverse of :meth:`from_row`."""
        row = asdict(self) | {"dialogue": self.dialogue.to_row()}
        if self.made is None:
            del row["made"]
        return row

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Comparison:
        """Read back what :meth:`to_row` wrote."""
        return cls(**(row | {"dialogue": Dialogue.from_row(row["dialogue"])}))
