"""A judge as a reward function, in the form that TRL's trainers call; and the best of several responses by a judge."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.data.rubrics import given_rubric, rubric_of
from judgetrain.errors import ConfigError, DataError
from judgetrain.extras.judge_reward.groups import MODES, SCORE, WAYS, Group, Scalar, scalars
from judgetrain.judges.base import Given, Judge, Prediction
from judgetrain.rubrics import Rubric
from judgetrain.schema import Candidates, Comparison, Message, Prompt, messages_of
from judgetrain.scorers.rewards import Text, text_of

Named = Judge | str | Path
"""A judge, or the name of one (:func:`judgetrain.judges.load_judge`)."""


class JudgeReward:
    """A reward function that scores completions, or compares those of a prompt with one another; higher is better.

    Give it to ``GRPOTrainer(reward_funcs=[JudgeReward("path/to/judge")])``, to ``RLOOTrainer``, or to any trainer that
    calls rewards the same way. Where completions are compared, rewards are worth something within a group alone, as
    these trainers use them: the completions of one prompt that stand in one call. So a process's batch should hold
    whole groups. A completion about which nothing readable was said gets None, which TRL leaves out; one without text
    loses to every one that has some, without being asked about. Where the trainer takes metrics it is told how many
    judgments or comparisons were asked about, and what share was unreadable or inconsistent.

    Args:
        judge: a judge, or its name: it is then loaded at the first call.
        mode: ``score``, each completion by itself, from 0 to 1, by a judge that reads one response; or how pairs become
            scalars: ``round_robin`` or ``anchor`` (:data:`~judgetrain.extras.judge_reward.groups.MODES`).
        criteria: what completions are judged by: a rubric, criteria in any shape that is read from files, or a file's
            name. None: the judge's own.
        rubrics: the column with each row's own criteria, in any of these shapes.
        reference: the column with reference answers, as text or messages. In mode ``score`` the judge is shown them;
            in mode ``anchor``, which needs it, completions are compared with them, and None is no reward.
        seed: of a judge that samples. What it is asked also decides, so that equal calls get equal rewards.
        asked: of a judge by its name, how it is loaded and asked: ``branches=3, aggregation="mean"``.

    Raises:
        ConfigError: no such mode, or a reference or criteria that the mode has no use for.
    """

    def __init__(
        self,
        judge: Named,
        mode: str = "round_robin",
        *,
        criteria: Given = None,
        rubrics: str | None = None,
        reference: str | None = None,
        seed: int = 0,
        **asked: Any,
    ) -> None:
        if mode not in WAYS:
            raise ConfigError(f"mode={mode!r}: expected one of {', '.join(WAYS)}")
        if (criteria is not None or rubrics) and mode != SCORE:
            raise ConfigError(f"criteria are for mode={SCORE!r}; give those of comparisons to load_judge(criteria=...)")
        if asked and not isinstance(judge, (str, Path)):
            raise ConfigError(f"{', '.join(asked)}: only for a judge that is given by its name; this one is loaded")
        if (reference is None) == (mode == "anchor") and mode != SCORE:
            raise ConfigError(f"mode={mode!r}, reference={reference!r}: anchor compares with it, {MODES[0]} not")
        self.mode, self.__name__ = mode, f"judge_{mode}"
        self._named, self._how = judge, ({"reads": "one"} if mode == SCORE else {}) | asked
        self._reference, self._seed = reference, seed
        self._criteria, self._rubrics = given_rubric(criteria), rubrics

    @cached_property
    def judge(self) -> Judge:
        """The judge, loaded when it is first needed."""
        from judgetrain.judges import load_judge

        return load_judge(self._named, **self._how) if isinstance(self._named, (str, Path)) else self._named

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Any) -> list[float | None]:
        """One reward for each completion; of ``columns`` those of references and rubrics and TRL's ``log_metric``.

        Raises:
            DataError: a prompt that is none, no such column, or criteria that cannot be read.
            EngineError: the judge cannot be loaded or asked.
        """
        found = self._column("reference", self._reference, columns) or [None] * len(completions)
        references = [None if each is None else text_of(each) for each in found]
        if self.mode == SCORE:
            return self._scores(prompts, completions, references, columns)
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
            log_metric("judge/comparisons", float(len(said)))
            for verdict in ("unreadable", "inconsistent") if said else ():
                log_metric(f"judge/{verdict}", sum(each.verdict == verdict for each in said) / len(said))
        return rewards

    def _rubric(self, raw: Any, row: int) -> Rubric:
        try:
            return rubric_of(raw)
        except DataError as error:
            raise DataError(f"row {row}, column {self._rubrics}: {error}") from error

    def _column(self, argument: str, name: str | None, columns: Mapping[str, Any]) -> Sequence[Any] | None:
        if name is not None and name not in columns:
            raise DataError(f"{argument}={name!r}: no such column in the data, only {', '.join(columns)}")
        return None if name is None else columns[name]

    def _scores(
        self,
        prompts: Sequence[Text],
        completions: Sequence[Text],
        references: Sequence[str | None],
        columns: Mapping[str, Any],
    ) -> list[float | None]:
        """What each completion is worth by itself; equal ones of a prompt are asked about once."""
        own = self._column("rubrics", self._rubrics, columns) or [None] * len(completions)
        rows: dict[tuple[Any, ...], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        rewards: list[float | None] = [0.0] * len(completions)
        for row, (prompt, completion, reference) in enumerate(zip(prompts, completions, references, strict=True)):
            messages, response = _asked(prompt, text_of(completion))
            if response.strip():
                rubric = self._criteria if own[row] in (None, "") else self._rubric(own[row], row)
                rows[messages, reference, rubric][response].append(row)
        groups = [Candidates.of(m, [*of], reference, rubric) for (m, reference, rubric), of in rows.items()]
        found = self.judge.score_all(groups, derive_seed(self._seed, *(group.id for group in groups)))
        for of, scores in zip(rows.values(), found, strict=True):
            for places, score in zip(of.values(), scores, strict=True):
                for row in places:
                    rewards[row] = score.value
        said = [score for scores in found for score in scores]
        if (log_metric := columns.get("log_metric")) is not None and said:
            log_metric("judge/judgments", float(sum(len(score.reasons) for score in said)))
            log_metric("judge/unreadable", sum(score.value is None for score in said) / len(said))
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

    A judge that is given by its name is loaded for this one call (``asked``: how), and freed. ``mode`` and ``asked``:
    as of :class:`JudgeReward`.

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
