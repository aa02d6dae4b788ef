"""The state of a running batch: generated tokens, rows that are still open, and how next tokens are drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from judgetrain.engines.base import Sampling

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerBase

    from judgetrain.engines.local.constraint import Matcher

MAY_STOP = 1
"""The mark of a token that may complete a stop string."""
ENDS = 2
"""The mark of a token that ends the text."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Row:
    """One request in the decoder's terms.

    Args:
        prompt: the prompt's token ids.
        sampling: how to sample.
        marks: what each token does to the text: ENDS, MAY_STOP or 0; int8 ``[vocabulary]``.
        index: the request's index in the whole call.
        place: decides the request's random numbers, with the seed.
        matcher: follows the text along the sampling's pattern, if it has one.
        candidates: the token ids that write each of the sampling's candidates.
        choices: filled while decoding: the place, in tokens, where a candidate was drawn, and the candidates'
            probabilities there.
    """

    prompt: tuple[int, ...]
    sampling: Sampling
    marks: NDArray[np.int8]
    index: int
    place: int
    matcher: Matcher | None = None
    candidates: tuple[tuple[int, ...], ...] = ()
    choices: list[tuple[int, tuple[float, ...]]] = field(default_factory=list)


Watch = Callable[[Row, Sequence[int]], bool]
"""Returns whether a stop string is complete, given a row and its token ids up to a token marked MAY_STOP."""


