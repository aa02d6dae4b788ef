"""State of a running batch: what was generated, which rows are still open, and how next tokens are drawn."""

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

ENDS, MAY_STOP = 2, 1
"""Marks of a token in a row's table: it ends the text; it may have completed a stop string."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Row:
    """One request in the decoder's terms.

    ``marks``: int8 ``[vocabulary]``, what each token does to this row's text. ``index`` is the request's index in
    the whole call; its random numbers depend on its ``place`` and on the seed alone. ``matcher`` is of the sampling's
    pattern, ``candidates`` are the token ids of each of the sampling's candidates; ``choices`` fills with the
    candidates' probabilities at each place, in tokens, where one of them was drawn.
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
"""Given a row and its generated ids after a token marked MAY_STOP: whether a stop string is complete."""


class StopWatch:
    """Says which rows have to be looked at after a step, without decoding every row at every step.

    A stop string can only be completed by a token whose text holds the string's last character, so a table over
    the vocabulary, made once per set of stop strings, leaves few rows to decode.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocabulary: int, ends: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._ends = [end for end in ends if end < vocabulary]
        self._pieces: list[str] | None = None
        self._tables: dict[tuple[str, ...], NDArray[np.int8]] = {}

    def table(self, stops: tuple[str, ...]) -> NDArray[np.int8]:
        """What each token id ``[vocabulary]`` does: ENDS the text, MAY_STOP (complete one of ``stops``), or 0."""
        if stops not in self._tables:
            table = np.zeros(self._vocabulary, dtype=np.int8)
            last = {stop[-1] for stop in stops if stop}
            if last:
                # An undecodable piece (part of a character) or an empty one may complete anything.
                last.add("\ufffd")
                marks = [bool(last.intersection(piece)) or not piece for piece in self._decoded()]
                table[: len(marks)] = np.where(marks, MAY_STOP, 0)
            table[self._ends] = ENDS
            self._tables[stops] = table
        return self._tables[stops]

    def spelling(self, text: str) -> tuple[int, ...]:
        """Ids of the tokens that write ``text``, with or without space around it."""
        return tuple(i for i, piece in enumerate(self._decoded()) if piece.strip() == text)

    def _decoded(self) -> list[str]:
        """Each token's text; markers of a leading space count as that space."""
        if self._pieces is None:
            size = min(self._vocabulary, len(self._tokenizer))
            texts = self._tokenizer.batch_decode([[i] for i in range(size)], clean_up_tokenization_spaces=False)
            tokens = self._tokenizer.convert_ids_to_tokens(list(range(size)))
            self._pieces = [
                f"{text} " if token and token[0] in "▁Ġ" and text else text
                for text, token in zip(texts, tokens, strict=True)
            ]
        return self._pieces


def uniforms(seed: int, index: int, count: int) -> NDArray[np.float32]:
    """``count`` numbers in [0, 1) that belong to request ``index`` of a call: no other request changes them."""
    return np.random.Generator(np.random.Philox(key=[seed % 2**64, index])).random(count, dtype=np.float32)


