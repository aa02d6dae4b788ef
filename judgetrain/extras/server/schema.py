"""What clients send and get, as OpenAPI publishes it."""

import json
from dataclasses import replace
from typing import Annotated, Any, Literal, Self, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StrictBool,
    Tag,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from judgetrain.data.rubrics import rubric_of
from judgetrain.errors import DataError
from judgetrain.extras.server.config import LIMITS
from judgetrain.judges.deciding import Decision
from judgetrain.judges.predictions import BothOrders, Prediction, Reason, Step
from judgetrain.messages import is_of_answer, shown_text
from judgetrain.rubrics import Rubric
from judgetrain.schema import Candidates, Comparison


def _writable(text: str) -> str:
    """Return the text.

    Raises:
        ValueError: it holds half of a surrogate pair, as JSON can, which no tokenizer reads.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"character {error.start} is half of a surrogate pair, which is no text") from error
    return text


class FieldError(DataError):
    """A part of a request that cannot be read; ``field`` says where it stands."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


def rubric_in(criteria: Any, field: str) -> Rubric | None:
    """Return the rubric of a request's criteria; None without any.

    Many criteria take a while to read, so that this is called outside the event loop.

    Args:
        criteria: as they were sent.
        field: where they stand in the request.

    Raises:
        FieldError: they are no criteria.
    """
    if criteria is None:
        return None
    try:
        rubric = rubric_of(criteria)
        # All texts of the rubric at once, wherever they stand in it.
        _writable(json.dumps(rubric.to_row(), ensure_ascii=False))
    except (DataError, ValueError) as error:
        raise FieldError(str(error), field) from error
    return rubric


def _none_if_empty(criteria: Any) -> Any:
    """Return criteria as they were sent, and None for an empty text."""
    if criteria == "":
        return None
    return criteria


Text = Annotated[str, AfterValidator(_writable)]
Reasons = Annotated[
    StrictBool | None,
    Field(description="write the reasons, or give scores alone (judges that read one response); else as served"),
]
Criteria = Annotated[Any, AfterValidator(_none_if_empty)]
"""The criteria to judge by: a text with a criterion a line, or a list of criteria (docs/criteria.md), not read yet."""


UNKNOWN = "unknown_field"
"""The type of the error of a field that there is not; its context names the field."""


