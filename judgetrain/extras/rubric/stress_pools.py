"""The responses that stage ``stress`` has a rubric choose among, and edits that make none of them better."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from judgetrain.amounts import agree, amount
from judgetrain.artifacts.losses import Losses
from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.data.labelled import OVERALL
from judgetrain.data.sources import Rejects, read, row_reader
from judgetrain.data.world import SKILL, of_source, world_of
from judgetrain.errors import DataError
from judgetrain.extras.rubric.config import LABELS
from judgetrain.judging.items import KEY, JudgedRow, read_items, unread
from judgetrain.rubrics import Criterion, Rubric, criterion_key
from judgetrain.schema import Dialogue, Message, Verdict

if TYPE_CHECKING:
    from judgetrain.extras.rubric.stress_stages import StressSettings

LONGER = "length"
"""The edit that says everything twice: more text, and nothing more in it."""
WORDS = "words"
"""The edit that adds a criterion's own words, and nothing that does what they say."""
FEWEST = 2
"""Responses to a prompt, of fewer of which nothing can be chosen."""
WORTH: Mapping[Verdict, tuple[float, float]] = {"A": (1.0, 0.0), "B": (0.0, 1.0), "tie": (0.5, 0.5)}
"""What two responses are worth by the label of their comparison."""


@dataclass(frozen=True)
class Pool:
    """The responses to one prompt, of which a rubric chooses.

    Args:
        id: of the first row with the prompt.
        dialogue: the prompt.
        responses: two at least; none where they are still to be written.
        truth: what each is worth by its label; none where somebody else says it.
    """

    id: str
    dialogue: Dialogue
    responses: tuple[str, ...] = ()
    truth: tuple[float, ...] = ()


@dataclass(frozen=True)
class Edit:
    """A response that was changed so that it is no better.

    Args:
        kind: :data:`LONGER` or :data:`WORDS`.
        criterion: whose words are added, by its key; empty for another kind.
        text: the changed response.
    """

    kind: str
    criterion: str
    text: str


def key_of(criterion: Criterion) -> str:
    """Return a criterion's key, by which a judge's scores name it."""
    return criterion_key(criterion.name or criterion.line)


def edits_of(response: str, rubric: Rubric) -> list[Edit]:
    """Return the edits of a response: one that is longer, and one with the words of each criterion."""
    edits = [Edit(LONGER, "", f"{response} {response}")]
    for criterion in rubric.criteria:
        edits.append(Edit(WORDS, key_of(criterion), f"{response} {criterion.text}"))
    return edits


def pools_of(settings: StressSettings, say: Callable[[str], object]) -> list[Pool]:
    """Return the prompts with their responses, which are still to be written where there is a writer.

    Args:
        settings: of the stage.
        say: called with lines about rows that are left out and columns that are not used.

    Raises:
        DataError: no prompt is left; says why.
    """
    losses = Losses()
    if settings.stress.writer is not None:
        pools = _to_be_written(settings, say, losses)
    elif settings.uses_world:
        pools = _of_world(settings)
    else:
        items = read_items(settings.verdicts, settings.world, settings.seed, say)
        pools = list(_of_rows(items, settings.stress.truth == LABELS, losses))
    for sentence in losses.sentences(len(pools) + losses.total(), {}, "prompts and rows"):
        say(sentence)
    if not pools:
        reasons = ", ".join(f"{reason} ({count})" for reason, count in losses.items())
        raise DataError(
            f"verdicts.source: no prompt has responses to choose from ({reasons}); expected rows with responses, a "
            "list of two or more, several rows with one response to the same prompt, or two responses to compare"
        )
    return pools