class Sampler:
    """Temperature, top-k and nucleus sampling by inversion: one uniform number a token decides, per row."""

    def __init__(self, samplings: Sequence[Sampling], device: torch.device) -> None:
        temperature = torch.tensor([s.temperature for s in samplings], device=device)
        self._greedy = temperature <= 0
        self._divisor = torch.where(self._greedy, 1.0, temperature)[:, None]
        self._top_p = torch.tensor([s.top_p for s in samplings], device=device)
        self._all_greedy, self._any_greedy = bool(self._greedy.all()), bool(self._greedy.any())
        self._top_k = torch.tensor([s.top_k or torch.iinfo(torch.long).max for s in samplings], device=device)
        self._ranked = any(s.top_p < 1 or s.top_k for s in samplings)

    def __call__(self, logits: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Next token ids ``[rows]`` from logits ``[rows, vocabulary]`` and a uniform number for each row."""
        if self._all_greedy:
            return logits.argmax(dim=-1)
        probs = torch.softmax(logits.float() / self._divisor, dim=-1)
        drawn = self._draw_ranked(probs, noise) if self._ranked else _invert(probs, noise)
        return torch.where(self._greedy, logits.argmax(dim=-1), drawn) if self._any_greedy else drawn

    def _draw_ranked(self, probs: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Sample from the ``top_k`` most probable tokens, the smallest set of them whose mass reaches ``top_p``."""
        ranked, ids = probs.sort(dim=-1, descending=True, stable=True)
        beyond = torch.arange(probs.shape[1], device=probs.device) >= self._top_k[:, None]
        ranked = ranked.masked_fill(beyond, 0.0)
        mass = ranked.cumsum(dim=-1)
        whole = torch.where(self._top_k < probs.shape[1], mass[:, -1], 1.0)
        outside = mass - ranked >= (self._top_p * whole)[:, None]
        outside[:, 0] = False
        rank = _invert(ranked.masked_fill(outside, 0.0), noise)
        return ids.gather(1, rank[:, None]).squeeze(1)


def _invert(weights: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """The first index of each row whose cumulative weight exceeds ``noise`` of the row's total."""
    mass = weights.cumsum(dim=-1)
    total = mass[:, -1]
    # Strictly below the total even after rounding, so that no index of weight zero is reached.
    target = torch.minimum(noise * total, torch.nextafter(total, torch.zeros_like(total)))
    # The clamp keeps a diverged model (all nan) inside the vocabulary.
    return torch.searchsorted(mass, target[:, None], right=True).squeeze(1).clamp(max=weights.shape[1] - 1)


class Generated:
    """What the rows of a batch have generated; a row is open until a token, a stop string or its limit ends it."""

    def __init__(self, rows: Sequence[Row], device: torch.device, seed: int) -> None:
        self.rows = list(rows)
        self._device = device
        self._limits = np.array([row.sampling.max_new_tokens for row in rows])
        longest = int(self._limits.max())
        self._noise = np.zeros((len(rows), longest), dtype=np.float32)
        for place, row in enumerate(rows):
            if row.sampling.temperature > 0:
                count = row.sampling.max_new_tokens
                self._noise[place, :count] = uniforms(seed, row.place, count)
        self._ids = np.zeros((len(rows), longest), dtype=np.int64)
        self._count = np.zeros(len(rows), dtype=np.int64)
        self.open = np.ones(len(rows), dtype=bool)
        self._prepare()

    def _prepare(self) -> None:
        self._sampler = Sampler([row.sampling for row in self.rows], self._device)
        tables = {id(row.marks): row.marks for row in self.rows}
        known = {key: i for i, key in enumerate(tables)}
        self._tables = np.stack(list(tables.values()))
        self._table_of = np.array([known[id(row.marks)] for row in self.rows])

    def draw(self, logits: torch.Tensor) -> torch.Tensor:
        """Next token ids ``[rows]`` from logits ``[rows, vocabulary]``."""
        at = np.minimum(self._count, self._limits - 1)
        noise = torch.from_numpy(self._noise[np.arange(len(at)), at]).to(self._device)
        tokens = self._sampler(self._admitted(logits), noise)
        self._look_at_candidates(logits, tokens)
        return tokens

    def _admitted(self, logits: torch.Tensor) -> torch.Tensor:
        """The logits with what the rows' patterns forbid at minus infinity; the input stays as it is."""
        bound = [place for place, row in enumerate(self.rows) if row.matcher and self.open[place]]
        if bound:
            logits = logits.clone()
            for place in bound:
                self.rows[place].matcher.forbid(logits[place])  # type: ignore[union-attr]
        return logits

    def _look_at_candidates(self, logits: torch.Tensor, tokens: torch.Tensor) -> None:
        """Note the candidates' probabilities for rows that drew one of them."""
        wanting = [place for place, row in enumerate(self.rows) if row.candidates and self.open[place]]
        if not wanting:
            return
        drawn = tokens.tolist()
        for place in wanting:
            groups = self.rows[place].candidates
            if any(drawn[place] in ids for ids in groups):
                scores = torch.stack([logits[place, list(ids)].float().logsumexp(0) for ids in groups])
                chances = tuple(round(float(p), 6) for p in scores.softmax(0))
                self.rows[place].choices.append((int(self._count[place]), chances))

    def append(self, tokens: NDArray[np.int64], watch: Watch) -> list[tuple[Row, list[int]]]:
        """Add one token to every open row; returns the rows that it closed, with all their ids."""
        live = np.flatnonzero(self.open)
        self._ids[live, self._count[live]] = tokens[live]
        self._count[live] += 1
        for i in live:
            if matcher := self.rows[i].matcher:
                matcher.accept(int(tokens[i]))
        marks = self._tables[self._table_of[live], tokens[live]]
        closed = (marks == ENDS) | (self._limits[live] <= self._count[live])
        for i in np.flatnonzero((marks == MAY_STOP) & ~closed):
            closed[i] = watch(self.rows[live[i]], self._result(live[i]))
        self.open[live[closed]] = False
        return [(self.rows[place], self._result(place)) for place in live[closed]]

    def remaining(self) -> int:
        """The most tokens that an open row may still generate."""
        return int((self._limits - self._count)[self.open].max(initial=0))

    def drop_closed(self) -> torch.Tensor:
        """Leave only open rows, the last ones moved into the gaps; returns the old place of each new place."""
        count = int(self.open.sum())
        order = np.arange(count)
        order[~self.open[:count]] = count + np.flatnonzero(self.open[count:])
        self.rows = [self.rows[place] for place in order]
        for name in ("_limits", "_noise", "_ids", "_count", "open"):
            setattr(self, name, getattr(self, name)[order])
        self._prepare()
        return torch.from_numpy(order)

    def _result(self, place: int) -> list[int]:
        return [int(token) for token in self._ids[place, : self._count[place]]]
