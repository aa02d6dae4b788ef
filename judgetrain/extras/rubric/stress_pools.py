"""The responses that stage ``stress`` has a rubric choose among, and edits that make none of them better."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

from judgetrain.amounts import agree, amount
from judgetrain.artifacts.losses import Losses
from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.data.labelled import OVERALL
from judgetrain.data.sources import Rejects, read, row_reader
from judgetrain.data.votes import as_shown, messages_as_shown
from judgetrain.data.world import SKILL, of_source, world_of
from judgetrain.errors import DataError
from judgetrain.extras.rubric.config import LABELS
from judgetrain.judging.items import KEY, JudgedRow, read_items, unread
from judgetrain.judging.votes import labels_that_count, response_labels_that_count
from judgetrain.rubrics import Criterion, Rubric, criterion_key
from judgetrain.schema import Dialogue, Verdict

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
        pools = list(_of_rows(items, settings.stress.truth == LABELS, losses, say))
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
    pools: dict[Hashable, Pool] = {}
    for dialogue in dialogues:
        pools.setdefault(messages_as_shown(dialogue), Pool(dialogue.id, dialogue))
    return list(pools.values())


def _of_rows(
    items: Sequence[JudgedRow], labelled: bool, losses: Losses, say: Callable[[str], object] = lambda line: None
) -> Iterator[Pool]:
    """Yield the prompts of rows with all responses that they have, and what these are worth by their labels.

    A response is one however many rows it stands in, and its worth is the mean of what each pair and each label of it
    alone say. Rows on one pair, or on one response, are one label there, as in stage ``judge``.

    Args:
        items: the rows.
        labelled: True: responses without a label are left out.
        losses: counts what is left out.
        say: takes sentences about pairs and responses that several rows label.
    """
    counting = labels_that_count(items, say).by_id if labelled else {}
    counting_of_responses = response_labels_that_count(items, say) if labelled else {}
    by_prompt: dict[Hashable, _Prompt] = {}
    for item in items:
        name = item.comparison.id
        if item.failure is not None:
            losses.lose(item.failure.partition(":")[0], item.failure)
            continue
        responses = _responses_of(item)
        worth: Sequence[float] | None = None
        if labelled:
            if not _has_label(item):
                losses.lose("no_label", f"row {name}")
                continue
            if len(responses) > 1 and len(set(map(as_shown, responses))) == 1:
                # Its label says that a text is better than itself.
                losses.lose("equal_responses", f"row {name}")
                continue
            worth = _worth_of(
                item, counting.get(name, item.comparison.label), counting_of_responses.get(name, item.labels)
            )
        dialogue = (item.group or item.comparison).dialogue
        prompt = by_prompt.setdefault(messages_as_shown(dialogue), _Prompt(name, dialogue))
        prompt.add(responses, worth)
    for prompt in by_prompt.values():
        texts = list(prompt.responses.values())
        if labelled:
            # Where as many rows say one as say the other, nothing is known.
            losses.lose_all("no_majority", (text.text[:80] for text in texts if not text.worths))
            texts = [text for text in texts if text.worths]
        if len(texts) < FEWEST:
            # By the user's words, since a prompt has several rows or none.
            losses.lose("one_response", prompt.dialogue.messages[-1].content[:80])
            continue
        yield Pool(
            id=prompt.id,
            dialogue=prompt.dialogue,
            responses=tuple(text.text for text in texts),
            truth=tuple(fmean(text.worths) for text in texts) if labelled else (),
        )


@dataclass
class _Response:
    """A response to a prompt.

    Args:
        text: as it is spelled where it first stands.
        worths: what it is worth by each pair, and by each label of it alone.
    """

    text: str
    worths: list[float] = field(default_factory=list)


@dataclass
class _Prompt:
    """A prompt, and the responses that rows have to it.

    Args:
        id: of the first row with the prompt.
        dialogue: the prompt.
        responses: by their texts as a reader sees them.
    """

    id: str
    dialogue: Dialogue
    responses: dict[str, _Response] = field(default_factory=dict)

    def add(self, responses: Sequence[str], worths: Sequence[float] | None) -> None:
        """Add the responses of a row, but for empty ones, and what they are worth by it; None: it says nothing."""
        for place, text in enumerate(responses):
            seen = as_shown(text)
            if not seen:
                continue
            response = self.responses.setdefault(seen, _Response(text))
            if worths is not None:
                response.worths.append(worths[place])


def _responses_of(item: JudgedRow) -> list[str]:
    """Return the responses of a row."""
    if item.group is not None:
        return list(item.group.responses)
    return [item.comparison.response_a, item.comparison.response_b]


def _has_label(item: JudgedRow) -> bool:
    """Return whether people labelled the pair or the response of a row, also where their votes tie."""
    if item.group is None:
        return item.comparison.label is not None
    return bool(item.votes.get(OVERALL))


def _worth_of(item: JudgedRow, label: Verdict | None, labels: Mapping[str, float | None]) -> list[float] | None:
    """Return what the responses of a row are worth by the label that counts, each 0 to 1; None where there is none.

    Args:
        item: the row.
        label: of its pair.
        labels: of its only response, by criterion.
    """
    if item.group is None:
        return None if label is None else list(WORTH[label])
    share = labels.get(OVERALL)
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