def _of_world(settings: StressSettings) -> list[Pool]:
    """Return held-out queries of the generated world, each with responses of its writers."""
    assert settings.world is not None
    world = world_of(of_source(settings.world, settings.verdicts.source), settings.seed)
    pools = []
    for item in read_items(settings.verdicts, settings.world, settings.seed):
        comparison = item.comparison
        rng = random.Random(derive_seed(settings.seed, "stress", comparison.id))
        query = comparison.dialogue.query
        responses = [world.respond(query, SKILL, rng) for _ in range(settings.stress.samples)]
        pools.append(Pool(comparison.id, comparison.dialogue, tuple(responses)))
    return pools


def _to_be_written(settings: StressSettings, say: Callable[[str], object], losses: Losses) -> list[Pool]:
    """Return the prompts of a source, each once, without responses."""
    dialogues: list[Dialogue]
    if settings.uses_world:
        items = read_items(settings.verdicts, settings.world, settings.seed)
        dialogues = [item.comparison.dialogue for item in items]
    else:
        source = settings.verdicts.source
        reader = row_reader(source, KEY)

        def keep(row: Mapping[str, Any]) -> None:
            item = unread(source.name, row)
            losses.lose(str(row["reason"]), item.failure or "")

        rejects = Rejects(strict=False, keep=keep)
        dialogues = list(read(source, KEY, reader.dialogue, rejects))
        reader.tell(say)
    pools: dict[tuple[Message, ...], Pool] = {}
    for dialogue in dialogues:
        pools.setdefault(dialogue.messages, Pool(dialogue.id, dialogue))
    return list(pools.values())


def _of_rows(items: Sequence[JudgedRow], labelled: bool, losses: Losses) -> Iterator[Pool]:
    """Yield the prompts of rows with all responses that they have, and what these are worth by their labels.

    Args:
        items: the rows.
        labelled: True: responses without a label are left out.
        losses: counts what is left out.
    """
    by_prompt: dict[tuple[Message, ...], list[tuple[JudgedRow, str, float]]] = {}
    for item in items:
        if item.failure is not None:
            losses.lose(item.failure.partition(":")[0], item.failure)
            continue
        dialogue = (item.group or item.comparison).dialogue
        responses = _responses_of(item)
        worth = _worth_of(item)
        if labelled and worth is None:
            losses.lose("no_label", f"row {item.comparison.id}")
            continue
        # Without labels somebody else says it later.
        values = worth or [0.0] * len(responses)
        of_prompt = by_prompt.setdefault(dialogue.messages, [])
        for response, value in zip(responses, values, strict=True):
            if response.strip():
                of_prompt.append((item, response, value))
    for messages, responses_of_prompt in by_prompt.items():
        if len(responses_of_prompt) < FEWEST:
            # By the user's words, since a prompt has several rows or none.
            losses.lose("one_response", messages[-1].content[:80])
            continue
        first = responses_of_prompt[0][0]
        yield Pool(
            id=first.comparison.id,
            dialogue=(first.group or first.comparison).dialogue,
            responses=tuple(response for _, response, _ in responses_of_prompt),
            truth=tuple(value for _, _, value in responses_of_prompt) if labelled else (),
        )


def _responses_of(item: JudgedRow) -> list[str]:
    """Return the responses of a row."""
    if item.group is not None:
        return list(item.group.responses)
    return [item.comparison.response_a, item.comparison.response_b]


def _worth_of(item: JudgedRow) -> list[float] | None:
    """Return what the responses of a row are worth by its label, each 0 to 1; None where there is none."""
    if item.group is None:
        label = item.comparison.label
        return None if label is None else list(WORTH[label])
    share = item.labels.get(OVERALL)
    return None if share is None else [share]


def about(pools: Sequence[Pool], samples: int, path: str) -> str:
    """Return a sentence on what is chosen from; ``path``: the rubric's file."""
    count = len(pools)
    waiting = sum(not pool.responses for pool in pools)
    if waiting:
        of_each = amount(samples, "response")
        return f"{amount(count, 'prompt')}, {of_each} to each to be written, chosen by {path}"
    total = sum(len(pool.responses) for pool in pools)
    return f"{amount(count, 'prompt')} {agree(count, 'have')} {amount(total, 'response')}, chosen by {path}"
