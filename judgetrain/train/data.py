"""Training rows as TRL data sets: rendered as engines render prompts, each with an end, length-checked and in order.

Rows are tokenised one by one into a table on disk, which every process of the training maps into its memory. So a
process holds no more of a row than its length.
"""

from __future__ import annotations

import itertools
import math
import random
import shutil
import unicodedata
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.fingerprint import fingerprint
from judgetrain.artifacts.losses import Losses
from judgetrain.artifacts.shards import Rows, read_rows
from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.answer_tokens import answer_after, continuation, token_ids
from judgetrain.engines.prompting import accepted, neutralise_messages
from judgetrain.engines.unknown import UnknownText, unknown_pieces
from judgetrain.errors import TrainingError
from judgetrain.judges.prompting.parsing import read_by_frames
from judgetrain.judges.trees.schema import both_sides
from judgetrain.thoughts import opened_by
from judgetrain.train.config import DpoConfig

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

Row = dict[str, Any]
Messages = Sequence[Mapping[str, str]]
Tokens = Mapping[str, "array[int]"]
PAIR = "pair"
"""The column of a pair's :func:`digest`."""
REFERENCE_COLUMNS = ("ref_chosen_logps", "ref_rejected_logps")
"""The columns in which TRL's DPO trainer looks for the reference's log-probabilities (sums over tokens, nats)."""
READ_BACK = 8
"""Rows of a level whose answers are read back as a judge's replies are, before any is trained on."""
WAITING = 100
"""Rows held until they are written to a table."""
BUCKET = 16
"""Number of batches whose examples are sorted by length together, so that little of a batch is padding."""
REMINDED = 8
"""Pairs for each supervised example of a level without pairs.

A judge of the quickstart whose pairs were of lists alone no longer ended 103 of 1,043 judgments; so, it was 1 of 1,013.
"""
UNEVEN = frozenset({"apo_down", "bco_pair", "nca_pair", "sppo_hard"})
"""Losses of TRL under which a pair of equal sides is no example: they move it, or others by it. For instance apo_down
makes both its sides less likely."""
_SIDES = ("completion", "chosen", "rejected")
_SUPERVISED = {"input_ids": "int32", "completion_mask": "int8"}
_PREFERENCE = {"prompt_ids": "int32", "chosen_ids": "int32", "rejected_ids": "int32"}
"""Columns of token ids (lists), as TRL's trainers take them, by type."""