class StopWatch:
    """Marks the tokens that may complete a stop string, so that few rows have to be decoded to look for one.

    Only a token whose text holds a stop string's last character can complete it. The table of these tokens is made once
    per set of stop strings.

    Args:
        tokenizer: the model's.
        vocabulary: the width of the model's logits.
        ends: token ids that end a text.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocabulary: int, ends: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._ends = [end for end in ends if end < vocabulary]
        self._pieces: list[str] | None = None
        self._tables: dict[tuple[str, ...], NDArray[np.int8]] = {}

    def table(self, stops: tuple[str, ...]) -> NDArray[np.int8]:
        """Return the mark of every token id, int8 ``[vocabulary]``: ENDS, MAY_STOP (complete one of ``stops``) or 0."""
        if stops not in self._tables:
            table = np.zeros(self._vocabulary, dtype=np.int8)
            last_characters = {stop[-1] for stop in stops if stop}
            if last_characters:
                # An undecodable piece (part of a character) or an empty one may complete anything.
                last_characters.add("\ufffd")
                for token_id, piece in enumerate(self._decoded()):
                    if not piece or last_characters.intersection(piece):
                        table[token_id] = MAY_STOP
            # Last: a token that ends a text ends it, whatever its own text holds.
            table[self._ends] = ENDS
            self._tables[stops] = table
        return self._tables[stops]

    def spelling(self, text: str) -> tuple[int, ...]:
        """Return the ids of the tokens that write ``text``, with or without space around it."""
        return tuple(token_id for token_id, piece in enumerate(self._decoded()) if piece.strip() == text)

    def _decoded(self) -> list[str]:
        """Return the text of every token, by its id."""
        if self._pieces is None:
            size = min(self._vocabulary, len(self._tokenizer))
            texts = self._tokenizer.batch_decode([[i] for i in range(size)], clean_up_tokenization_spaces=False)
            tokens = self._tokenizer.convert_ids_to_tokens(list(range(size)))
            self._pieces = []
            for text, token in zip(texts, tokens, strict=True):
                # The decoder drops a leading space, which the token's marker stands for. Where it stands is no matter.
                has_space = bool(token) and token[0] in "▁Ġ"
                if has_space and text:
                    text = f"{text} "
                self._pieces.append(text)
        return self._pieces


def uniforms(seed: int, index: int, count: int) -> NDArray[np.float32]:
    """Return ``count`` random numbers in [0, 1) for the request at place ``index``; no other request changes them."""
    # Philox has a stream for every key, so that the numbers of one place need none of those before it.
    return np.random.Generator(np.random.Philox(key=[seed % 2**64, index])).random(count, dtype=np.float32)


class Sampler:
    """Temperature, top-k and nucleus sampling by inversion: one uniform number decides a row's next token.

    Args:
        samplings: how each row is sampled.
        device: where logits lie.
    """

    def __init__(self, samplings: Sequence[Sampling], device: torch.device) -> None:
        temperature = torch.tensor([sampling.temperature for sampling in samplings], device=device)
        self._greedy = temperature <= 0
        self._all_greedy = bool(self._greedy.all())
        self._any_greedy = bool(self._greedy.any())
        self._divisor = torch.where(self._greedy, 1.0, temperature)[:, None]

        no_limit = torch.iinfo(torch.long).max
        self._top_p = torch.tensor([sampling.top_p for sampling in samplings], device=device)
        self._top_k = torch.tensor([sampling.top_k or no_limit for sampling in samplings], device=device)
        self._needs_ranks = any(sampling.top_p < 1 or sampling.top_k for sampling in samplings)

    def __call__(self, logits: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Return the next token ids ``[rows]``.

        Args:
            logits: ``[rows, vocabulary]``.
            noise: a uniform number in [0, 1) for each row, ``[rows]``.
        """
        if self._all_greedy:
            return logits.argmax(dim=-1)
        # In float32: a sum over the vocabulary in half precision would stop growing long before 1.
        probs = torch.softmax(logits.float() / self._divisor, dim=-1)
        if self._needs_ranks:
            drawn = self._draw_ranked(probs, noise)
        else:
            drawn = _invert(probs, noise)
        if not self._any_greedy:
            return drawn
        return torch.where(self._greedy, logits.argmax(dim=-1), drawn)

    def _draw_ranked(self, probs: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Return token ids from the smallest set of most probable tokens whose mass reaches ``top_p``.

        With ``top_k``, the set is taken from the k most probable tokens, and ``top_p`` is a share of their mass.
        """
        ranked, ids = probs.sort(dim=-1, descending=True, stable=True)
        beyond = torch.arange(probs.shape[1], device=probs.device) >= self._top_k[:, None]
        ranked = ranked.masked_fill(beyond, 0.0)
        mass = ranked.cumsum(dim=-1)
        # Without top_k the mass is 1, and is not computed anew with the rounding of a sum.
        whole = torch.where(self._top_k < probs.shape[1], mass[:, -1], 1.0)
        # By the mass before a token: the one that reaches top_p is inside (nucleus sampling, arXiv 1904.09751, 3.1).
        outside = mass - ranked >= (self._top_p * whole)[:, None]
        # The most probable token stays, even where top_p is 0.
        outside[:, 0] = False
        rank = _invert(ranked.masked_fill(outside, 0.0), noise)
        return ids.gather(1, rank[:, None]).squeeze(1)


def _invert(weights: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Return the first index of each row whose cumulative weight exceeds the share ``noise`` of the row's total."""
    mass = weights.cumsum(dim=-1)
    total = mass[:, -1]
    # Strictly below the total even after rounding, so that no index of weight zero is reached.
    target = torch.minimum(noise * total, torch.nextafter(total, torch.zeros_like(total)))
    # The clamp keeps a diverged model (all nan) inside the vocabulary.
    return torch.searchsorted(mass, target[:, None], right=True).squeeze(1).clamp(max=weights.shape[1] - 1)


class Generated:
    """The tokens that the rows of a batch have generated.

    A row is open until a token, a stop string or its limit ends it.

    Args:
        rows: the batch.
        device: where logits lie.
        seed: the call's; with a row's place, it decides the row's random numbers.
    """

    def __init__(self, rows: Sequence[Row], device: torch.device, seed: int) -> None:
        self.rows = list(rows)
        self._device = device
        self._limits = np.array([row.sampling.max_new_tokens for row in rows])
        longest = int(self._limits.max())
        # Drawn for the whole text at once, so that a row's numbers do not depend on when others end.
        self._noise = np.zeros((len(rows), longest), dtype=np.float32)
        for place, row in enumerate(rows):
            if row.sampling.temperature > 0:
                count = row.sampling.max_new_tokens
                self._noise[place, :count] = uniforms(seed, row.place, count)
        # On the CPU: rows are looked at token by token, and each look at a GPU would wait for it.
        self._ids = np.zeros((len(rows), longest), dtype=np.int64)
        self._count = np.zeros(len(rows), dtype=np.int64)
        self.open = np.ones(len(rows), dtype=bool)
        self._prepare()

    def _prepare(self) -> None:
        """Set up what depends on the rows of the batch: the sampler, and the tables of marks."""
        self._sampler = Sampler([row.sampling for row in self.rows], self._device)
        # Rows with the same stop strings share one table.
        tables = {id(row.marks): row.marks for row in self.rows}
        number_of = {key: number for number, key in enumerate(tables)}
        self._tables = np.stack(list(tables.values()))
        self._table_of = np.array([number_of[id(row.marks)] for row in self.rows])

    def draw(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the next token ids ``[rows]``, drawn from logits ``[rows, vocabulary]``."""
        # Closed rows go on until they are dropped, and stay at their last number.
        at = np.minimum(self._count, self._limits - 1)
        noise = torch.from_numpy(self._noise[np.arange(len(at)), at]).to(self._device)
        tokens = self._sampler(self._admitted(logits), noise)
        self._look_at_candidates(logits, tokens)
        return tokens

    def _admitted(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the logits with minus infinity for tokens that the rows' patterns forbid; the input stays as it is."""
        if not any(row.matcher for row in self.rows):
            return logits
        logits = logits.clone()
        for place, row in enumerate(self.rows):
            if row.matcher and self.open[place]:
                row.matcher.forbid(logits[place])
        return logits

    def _look_at_candidates(self, logits: torch.Tensor, tokens: torch.Tensor) -> None:
        """Note the candidates' probabilities for rows that drew one of them."""
        if not any(row.candidates for row in self.rows):
            return
        drawn = tokens.tolist()
        for place, row in enumerate(self.rows):
            has_drawn_candidate = any(drawn[place] in ids for ids in row.candidates)
            if self.open[place] and has_drawn_candidate:
                # Several tokens may write one candidate, as "5" and " 5": their probabilities add up.
                scores = torch.stack([logits[place, list(ids)].float().logsumexp(0) for ids in row.candidates])
                probabilities = tuple(round(float(probability), 6) for probability in scores.softmax(0))
                row.choices.append((int(self._count[place]), probabilities))

    def append(self, tokens: NDArray[np.int64], watch: Watch) -> list[tuple[Row, list[int]]]:
        """Add one token to every open row, and return the rows that it closed, with all their token ids.

        Args:
            tokens: the next token of every row, ``[rows]``.
            watch: returns whether a stop string of a row is complete.
        """
        live = np.flatnonzero(self.open)
        self._ids[live, self._count[live]] = tokens[live]
        self._count[live] += 1
        for place in live:
            matcher = self.rows[place].matcher
            if matcher:
                matcher.accept(int(tokens[place]))

        marks = self._tables[self._table_of[live], tokens[live]]
        closed = (marks == ENDS) | (self._limits[live] <= self._count[live])
        # Only these rows are decoded to text, which takes longer than all the rest of a step.
        for index in np.flatnonzero((marks == MAY_STOP) & ~closed):
            place = live[index]
            closed[index] = watch(self.rows[place], self._result(place))
        self.open[live[closed]] = False
        return [(self.rows[place], self._result(place)) for place in live[closed]]

    def remaining(self) -> int:
        """Return the most tokens that an open row may still generate."""
        return int((self._limits - self._count)[self.open].max(initial=0))

    def drop_closed(self) -> torch.Tensor:
        """Drop closed rows, moving the last open ones into the gaps, and return the old place of each new place."""
        count = int(self.open.sum())
        # Rows that stay where they are need no copy, and the cache moves as few as there are gaps.
        order = np.arange(count)
        order[~self.open[:count]] = count + np.flatnonzero(self.open[count:])
        self.rows = [self.rows[place] for place in order]
        for name in ("_limits", "_noise", "_ids", "_count", "open"):
            setattr(self, name, getattr(self, name)[order])
        self._prepare()
        return torch.from_numpy(order)

    def _result(self, place: int) -> list[int]:
        """Return the token ids of a row so far."""
        return [int(token) for token in self._ids[place, : self._count[place]]]
