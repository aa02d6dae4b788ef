"""What clients send and get, as OpenAPI publishes it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from judgetrain.extras.server.config import LIMITS
from judgetrain.judges.base import BothOrders, Prediction, Reason
from judgetrain.schema import Comparison, Verdict


def _writable(text: str) -> str:
    """A text that is one: JSON can hold half of a surrogate pair, which no tokenizer reads and no answer can hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"character {error.start} is half of a surrogate pair, which is no text") from error
    return text


Text = Annotated[str, AfterValidator(_writable)]


class Strict(BaseModel):
    """An object without other fields than its own."""

    model_config = ConfigDict(extra="forbid")


class ChatMessage(Strict):
    """One turn of a dialogue."""

    role: Literal["system", "user", "assistant"]
    content: Text


class ComparisonIn(Strict):
    """Two responses to a prompt: the query as text, or the messages up to it, of which the last is the user's."""

    prompt: Text | None = None
    messages: Annotated[list[ChatMessage], Field(min_length=1)] | None = None
    response_a: Text
    response_b: Text
    id: Text | None = Field(None, description="stands in the answer; made of the texts where it is missing")
    seed: int | None = Field(None, ge=0, lt=2**63, description="of a judge that samples; by default the server's own")
    model_a: Text = ""
    model_b: Text = ""

    @model_validator(mode="after")
    def _one_prompt(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("expected either prompt or messages")
        if self.messages and self.messages[-1].role != "user":
            raise ValueError("messages: expected the last message to be the user's")
        return self

    def comparison(self) -> Comparison:
        """What the judge is asked about."""
        prompt = self.prompt if self.messages is None else [m.model_dump() for m in self.messages]
        assert prompt is not None
        named = {"model_a": self.model_a, "model_b": self.model_b, "id": self.id}
        return Comparison.of(prompt, self.response_a, self.response_b, **named)


class ComparisonsIn(Strict):
    """Many comparisons, which are judged together."""

    comparisons: Annotated[list[ComparisonIn], Field(min_length=1, max_length=LIMITS.comparisons)]


JudgeIn = Annotated[
    Annotated[ComparisonIn, Tag("one")] | Annotated[ComparisonsIn, Tag("many")],
    Discriminator(lambda body: "many" if isinstance(body, dict) and "comparisons" in body else "one"),
]
"""One comparison, or ``{"comparisons": [...]}``."""


class Out(BaseModel):
    """An object made of the attributes of another; numbers that are not known (NaN) are null in JSON."""

    model_config = ConfigDict(from_attributes=True, populate_by_name=True)


class CostOut(Out):
    """Of a verdict in one order; null where it is not known."""

    prompt_tokens: float | None
    generated_tokens: float | None
    calls: float | None


class VerdictOut(Out):
    """The verdict on one comparison, in the comparison's own order."""

    id: str = Field(validation_alias="comparison_id")
    model_a: str = ""
    model_b: str = ""
    verdict: BothOrders
    verdict_ab: Verdict | None = Field(description="with the responses shown as they are")
    verdict_ba: Verdict | None = Field(description="with the responses shown exchanged")
    consistent: bool | None = Field(description="null where one of the orders could not be read")
    margin: float | None = Field(description="mean score of A minus that of B")
    margin_ab: float | None = Field(description="that of the order in which A is shown first")
    margin_ba: float | None = Field(description="that of the other order")
    spread: float | None
    reasons: list[Reason] = Field(description="scores are in the comparison's order")
    judgments: int
    failures: dict[str, int] = Field(description="judgments that could not be read, by reason")
    merged: bool = Field(description="both orders are known as one verdict only")
    judge: str = Field(validation_alias="method")
    asked: str | None
    plan: str | None
    branches: int
    asked_again: int = Field(description="times it was asked anew, since its first branch could not be read")
    summed: Verdict | None = Field(description="the side of the margin, where that is the verdict")
    cost: CostOut

    @classmethod
    def of(cls, comparison: Comparison, prediction: Prediction) -> Self:
        """The prediction on a comparison."""
        named = {"model_a": comparison.model_a, "model_b": comparison.model_b}
        return cls.model_validate(prediction).model_copy(update=named)


class VerdictsOut(BaseModel):
    """Verdicts in the order of the comparisons."""

    verdicts: list[VerdictOut]


class RewardIn(BaseModel):
    """OpenRLHF's request: ``query`` holds prompts with their responses, ``prompts`` the prompts alone."""

    query: Annotated[list[Text], Field(min_length=1, max_length=LIMITS.rewarded)]
    prompts: Annotated[list[Text], Field(max_length=LIMITS.rewarded)]
    labels: Annotated[list[Any], Field(max_length=LIMITS.rewarded)] | None = None

    @model_validator(mode="after")
    def _as_long(self) -> Self:
        for name in ("prompts", "labels"):
            rows = getattr(self, name)
            if rows is not None and len(rows) != len(self.query):
                raise ValueError(f"{name}: expected as many as in query, {len(self.query)}, found {len(rows)}")
        return self


class RewardOut(BaseModel):
    """OpenRLHF's answer: lists of one number a response."""

    rewards: list[float]
    scores: list[float] = Field(description="the rewards, in [0, 1]")
    extra_logs: dict[str, list[float]]
