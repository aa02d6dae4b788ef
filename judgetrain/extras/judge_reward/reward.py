"""A judge as a reward function, in the form that TRL's trainers call; and the best of several responses by a judge."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.errors import ConfigError, DataError
from judgetrain.extras.judge_reward.groups import MODES, Group, Scalar, scalars
from judgetrain.judges.base import Judge, Prediction
from judgetrain.schema import Comparison, Message, Prompt, messages_of
from judgetrain.scorers.rewards import Text, text_of

Named = Judge | str | Path
"""A judge, or the name of one (:func:`judgetrain.judges.load_judge`)."""


class JudgeReward:
    """A reward function that compares the completions of a prompt with one another; higher is better.

    Give it to ``GRPOTrainer(reward_funcs=[JudgeReward("path/to/judge")])``, to ``RLOOTrainer``, or to any trainer that
    calls rewards the same way. Rewards are worth something within a group alone, as these trainers use them: the
    completions of one prompt that stand in one call. So a process's batch should hold whole groups. A completion about
    which nothing readable was said gets None, which TRL leaves out; one without text loses to every one that has some,
    without being asked about. Where the trainer takes metrics it is told how many comparisons were asked about, and
    what share was unreadable or inconsistent.

    Args:
        judge: a judge, or its name: it is then loaded at the first call.
        mode: how pairs become scalars: ``round_robin`` or ``anchor``
            (:data:`~judgetrain.extras.judge_reward.groups.MODES`).
        reference: of mode ``anchor``, the column with the answer that completions are compared with, as text or
            messages, None for no reward; by default one of the completions is chosen.
        seed: of a judge that samples. What it is asked also decides, so that equal calls get equal rewards.
        asked: of a judge by its name, how it is loaded and asked: ``branches=3, aggregation="clear"``.

    Raises:
        ConfigError: no such mode, or a reference for another one than ``anchor``.
    """

    def __init__(
        self, judge: Named, mode: str = "round_robin", *, reference: str | None = None, seed: int = 0, **asked: Any
    ) -> None:
        if mode not in MODES:
            raise ConfigError(f"mode={mode!r}: expected one of {', '.join(MODES)}")
        if asked and not isinstance(judge, (str, Path)):
            raise ConfigError(f"{', '.join(asked)}: only for a judge that is given by its name; this one is loaded")
        if reference is not None and mode != "anchor":
            raise ConfigError(f"reference={reference!r}: only mode='anchor' compares with a reference, not {mode!r}")
        self.mode, self.__name__ = mode, f"judge_{mode}"
        self._named, self._how = judge, asked
        self._reference, self._seed = reference, seed

    @cached_property
    def judge(self) -> Judge:
        """The judge, loaded when it is first needed."""
        from judgetrain.judges import load_judge

        return load_judge(self._named, **self._how) if isinstance(self._named, (str, Path)) else self._named

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Any) -> list[float | None]:
        """One reward for each completion; of ``columns`` the reference's and TRL's ``log_metric`` are read.

        Raises:
            DataError: a prompt that is none, or no such column of references.
            EngineError: the judge cannot be loaded or asked.
        """
        references: Sequence[Any] = [None] * len(completions)
        if self._reference is not None:
            if self._reference not in columns:
                raise DataError(f"reference={self._reference!r}: no such column in the data, only {', '.join(columns)}")
            references = [None if each is None else text_of(each) for each in columns[self._reference]]
        rows: dict[tuple[tuple[Message, ...], str | None], list[tuple[int, str]]] = defaultdict(list)
        for row, (prompt, completion, reference) in enumerate(zip(prompts, completions, references, strict=True)):
            if self._reference is None or reference is not None:
                messages, response = _asked(prompt, text_of(completion))
                rows[messages, reference].append((row, response))
        groups = [Group(messages, [text for _, text in of], answer) for (messages, answer), of in rows.items()]
        said: list[Prediction] = []

        def ask(comparisons: Sequence[Comparison]) -> list[Prediction]:
            seed = derive_seed(self._seed, *(c.id for c in comparisons))
            said.extend(found := self.judge.compare_all(comparisons, seed))
            return found

        rewards: list[float | None] = [None] * len(completions)
        for of, values in zip(rows.values(), scalars(groups, ask, self.mode), strict=True):
            for (row, _), value in zip(of, values, strict=True):
                rewards[row] = value
        if (log_metric := columns.get("log_metric")) is not None:
            _log(said, log_metric)
        return rewards


@dataclass(frozen=True)
class Best:
    """The best of several responses: its place, None where nothing readable was said; and what each is worth.

    Of one response the place is 0, and what it is worth is None: it is compared with nothing.
    """

    index: int | None
    scores: tuple[Scalar, ...]


def best_of_n(
    judge: Named, prompt: Prompt, responses: Sequence[str], mode: str = "round_robin", *, seed: int = 0, **asked: Any
) -> Best:
    """The best of several responses to a prompt, the first of several that are equally good.

    A judge that is given by its name is loaded for this one call (``asked``: how), and freed.

    Raises:
        ConfigError: no such mode or judge.
        DataError: no response, or a prompt that is none.
    """
    reward = JudgeReward(judge, mode, seed=seed, **asked)
    if not responses:
        raise DataError("expected at least one response to choose from, found none")
    messages = [{"role": message.role, "content": message.content} for message in messages_of(prompt)]
    try:
        scores = reward([messages] * len(responses), responses)
    finally:
        if "judge" in vars(reward) and reward.judge is not judge:
            reward.judge.close()
    read = [(score, -place) for place, score in enumerate(scores) if score is not None]
    alone = 0 if len({*responses}) == 1 else None  # there is nothing to ask, and nothing else to choose
    return Best(-max(read)[1] if read else alone, tuple(scores))


def _asked(prompt: Text, response: str) -> tuple[tuple[Message, ...], str]:
    """The messages up to the user's query, and the response; a prompt that begins the answer is a part of that."""
    if not isinstance(prompt, str) and prompt and prompt[-1].get("role") == "assistant":
        return messages_of(prompt[:-1]), f"{prompt[-1]['content']}{response}"
    return messages_of(prompt), response


def _log(said: Sequence[Prediction], log_metric: Callable[[str, float], None]) -> None:
    log_metric("judge/comparisons", float(len(said)))
    for verdict in ("unreadable", "inconsistent"):
        if said:
            log_metric(f"judge/{verdict}", sum(each.verdict == verdict for each in said) / len(said))