class Strict(BaseModel):
    """An object without other fields than its own."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _known(cls, data: Any) -> Any:
        """Return the object (PydanticCustomError: it has another field; of a million, the first ends the reading)."""
        if isinstance(data, dict):
            for name in data:
                if name not in cls.model_fields:
                    raise PydanticCustomError(UNKNOWN, "Extra inputs are not permitted", {"field": name})
        return data


class ChatMessage(Strict):
    """One turn of a dialogue."""

    role: Literal["system", "user", "assistant"]
    content: Text


def _check_query(messages: list[ChatMessage]) -> list[ChatMessage]:
    """Return messages (ValueError: the last one is the user's and says nothing)."""
    last = messages[-1]
    if last.role == "user" and not last.content.strip():
        raise ValueError(NO_QUERY)
    return messages


NO_QUERY = "expected a query, found only white space"
Messages = Annotated[list[ChatMessage], Field(fail_fast=True, min_length=1), AfterValidator(_check_query)]
"""A dialogue up to its query."""


class ComparisonIn(Strict):
    """One response to a prompt or two: the query as text, or the messages up to it, of which the last is the user's."""

    prompt: Text | None = None
    messages: Messages | None = None
    response_a: Text
    response_b: Text | None = Field(None, description="without it the first is scored by itself")
    criteria: Criteria = Field(None, description="a criterion a line, or a list of criteria; else the judge's own")
    reference: Text | None = Field(None, description="a reference answer")
    id: Text | None = Field(None, description="stands in the answer; made of the texts where it is missing")
    seed: int | None = Field(None, ge=0, lt=2**63, description="of a judge that samples; by default the server's own")

    @model_validator(mode="after")
    def _one_prompt(self) -> Self:
        """Return the comparison (ValueError: no prompt, two of them, or one that does not end with the user)."""
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("expected either prompt or messages")
        if self.prompt is not None and not self.prompt.strip():
            raise ValueError(f"prompt: {NO_QUERY}")
        if self.messages and self.messages[-1].role != "user":
            raise ValueError("messages: expected the last message to be the user's")
        return self

    def judged(self, place: str = "") -> Comparison | Candidates:
        """Return the comparison that is judged, or the one response that is scored.

        Args:
            place: of this row in the request, as ``comparisons[0].``; empty where it is the request.

        Raises:
            FieldError: its criteria cannot be read.
        """
        rubric = rubric_in(self.criteria, f"{place}criteria")
        prompt: Any = self.prompt
        if self.messages is not None:
            prompt = [message.model_dump() for message in self.messages]
        if self.response_b is None:
            candidates = Candidates.of(prompt, [self.response_a], self.reference, rubric)
            return replace(candidates, id=self.id or candidates.id)
        return Comparison.of(prompt, self.response_a, self.response_b, self.reference, id=self.id, rubric=rubric)


class OneIn(ComparisonIn):
    """One comparison, or one response, by itself."""

    reasons: Reasons = None


class ComparisonsIn(Strict):
    """Many comparisons, which are judged together, with reasons or without."""

    comparisons: Annotated[list[ComparisonIn], Field(fail_fast=True, min_length=1, max_length=LIMITS.comparisons)]
    reasons: Reasons = None


def _form(body: Any) -> str:
    """Return ``many`` for a request with a list of comparisons, else ``one``."""
    if isinstance(body, dict) and "comparisons" in body:
        return "many"
    return "one"


# Told apart before they are validated, so that an error is about the form that was meant, and not about both.
JudgeIn = Annotated[Annotated[OneIn, Tag("one")] | Annotated[ComparisonsIn, Tag("many")], Discriminator(_form)]
"""One comparison, or ``{"comparisons": [...]}``."""


class CostOut(BaseModel):
    """The cost of a verdict in one order; null where it is not known."""

    model_config = ConfigDict(from_attributes=True)

    prompt_tokens: float | None
    generated_tokens: float | None
    calls: float | None


def _verdict_fields() -> dict[str, Any]:
    """Return the fields of a verdict as Pydantic defines them: those of :class:`Prediction`, two by shorter names."""
    # Read off the class, so that what a judge in Python returns and what the server sends cannot drift apart.
    types = get_type_hints(Prediction)
    fields: dict[str, Any] = {
        "id": (types.pop("comparison_id"), Field(validation_alias="comparison_id")),
        "judge": (types.pop("method"), Field(validation_alias="method")),
        # Properties of a prediction, which are none of its fields.
        "verdict": (BothOrders, ...),
        "consistent": (bool | None, Field(description="null where one of the orders could not be read")),
    }
    for name, kind in types.items():
        fields[name] = (kind, ...)
    # A cost that is not known is NaN in Python, for which JSON has null alone.
    fields["cost"] = (CostOut, ...)
    return fields


VerdictOut: Any = create_model(  # type: ignore[call-overload]
    "VerdictOut",
    __config__=ConfigDict(from_attributes=True, populate_by_name=True),
    __doc__="The verdict on one comparison, in the comparison's own order: a Prediction (docs/using.md).",
    **_verdict_fields(),
)


class ScoreOut(BaseModel):
    """The score of one response: a Score (docs/using.md). ``value`` is null where no judgment could be read."""

    id: str
    judge: str
    value: float | None
    cost: CostOut
    failures: dict[str, int]
    reasons: tuple[Reason, ...]
    decision: Decision | None = Field(description="whether it decides, by the judge's thresholds; null without any")
    passes: bool | None = Field(description="whether the response passes, where that is decided")
    passes_from: str = Field(description="the lowest level of people's labels that passes; empty without thresholds")
    steps: tuple[Step, ...] = Field(description="the members' answers, of a cascade or a jury")


class VerdictsOut(BaseModel):
    """Verdicts in the order of the comparisons."""

    verdicts: list[VerdictOut | ScoreOut]


class RewardIn(Strict):
    """OpenRLHF's request: ``query`` holds prompts with their responses, ``prompts`` the prompts alone."""

    query: Annotated[list[Text], Field(fail_fast=True, min_length=1, max_length=LIMITS.rewarded)]
    prompts: Annotated[list[Text], Field(fail_fast=True, max_length=LIMITS.rewarded)]
    labels: Annotated[list[Any], Field(max_length=LIMITS.rewarded)] | None = None
    reasons: Reasons = None

    @model_validator(mode="after")
    def _as_long(self) -> Self:
        """Return the request (ValueError: its lists are not equally long)."""
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


class ResponseObject(BaseModel):
    """A response as OpenAI's Responses API has it: messages, calls of tools, what they answered, and reasoning."""

    output: list[Any]

    def shown(self, field: str) -> str:
        """Return what a reader sees of it: all but the reasoning.

        Args:
            field: where it stands in the request.

        Raises:
            FieldError: an item cannot be read, or is a message of somebody else, behind which there would be no answer.
        """
        for item in self.output:
            role = None
            if isinstance(item, dict):
                role = item.get("role")
            if role in ("user", "system", "developer") and not is_of_answer(item):
                raise FieldError(f"expected what the policy wrote, found a message of role {role!r}", field)
        try:
            return _writable(shown_text(self.output))
        except (DataError, ValueError) as error:
            raise FieldError(str(error), field) from error


class CompareIn(Strict):
    """NeMo Gym's request (``resources_servers/genrm_compare``); ``principle``: what to judge by."""

    conversation_history: Messages
    response_objs: Annotated[list[ResponseObject], Field(fail_fast=True, max_length=LIMITS.responses)]
    principle: Criteria = None
    reasons: Reasons = None


class CompareOut(BaseModel):
    """NeMo Gym's answer; a response of which nothing could be read has null as reward, and its pair no result.

    ``score_1``, ``score_2``: 1 to 5, where the judge gives scores; ``ranking``: 1 (the first is much better) to 6;
    ``decided``: 1, or 0 where the judge's thresholds leave a pair undecided, if it has any.
    """

    rewards: list[float | None]
    comparison_results: list[dict[str, float]]
    metrics: dict[str, float]
