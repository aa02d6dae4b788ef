"""The answers of stage ``selfeval``: one to a query, and to several questions in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed, tokens_of
from judgetrain.engines.base import Request, Sampling, shard_of
from judgetrain.schema import Dialogue, Message
from judgetrain.scorers.config import SelfEvalConfig
from judgetrain.scorers.encode import Messages
from judgetrain.scorers.stages import SelfEvalSettings

if TYPE_CHECKING:
    from judgetrain.scorers.statistics import TokenScorer

Row = dict[str, Any]


def respond(
    dialogues: Sequence[Dialogue], scorer: Callable[[], TokenScorer], settings: SelfEvalSettings, out: StageRun
) -> None:
    """Write ``responses`` shards, one row an answer, sampled at the category's temperature where one is set.

    Questions that follow each other without an answer (MT-Bench's two turns) are answered in turn, each after the
    model's own answers to those before it; a question whose predecessor got no answer is not asked. Rows of such
    dialogues hold their whole prompt; the ids of the earlier answers end in ``#`` and the question's number.
    """

    def process(index: int, items: Sequence[Dialogue]) -> ShardResult:
        seed, asked = derive_seed(out.shard_seed(index), "responses"), [questions(dialogue) for dialogue in items]
        rows: list[list[Row]] = [[] for _ in items]
        parts: list[ShardResult] = []
        for turn in range(max(map(len, asked), default=0)):
            going = [i for i, own in enumerate(asked) if turn < len(own) and all(row["text"] for row in rows[i])]
            chats = [_after(asked[i][: turn + 1], [row["text"] for row in rows[i]]) for i in going]
            requests = [
                Request(messages=c, sampling=_sampling(items[i], settings)) for i, c in zip(going, chats, strict=True)
            ]
            done = scorer().generate(requests, derive_seed(seed, turn) if turn else seed)
            named = [_named(items[i], chat, turn, len(asked[i])) for i, chat in zip(going, chats, strict=True)]
            parts.append(shard_of(named, done))
            for i, row in zip(going, parts[-1].rows, strict=True):
                rows[i].append(dict(row))
        dropped: Counter[str] = sum((Counter(part.dropped) for part in parts), Counter())
        return ShardResult([row for own in rows for row in own], len(items), dropped, **tokens_of(parts))

    out.sharded("responses", dialogues, settings.scorer.shard_size, process, "prompts", scorer, spread=True)


def questions(dialogue: Dialogue) -> list[Messages]:
    """The dialogue's messages up to its first open question, then each further one by itself.

    A question is open if no answer follows it; a dialogue that ends in one question has one part.
    """
    messages = [{"role": m.role, "content": m.content} for m in dialogue.messages]
    first = len(messages)
    while first > 1 and messages[first - 2]["role"] == messages[first - 1]["role"] == "user":
        first -= 1
    return [tuple(messages[:first]), *((message,) for message in messages[first:])]


def answered_dialogues(dialogues: Sequence[Dialogue], responses: Sequence[Mapping[str, Any]]) -> list[Dialogue]:
    """The dialogue that each row of ``responses`` answers.

    Of several questions in turn the reference is the last one's; the others have none.
    """
    by_id = {dialogue.id: dialogue for dialogue in dialogues}
    result = []
    for row in responses:
        name = row["dialogue_id"]
        dialogue = by_id.get(name) or by_id[name.rpartition("#")[0]]
        if "messages" in row:
            said = tuple(Message(**message) for message in row["messages"])
            reference = dialogue.reference if dialogue.id == name else None
            dialogue = replace(dialogue, id=name, messages=said, reference=reference)
        result.append(dialogue)
    return result


def _after(parts: Sequence[Messages], answers: Sequence[str]) -> Messages:
    """The prompt of the last part: all parts, with the answers to those before it."""
    chat = list(parts[0])
    for answer, part in zip(answers, parts[1:], strict=True):
        chat += [{"role": "assistant", "content": answer}, *part]
    return tuple(chat)


def _sampling(dialogue: Dialogue, settings: SelfEvalSettings) -> Sampling:
    config = settings.selfeval
    return replace(Sampling.of(config.sampling), temperature=temperature_of(dialogue, config))


def temperature_of(dialogue: Dialogue, config: SelfEvalConfig) -> float:
    """The temperature that a dialogue is answered at: its category's where one is set."""
    return config.temperatures.get(dialogue.category or "", config.sampling.temperature)


def _named(dialogue: Dialogue, chat: Messages, turn: int, turns: int) -> Row:
    if turns == 1:
        return {"dialogue_id": dialogue.id}
    name = dialogue.id if turn == turns - 1 else f"{dialogue.id}#{turn + 1}"
    return {"dialogue_id": name, "messages": [dict(message) for message in chat]}
