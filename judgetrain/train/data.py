"""Training rows as TRL data sets: rendered as engines render prompts, each with an end, length-checked and in order.

They are tokenised row by row into a table on disk that every process of the training maps into its memory: what is
held of a row is its length.
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
from judgetrain.artifacts.shards import Rows, read_rows
from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.prompting import accepted, continuation, neutralise_messages, opened_by, token_ids
from judgetrain.errors import TrainingError
from judgetrain.judges.prompting.parsing import read_by_frames
from judgetrain.judges.trees.schema import both_sides
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
READ_BACK = 8
"""Rows of a level whose answers are read back as a judge's replies are, before any is trained on."""
WAITING = 100
"""Rows held until they are written to a table."""
BUCKET = 16
"""Batches whose examples are sorted by length together, so that little of a batch is padding."""
REMINDED = 8
"""Pairs for each example of a level that has none."""
UNEVEN = frozenset({"aot", "aot_unpaired", "apo_down", "bco_pair", "nca_pair", "sppo_hard"})
"""Losses of TRL that move a pair of equal sides, or others by it: apo_down, as an example, makes it less likely."""
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
        """Which of the examples: one for :data:`REMINDED` pairs, drawn at random."""
        levels = {row.get("level") for row in super().__iter__()}
        examples = enumerate(read_rows(self.directory, "sft-train"))
        others = [place for place, row in examples if row.get("level") not in levels]
        return frozenset(random.Random(0).sample(others, min(len(others), super().__len__() // REMINDED)))

    def __iter__(self) -> Iterator[Row]:
        yield from super().__iter__()
        for place, row in enumerate(read_rows(self.directory, "sft-train") if self.reminders else ()):
            if place in self.reminders:
                answer = row["completion"]
                yield {"prompt": row["prompt"], "chosen": answer, "rejected": answer, "level": row["level"]}

    def __len__(self) -> int:
        return super().__len__() + len(self.reminders)


def pairs_of(label: Path, config: DpoConfig) -> Rows:
    """The pairs that stage dpo trains on: with reminders where its loss can learn from them as examples."""
    reminded = config.sft_weight and config.trainer.get("loss_type") not in UNEVEN
    return (WithReminders if reminded else Rows)(label, "pairs-train")


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Rows that fit, in a table of token ids, and how many rows did not fit."""

    data: Dataset
    """``input_ids`` and ``completion_mask``, or ``prompt_ids``, ``chosen_ids``, ``rejected_ids`` and ``pair``."""
    lengths: Sequence[int]
    """Of each row's prompt with its longest completion, in tokens."""
    dropped: Mapping[str, int]
    """How many rows were left out: ``too_long``, and ``all_masked``, of whose completions the chat template renders
    nothing, so that they would carry no loss."""
    remarks: tuple[str, ...] = ()
    """What is trained beyond what the chat template writes."""
    pairs: Sequence[tuple[int, int, bool]] = ()
    """Judgments of the two responses of a comparison, the better one's first, and whether they are as good."""

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass
class Renderer:
    """Renders rows with a chat template, exactly as engines render the prompt.

    A template may render an answer otherwise than its own prompt begins it; the answer then follows the prompt all the
    same. Reasoning that the prompt opens is closed at once (``<think>``, ``</think>``), which is how Qwen3 writes an
    answer without any: a judge is taught answers, not thoughts.

    ``ends``: the token ids on which generation stops. An answer after which the template writes none of them gets the
    tokenizer's end token, as a judge that never saw it would write to its token limit. ``frames``: of the prompt set by
    which the judge's replies will be read.
    """

    tokenizer: PreTrainedTokenizerBase
    ends: Collection[int]
    frames: Mapping[str, str] | None = None
    remarks: dict[str, None] = field(default_factory=dict)
    """What training does beyond the template, in sentences for the log."""

    def prompt(self, messages: Messages) -> str:
        """The prompt's text, ending where the answer begins."""
        return self._rendered(messages, add_generation_prompt=True)

    def answer(self, messages: Messages, answer: Messages) -> str | None:
        """What follows the prompt: the answer and what the template writes after it; None if it renders nothing."""
        before, whole = self.prompt(messages), self._rendered([*messages, *answer])
        if before.startswith(whole):
            return None
        if whole.startswith(before):
            after = whole[len(before) :]
        else:
            content = answer[-1]["content"].strip()
            place = whole.rfind(content)
            if not content or place < 0:
                return None
            after = whole[place:]
        closing = opened_by(before)
        if closing and not after.lstrip().startswith(closing):
            self.remarks["the chat template opens reasoning; answers are trained after its end"] = None
            return f"\n{closing}\n\n{after}"
        return after

    def tokens(self, prompt: str, answer: str) -> tuple[array[int], array[int]]:
        """Token ids of a prompt and of the answer that follows it, with an end token (TrainingError: the template
        writes no end token, and there is none to put)."""
        before = token_ids(self.tokenizer, prompt)
        after = continuation(self.tokenizer, prompt, before, answer)
        if not any(token in self.ends for token in after):
            after += (self._end(),)
        return array("i", before), array("i", after)

    def check(self, answer: str, tokens: Sequence[int], level: str = "") -> None:
        """Check that generation which wrote these tokens would return the answer, up to blanks and letter case, and
        that a judge's frames read of that what they read of the answer (TrainingError: the chat template cuts or
        ends it early, or the tokenizer does not give it back)."""
        written = [*itertools.takewhile(lambda token: token not in self.ends, tokens)]
        reply, why = str(self.tokenizer.decode(written, skip_special_tokens=True)), ""
        if self.tokenizer.unk_token_id in written:  # it stands for many words
            return
        if _letters(answer) not in _letters(reply):
            why = "the chat template cuts answers or writes an end token before theirs"
        elif self.frames and level:
            own, back = (read_by_frames(level, text, self.frames) for text in (answer, reply))
            why = f"the prompt set reads {back}, not {own}: lines are changed or added" if back != own else ""
        if why:
            told = f"of the {level or 'answer'} {answer[:60]!r} generation would return {reply[:60]!r}: {why}"
            raise TrainingError(f"{told}; give the model a chat_template.jinja that does not, or take another base")

    def _end(self) -> int:
        end = self.tokenizer.eos_token_id
        if end is None and not self.ends:
            told = "the chat template writes no end token after an answer: a judge trained so would never stop"
            raise TrainingError(f"{told}; give the model a chat_template.jinja that ends answers")
        end = min(self.ends) if end is None else end
        name = self.tokenizer.convert_ids_to_tokens(end)
        self.remarks[f"the chat template ends no answer; {name} is put after each, for generation to stop"] = None
        return int(end)

    def _rendered(self, messages: Messages, **options: Any) -> str:
        return str(self.tokenizer.apply_chat_template(list(messages), tokenize=False, **options))


def _letters(text: str) -> str:
    """The text without what tokenizers change."""
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


def emptied(directory: Path) -> Path:
    """The directory, made new, with nothing in it."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def fitting(
    rows: Collection[Row],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    what: str,
    ends: Collection[int] | None = None,
    place: Path | None = None,
    frames: Mapping[str, str] | None = None,
) -> Examples:
    """The rows whose prompt and longest completion have at most ``max_length`` tokens; nothing is cut.

    Args:
        rows: all supervised examples, or all pairs; gone through once.
        tokenizer: of the model that is trained.
        max_length: in tokens.
        what: the rows are, for errors.
        ends: the token ids on which generation stops; by default the tokenizer's end token.
        place: the file of the table, which is mapped into memory; None: the table is held in memory.
        frames: of the judge's prompt set, by which the first answers of each level are read back.

    Raises:
        TrainingError: there are no rows, none fits, the chat template renders none's completion, or no answer can end.
    """
    if not len(rows):
        raise TrainingError(f"there are no {what} to train on: look at the counts of the stage before")
    renderer = Renderer(tokenizer, {tokenizer.eos_token_id} - {None} if ends is None else ends, frames)
    lengths, left, read_back = array("i"), Counter[str](), Counter[str]()
    sides: dict[str, list[tuple[float, int]]] = {}

    def kept() -> Iterator[Row]:
        for row in rows:
            clean = neutral(row, tokenizer)
            tokens = _tokens(clean, renderer)
            if tokens is None:  # the loss is computed on what is left after the prompt
                left["all_masked"] += 1
            elif (tokens_read := length(columns := _columns(tokens))) > max_length:
                left["too_long"] += 1
            else:
                read_back[level := row.get("level", "")] += 1
                if read_back[level] <= READ_BACK:
                    for side in clean.keys() & set(_SIDES):
                        renderer.check(clean[side][-1]["content"], tokens[side], level)
                if "ahead" in row:
                    sides.setdefault(both_sides(row["nodes"][0]), []).append((-row["ahead"], len(lengths)))
                lengths.append(tokens_read)
                yield columns

    data = table(kept(), place)
    if not lengths:
        raise TrainingError(
            f"all {left['too_long']} {what} are longer than max_length={max_length} tokens: raise train.*.max_length, "
            "at most to the model's own context, or leave out long dialogues with dialogues.max_query_chars"
            if left["too_long"]
            else f"in all {len(rows)} {what} the chat template renders nothing for the assistant's turn, so that every "
            "label is masked: give the model a chat_template.jinja that does"
        )
    dropped, remarks = {reason: left[reason] for reason in ("too_long", "all_masked")}, tuple(renderer.remarks)
    both = [sorted(found) for found in sides.values() if len(found) == 2]
    pairs = [(better, worse, ahead == 0) for (ahead, better), (_, worse) in both]
    return Examples(data=data, lengths=lengths, dropped=dropped, remarks=remarks, pairs=pairs)


def neutral(row: Row, tokenizer: PreTrainedTokenizerBase) -> Row:
    """A row's prompt and sides as they are trained: no text is a control token."""
    clean = {side: neutralise_messages(row[side], tokenizer) for side in _SIDES if side in row}
    return {"prompt": accepted(row["prompt"], tokenizer)[0], **clean}


def table(rows: Iterable[Row], place: Path | None = None) -> Dataset:
    """Rows of token ids as a data set: mapped from the file at ``place`` that they are written to, or in memory."""
    import pyarrow as pa
    from datasets import Dataset, Features, List, Value
    from datasets.arrow_writer import ArrowWriter

    waiting = iter(rows)
    first: Row = next(waiting, {"input_ids": []})
    kinds = _SUPERVISED if "input_ids" in first else _PREFERENCE
    features = {name: List(Value(kind)) for name, kind in kinds.items()}
    if PAIR in first:
        features[PAIR] = Value("string")
    to: dict[str, Any] = {"path": str(place)} if place else {"stream": pa.BufferOutputStream()}
    writer = ArrowWriter(features=Features(features), writer_batch_size=WAITING, **to)
    for row in itertools.chain([first] if len(first) > 1 else [], waiting):
        writer.write(row)
    writer.finalize(close_stream=place is not None)
    return Dataset.from_file(to["path"]) if place else Dataset.from_buffer(to["stream"].getvalue())


def _tokens(row: Row, renderer: Renderer) -> Tokens | None:
    """A row's token ids; None if the chat template renders nothing of a completion."""
    prompt, tokens = renderer.prompt(row["prompt"]), {}
    for side in _SIDES:
        if side in row:
            answer = renderer.answer(row["prompt"], row[side])
            if answer is None:
                return None
            tokens["prompt"], tokens[side] = renderer.tokens(prompt, answer)
    return tokens


def length(row: Mapping[str, Any]) -> int:
    """Tokens of the prompt with the longest completion; of a row of a table, or of its parts."""
    return len(row.get("input_ids") or row["prompt_ids"]) + max(len(row.get(f"{side}_ids", ())) for side in _SIDES[1:])


def dataset(examples: Examples, indices: Sequence[int]) -> Dataset:
    """A data set of the examples in the given order, tokenised as TRL's trainers take it."""
    return examples.data.select_columns([c for c in examples.data.column_names if c != PAIR]).select(indices)


def _columns(tokens: Tokens) -> Row:
    """The columns that TRL's SFT or DPO trainer makes of a conversation, and a pair's digest."""
    ids = {f"{side}_ids": list(found) for side, found in tokens.items()}
    if "completion" not in tokens:
        return {**ids, PAIR: digest(ids)}
    prompt, completion = ids["prompt_ids"], ids["completion_ids"]
    return {"input_ids": prompt + completion, "completion_mask": [0] * len(prompt) + [1] * len(completion)}


def order(lengths: Sequence[int], batch: int, epochs: float, seed: int) -> list[int]:
    """Indices of the examples in training order, all epochs in a row, the same for any number of processes.

    Each epoch is a new shuffle; within buckets of :data:`BUCKET` batches examples are sorted by length and the
    batches shuffled again. A fraction of an epoch takes that share of its batches.
    """
    result: list[int] = []
    for epoch in range(math.ceil(epochs)):
        rng = random.Random(derive_seed(seed, "order", epoch))
        indices = list(range(len(lengths)))
        rng.shuffle(indices)
        batches: list[list[int]] = []
        for start in range(0, len(indices), batch * BUCKET):
            block = sorted(indices[start : start + batch * BUCKET], key=lengths.__getitem__)
            batches += [block[i : i + batch] for i in range(0, len(block), batch)]
        # The one short batch stays last: a short batch in the middle would shift all later ones.
        full = [b for b in batches if len(b) == batch]
        rng.shuffle(full)
        ordered = [i for b in full for i in b] + [i for b in batches if len(b) < batch for i in b]
        result += ordered[: max(1, round(len(ordered) * min(1.0, epochs - epoch)))]
    return result


def filled(indices: Sequence[int], size: int, steps: int = -1) -> list[int]:
    """The indices, and the first ones again: up to a multiple of ``size``, or to ``steps`` (above 0) times it.

    A data set of just the steps that are taken: a run that was killed after its last checkpoint finds none left.
    """
    wanted = size * (steps if steps > 0 else math.ceil(len(indices) / size))
    return [*itertools.islice(itertools.cycle(indices), wanted)]


class Slices(Sequence[Row]):
    """The rows of a table, read when they are asked for."""

    def __init__(self, data: Dataset) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, place: Any) -> Any:
        if not isinstance(place, slice):
            return self._data[place]
        return self._data.select(range(*place.indices(len(self)))).to_list()


def digest(row: Row) -> str:
    """16 hex digits of a pair's token ids: another chat template makes other pairs of the same texts."""
    return fingerprint({name: [*row[name]] for name in _PREFERENCE})


def with_reference(examples: Examples, reference: Path, split: str) -> Examples:
    """The pairs with their reference log-probabilities in the columns that TRL's DPO trainer reads (TrainingError: the
    artifact holds other pairs)."""
    found = read_rows(reference, split)  # in the order of the pairs, from the same rows
    values: dict[str, list[float]] = {column: [] for column in REFERENCE_COLUMNS}
    for pair in examples.data.select_columns([PAIR]):
        logps = next((row for row in found if row["pair"] == pair[PAIR]), None)
        if logps is None:
            raise TrainingError(f"{reference} lacks a pair of the {split} split: remove that directory and run again")
        for column, sums in values.items():
            sums.append(logps[column])
    for column, sums in values.items():
        examples = replace(examples, data=examples.data.add_column(column, sums))
    return examples