class WithReminders(Rows):
    """Preference pairs, and behind them a few supervised examples of the levels that no pair is of.

    What pairs do not teach they move all the same: a judge that learned from lists of criteria alone may not end its
    judgments any more. An example is a pair of equal sides. It prefers nothing, so that only the supervised term of
    ``train.dpo.sft_weight`` learns from it, but for the losses :data:`UNEVEN`.
    """

    @cached_property
    def reminders(self) -> Collection[int]:
        """Return the places of the added examples among the supervised ones: one for :data:`REMINDED` pairs, drawn."""
        levels_with_pairs = {row.get("level") for row in super().__iter__()}
        places = []
        for place, row in enumerate(self._supervised()):
            if row.get("level") not in levels_with_pairs:
                places.append(place)
        count = min(len(places), super().__len__() // REMINDED)
        # A seed of its own: what is added is the same in every run on these pairs.
        return frozenset(random.Random(0).sample(places, count))

    def __iter__(self) -> Iterator[Row]:
        yield from super().__iter__()
        if not self.reminders:
            return
        for place, row in enumerate(self._supervised()):
            if place in self.reminders:
                answer = row["completion"]
                yield {"prompt": row["prompt"], "chosen": answer, "rejected": answer, "level": row["level"]}

    def __len__(self) -> int:
        return super().__len__() + len(self.reminders)

    def _supervised(self) -> Iterable[Row]:
        """Return the supervised examples of stage label's artifact."""
        return read_rows(self.directory, "sft-train")


def pairs_of(label: Path, config: DpoConfig) -> Rows:
    """Return the pairs that stage dpo trains on: with reminders if its loss can learn from them as examples.

    Args:
        label: the artifact of stage label.
        config: settings of stage dpo.
    """
    learns_from_equal_sides = config.sft_weight and config.trainer.get("loss_type") not in UNEVEN
    if learns_from_equal_sides:
        return WithReminders(label, "pairs-train")
    return Rows(label, "pairs-train")


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Rows that fit, in a table of token ids, and how many rows did not fit."""

    data: Dataset
    """Columns ``input_ids``, ``completion_mask``; or ``prompt_ids``, ``chosen_ids``, ``rejected_ids``, ``pair``."""
    lengths: Sequence[int]
    """The length of each row's prompt with its longest completion, in tokens."""
    dropped: Mapping[str, int]
    """Numbers of rows left out, by reason: ``too_long``, and ``all_masked``, of whose completions the chat template
    renders nothing, so that they would carry no loss."""
    remarks: tuple[str, ...] = ()
    """Sentences for the log on what is trained beyond what the chat template writes."""
    losses: tuple[str, ...] = ()
    """Sentences for the log on what left out a large part of the rows."""
    pairs: Sequence[tuple[int, int, bool]] = ()
    """Judgments of the two responses of a comparison: the rows of the better one's and of the worse one's, and whether
    both are as good."""
    unpaired: int = 0
    """The number of judgments of one response without such a pair."""
    comparisons: Sequence[int] = ()
    """Of each row, the number of the comparison that it is of; a row that names none has a number of its own."""

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass
class Renderer:
    """Renders rows with a chat template, exactly as engines render the prompt.

    A template may render an answer otherwise than its own prompt begins it; the answer then follows the prompt all the
    same. Reasoning that the prompt opens is closed at once (``<think>``, ``</think>``), which is how Qwen3 writes an
    answer without any: a judge is taught answers, not thoughts.

    Args:
        tokenizer: of the model that is trained.
        ends: the token ids on which generation stops. An answer after which the template writes none of them gets the
            tokenizer's end token, since a judge that never saw one would write to its token limit.
        frames: of the prompt set by which the judge's replies will be read.
    """

    tokenizer: PreTrainedTokenizerBase
    ends: Collection[int]
    frames: Mapping[str, str] | None = None
    remarks: dict[str, None] = field(default_factory=dict)
    """Sentences for the log on what training does beyond the template: a set that keeps its order."""

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> Renderer:
        """Return a renderer for a model that stops at its tokenizer's end token alone."""
        return cls(tokenizer, {tokenizer.eos_token_id} - {None})

    @cached_property
    def unknown(self) -> UnknownText:
        """Count the texts that the tokenizer has no tokens for."""
        return UnknownText(self.tokenizer)

    def prompt(self, messages: Messages) -> str:
        """Return the prompt's text, ending where the answer begins."""
        return self._rendered(messages, add_generation_prompt=True)

    def answer(self, messages: Messages, answer: Messages) -> str | None:
        """Return what follows the prompt: the answer, and what the template writes after it.

        Returns:
            The text; None if the template renders nothing of the answer.
        """
        prompt = self.prompt(messages)
        conversation = self._rendered([*messages, *answer])
        if opened_by(prompt):
            self.remarks["the chat template opens reasoning; answers are trained after its end"] = None
        return answer_after(prompt, conversation, answer[-1]["content"])

    def tokens(self, prompt: str, answer: str) -> tuple[array[int], array[int]]:
        """Return the token ids of a prompt, and of the answer that follows it with an end token.

        Raises:
            TrainingError: the template writes no end token, and the tokenizer has none to put.
        """
        prompt_ids = token_ids(self.tokenizer, prompt)
        answer_ids = continuation(self.tokenizer, prompt, prompt_ids, answer)
        self.unknown.add(prompt, prompt_ids)
        self.unknown.add(answer, answer_ids)
        if not any(token in self.ends for token in answer_ids):
            answer_ids += (self._end(),)
        # Four bytes a token: a list of Python's integers takes eight, and the integers beside them.
        return array("i", prompt_ids), array("i", answer_ids)

    def check(self, answer: str, tokens: Sequence[int], level: str = "") -> None:
        """Check that a judge that generates these tokens would be read as the answer was meant.

        The reply has to be the answer, up to blanks and letter case, and the judge's frames have to read of it what
        they read of the answer.

        Args:
            answer: the text that is trained.
            tokens: its token ids, with what the template adds.
            level: of the row, as ``judgment``; empty where replies are not read by frames.

        Raises:
            TrainingError: the chat template cuts the answer or ends it early, or the tokenizer does not give it back.
        """
        # An unknown word has no text of its own, so that the reply cannot be compared; it is counted and said.
        if unknown_pieces(self.tokenizer, answer, tokens):
            return
        # Generation stops at the first end token, whatever the row has behind it.
        generated = [*itertools.takewhile(lambda token: token not in self.ends, tokens)]
        reply = str(self.tokenizer.decode(generated, skip_special_tokens=True))
        reason = self._misread(answer, reply, level)
        if reason:
            raise TrainingError(
                f"of the {level or 'answer'} {answer[:60]!r} generation would return {reply[:60]!r}: {reason}; give "
                "the model a chat_template.jinja that does not, or take another base"
            )

    def _misread(self, answer: str, reply: str, level: str) -> str | None:
        """Return why a reply would be read otherwise than the answer, or None."""
        # The reply may hold more: the end of the reasoning that the prompt opens.
        if _letters(answer) not in _letters(reply):
            return "the chat template cuts answers or writes an end token before theirs"
        if not self.frames or not level:
            return None
        meant = read_by_frames(level, answer, self.frames)
        read = read_by_frames(level, reply, self.frames)
        if read == meant:
            return None
        return f"the prompt set reads {read}, not {meant}: lines are changed or added"

    def _end(self) -> int:
        """Return the token to put after an answer that the template leaves without an end, and note it for the log."""
        end = self.tokenizer.eos_token_id
        if end is None:
            if not self.ends:
                raise TrainingError(
                    "the chat template writes no end token after an answer: a judge trained so would never stop; give "
                    "the model a chat_template.jinja that ends answers"
                )

            # Any of them stops generation; the smallest is the same one in every run.
            end = min(self.ends)
        name = self.tokenizer.convert_ids_to_tokens(end)
        self.remarks[f"the chat template ends no answer; {name} is put after each, for generation to stop"] = None
        return int(end)

    def _rendered(self, messages: Messages, **options: Any) -> str:
        """Return the messages as the chat template writes them."""
        return str(self.tokenizer.apply_chat_template(list(messages), tokenize=False, **options))


def _letters(text: str) -> str:
    """Return the text without what tokenizers change: blanks, letter case and forms of characters."""
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


def emptied(directory: Path) -> Path:
    """Return the directory, made anew with nothing in it."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def fitting(
    rows: Collection[Row], renderer: Renderer, max_length: int, what: str, place: Path | None = None
) -> Examples:
    """Return the rows whose prompt and longest completion have at most ``max_length`` tokens; nothing is cut.

    Args:
        rows: all supervised examples, or all pairs; gone through once.
        renderer: of the model that is trained.
        max_length: in tokens.
        what: the rows are, for errors.
        place: the file of the table, which is mapped into memory; None: the table is held in memory.

    Raises:
        TrainingError: there are no rows, none fits, the chat template renders none's completion, or no answer can end.
    """
    if not len(rows):
        raise TrainingError(f"there are no {what} to train on: look at the counts of the stage before")
    fitting_rows = _FittingRows(renderer, max_length)
    data = table(fitting_rows.columns(rows), place)
    losses = fitting_rows.losses
    dropped = {reason: losses[reason] for reason in HINTS}
    if not fitting_rows.lengths:
        # Rows may be lost for both reasons; a length is what a setting can change.
        if dropped["too_long"]:
            raise TrainingError(
                f"all {dropped['too_long']} {what} are longer than max_length={max_length} (tokens): raise "
                "train.*.max_length, at most to the model's own context, or leave out long dialogues with "
                "dialogues.max_query_chars"
            )
        raise TrainingError(
            f"in all {len(rows)} {what} the chat template renders nothing for the assistant's turn, so that every "
            "label is masked: give the model a chat_template.jinja that does"
        )
    unknown = fitting_rows.renderer.unknown.remark("prompts and answers")
    return Examples(
        data=data,
        lengths=fitting_rows.lengths,
        dropped=dropped,
        remarks=(*fitting_rows.renderer.remarks, *filter(None, [unknown])),
        losses=(*losses.sentences(len(rows), HINTS, what),),
        pairs=fitting_rows.pairs(),
        unpaired=fitting_rows.unpaired(),
        comparisons=fitting_rows.comparisons,
    )


HINTS = {
    "too_long": "raise train.*.max_length, at most to the model's own context, or leave out long dialogues with "
    "dialogues.max_query_chars",
    "all_masked": "the chat template renders nothing for their assistant's turn: give the model one that does",
}
"""The remedy where a large part of the rows is left out, by reason."""


class _FittingRows:
    """Tokenises rows one after the other, and keeps of each its length and, of a single judgment, its place."""

    def __init__(self, renderer: Renderer, max_length: int) -> None:
        self.renderer = renderer
        self.lengths = array("i")
        """Tokens of each row that fits."""
        self.comparisons = array("i")
        """The number of the comparison of each row that fits."""
        self._numbers: dict[str | int, int] = {}
        self.losses = Losses()
        self._max_length = max_length
        self._checked = Counter[str]()
        """Rows of each level whose answers were read back."""
        self._judgments: dict[str, list[tuple[float, int]]] = {}
        """By comparison and criterion, the judgments of single responses: minus how far the response is ahead, and the
        row."""

    def columns(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the columns of each row that fits."""
        for row in rows:
            # As engines do with prompts: a text that spells a control token would otherwise become it.
            clean = neutral(row, self.renderer.tokenizer)
            tokens = _tokens(clean, self.renderer)
            # The loss is computed on what is left after the prompt.
            if tokens is None:
                self.losses.lose("all_masked", str(row.get("comparison_id", "")))
                continue
            columns = _columns(tokens)
            tokens_read = length(columns)
            if tokens_read > self._max_length:
                self.losses.lose("too_long", str(row.get("comparison_id", "")))
                continue
            self._check(clean, tokens, row.get("level", ""))
            # Only judgments of single responses say how far their response is ahead.
            judged = ""
            if "ahead" in row:
                # The names of a comparison's two judgments differ in the side alone, which is taken out here.
                judged = both_sides(row["nodes"][0])
                self._judgments.setdefault(judged, []).append((-row["ahead"], len(self.lengths)))
            # A row that names neither is a comparison by itself: no other row has its place.
            comparison: str | int = row.get("comparison_id") or judged or len(self.lengths)
            self.comparisons.append(self._numbers.setdefault(comparison, len(self._numbers)))
            self.lengths.append(tokens_read)
            yield columns

    def _check(self, row: Row, tokens: Tokens, level: str) -> None:
        """Read the answers of a level's first rows back as a judge's replies are (TrainingError: they are misread)."""
        if self._checked[level] == READ_BACK:
            return
        self._checked[level] += 1
        for side in row.keys() & set(_SIDES):
            self.renderer.check(row[side][-1]["content"], tokens[side], level)

    def pairs(self) -> list[tuple[int, int, bool]]:
        """Return the judgments of both responses of a comparison; see :attr:`Examples.pairs`."""
        pairs = []
        for judgments in self._judgments.values():
            # The other response's judgment may have been left out, or unreadable.
            if len(judgments) != 2:
                continue
            (minus_ahead, better), (_, worse) = sorted(judgments)
            pairs.append((better, worse, minus_ahead == 0))
        return pairs

    def unpaired(self) -> int:
        """Return how many judgments are in no pair of :meth:`pairs`."""
        return sum(len(judgments) for judgments in self._judgments.values() if len(judgments) != 2)


def neutral(row: Row, tokenizer: PreTrainedTokenizerBase) -> Row:
    """Return a row's prompt and sides as they are trained: no text is a control token."""
    sides = {side: neutralise_messages(row[side], tokenizer) for side in _SIDES if side in row}
    prompt = accepted(row["prompt"], tokenizer)[0]
    return {"prompt": prompt, **sides}


def table(rows: Iterable[Row], place: Path | None = None, columns: Mapping[str, str] | None = None) -> Dataset:
    """Return rows of token ids as a data set.

    Args:
        rows: gone through once.
        place: the file that they are written to and mapped from; None: they are held in memory.
        columns: of lists, by type; None: those of examples or of pairs, as the first row has them.
    """
    import pyarrow as pa
    from datasets import Dataset, Features, List, Value
    from datasets.arrow_writer import ArrowWriter

    # Written as they come: a list of all rows would be a second copy of the data in memory.
    waiting = iter(rows)
    first = next(waiting, None)
    if columns is None:
        columns = _PREFERENCE
        if first is None or "input_ids" in first:
            columns = _SUPERVISED
    features = {name: List(Value(kind)) for name, kind in columns.items()}
    if first is not None and PAIR in first:
        features[PAIR] = Value("string")
    stream = pa.BufferOutputStream()
    target: dict[str, Any] = {"stream": stream}
    if place is not None:
        target = {"path": str(place)}
    writer = ArrowWriter(features=Features(features), writer_batch_size=WAITING, **target)
    if first is not None:
        writer.write(first)
    for row in waiting:
        writer.write(row)
    # A stream in memory is read below, which a closed one could not be.
    writer.finalize(close_stream=place is not None)
    if place is not None:
        return Dataset.from_file(str(place))
    return Dataset.from_buffer(stream.getvalue())


def _tokens(row: Row, renderer: Renderer) -> Tokens | None:
    """Return a row's token ids by side; None if the chat template renders nothing of a completion."""
    prompt = renderer.prompt(row["prompt"])
    tokens: dict[str, array[int]] = {}
    for side in _SIDES:
        if side not in row:
            continue
        answer = renderer.answer(row["prompt"], row[side])
        if answer is None:
            return None
        # The prompt's own tokens are the same before either side.
        tokens["prompt"], tokens[side] = renderer.tokens(prompt, answer)
    return tokens


def length(row: Mapping[str, Any]) -> int:
    """Return the tokens of the prompt with the longest completion, of a row of a table or of its parts."""
    if row.get("input_ids"):
        return len(row["input_ids"])
    completions = [len(row.get(f"{side}_ids", ())) for side in ("chosen", "rejected")]
    return len(row["prompt_ids"]) + max(completions)


def dataset(examples: Examples, indices: Sequence[int]) -> Dataset:
    """Return the examples of these indices, in that order, with the columns that TRL's trainers take."""
    # TRL's collator would make a tensor of every column, and a digest is text.
    columns = [name for name in examples.data.column_names if name != PAIR]
    return examples.data.select_columns(columns).select(indices)


def _columns(tokens: Tokens) -> Row:
    """Return the columns that TRL's SFT or DPO trainer makes of a conversation, and a pair's digest."""
    columns: Row = {f"{side}_ids": list(ids) for side, ids in tokens.items()}
    if "completion" not in tokens:
        return {**columns, PAIR: digest(columns)}
    prompt = columns["prompt_ids"]
    completion = columns["completion_ids"]
    return {"input_ids": prompt + completion, "completion_mask": [0] * len(prompt) + [1] * len(completion)}


def order(lengths: Sequence[int], batch: int, epochs: float, seed: int) -> list[int]:
    """Return indices of the examples in training order, all epochs in a row, the same for any number of processes.

    Each epoch is a new shuffle; within buckets of :data:`BUCKET` batches examples are sorted by length and the
    batches shuffled again. A fraction of an epoch takes that share of its batches.

    Args:
        lengths: of the examples, in tokens.
        batch: examples in a micro-batch.
        epochs: passes over the examples.
        seed: of the run.
    """
    indices_in_order: list[int] = []
    for epoch in range(math.ceil(epochs)):
        rng = random.Random(derive_seed(seed, "order", epoch))
        one_epoch = _one_epoch(lengths, batch, rng)
        # The last epoch may be a part of one.
        count = round(len(one_epoch) * min(1.0, epochs - epoch))
        indices_in_order += one_epoch[: max(1, count)]
    return indices_in_order


def _one_epoch(lengths: Sequence[int], batch: int, rng: random.Random) -> list[int]:
    """Return every index once, shuffled so that examples of like length stand in a batch."""
    indices = list(range(len(lengths)))
    rng.shuffle(indices)
    full: list[list[int]] = []
    rest: list[int] = []
    for start in range(0, len(indices), batch * BUCKET):
        # The bucket is drawn before it is sorted, so that other examples meet in a batch in every epoch.
        bucket = sorted(indices[start : start + batch * BUCKET], key=lengths.__getitem__)
        for place in range(0, len(bucket), batch):
            examples = bucket[place : place + batch]
            if len(examples) == batch:
                full.append(examples)
            else:
                rest = examples
    rng.shuffle(full)
    # The one short batch stays last: a short batch in the middle would shift all later ones.
    return [*itertools.chain.from_iterable(full), *rest]


def filled(indices: Sequence[int], size: int, steps: int = -1) -> list[int]:
    """Return the indices, and the first ones again, as many as the optimizer steps take.

    So the data set holds just the steps that are taken: a run that was killed after its last checkpoint finds none
    left.

    Args:
        indices: in training order.
        size: examples in an optimizer step.
        steps: optimizer steps; where it is not above 0, as many as take every index.
    """
    if steps <= 0:
        steps = math.ceil(len(indices) / size)
    return [*itertools.islice(itertools.cycle(indices), size * steps)]


class Slices(Sequence[Row]):
    """The rows of a table, each read when it is asked for."""

    def __init__(self, data: Dataset) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, place: Any) -> Any:
        if not isinstance(place, slice):
            return self._data[place]
        rows = range(*place.indices(len(self)))
        return self._data.select(rows).to_list()


def digest(row: Row) -> str:
    """Return 16 hex digits of a pair's token ids: another chat template makes other pairs of the same texts."""
    return fingerprint({name: [*row[name]] for name in _PREFERENCE})


def with_reference(examples: Examples, reference: Path, split: str) -> Examples:
    """Return the pairs with their reference log-probabilities in the columns that TRL's DPO trainer reads.

    Args:
        examples: pairs.
        reference: the artifact of stage reference.
        split: of the pairs, as ``train``.

    Raises:
        TrainingError: the artifact holds other pairs.
    """
    # Its rows stand in the order of the pairs, since both come from the same rows, but may be more than fit here.
    rows = read_rows(reference, split)
    values: dict[str, list[float]] = {column: [] for column in REFERENCE_COLUMNS}
    for pair in examples.data.select_columns([PAIR]):
        # On from the row of the pair before, since rows are read once.
        logps = next((row for row in rows if row["pair"] == pair[PAIR]), None)
        if logps is None:
            raise TrainingError(f"{reference} lacks a pair of the {split} split: remove that directory and run again")
        for column, sums in values.items():
            sums.append(logps[column])
    for column, sums in values.items():
        examples = replace(examples, data=examples.data.add_column(column, sums))
    return examples
