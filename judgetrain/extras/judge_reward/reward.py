"""Reward completions by a judge, in the form that TRL's trainers call; and choose the best of several responses."""

import logging
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from judgetrain import messages
from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.data.rubrics import given_rubric, rubric_of
from judgetrain.errors import ConfigError, DataError
from judgetrain.extras.judge_reward.groups import MODES, SCORE, WAYS, Group, Scalar, scalars
from judgetrain.judges.base import Given, Judge
from judgetrain.judges.predictions import Prediction
from judgetrain.rubrics import Rubric
from judgetrain.schema import Candidates, Comparison, Message, Prompt, messages_of
from judgetrain.scorers.rewards import Text, continued, text_of
from judgetrain.thoughts import opening_in

log = logging.getLogger(__name__)

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
        reference: the column with reference answers: texts, numbers or messages. In mode ``score`` the judge is shown
            them; in mode ``anchor``, which needs it, completions are compared with them, and None is no reward.
        seed: of a judge that samples. What it is asked also decides, so that equal calls get equal rewards.
        reasons: whether judgments are written whole; False: scores alone, which are the same and faster
            (``judge.reasons``). None: scores alone where the judge can give them, which is said once.
        options: of a judge by its name, how it is loaded and asked: ``branches=3, aggregation="mean"``.

    Raises:
        ConfigError: no such mode, or a reference or criteria that the mode has no use for. At the first call also:
            ``reasons=False`` of a judge that gives no scores without text.
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
        reasons: bool | None = None,
        **options: Any,
    ) -> None:
        if mode not in WAYS:
            raise ConfigError(f"mode={mode!r}: expected one of {', '.join(WAYS)}")
        if (criteria is not None or rubrics) and mode != SCORE:
            raise ConfigError(f"criteria are for mode={SCORE!r}; give those of comparisons to load_judge(criteria=...)")
        if options and not isinstance(judge, (str, Path)):
            raise ConfigError(f"{', '.join(options)}: only for a judge that is given by its name; this one is loaded")

        # Anchor cannot do without a reference, round_robin has no use for one, and a score may have one.
        if (reference is None) == (mode == "anchor") and mode != SCORE:
            raise ConfigError(f"mode={mode!r}, reference={reference!r}: anchor compares with it, {MODES[0]} not")
        self.mode = mode
        # TRL logs a reward by its function's name.
        self.__name__ = f"judge_{mode}"
        self._judge = judge
        self._options = options
        if mode == SCORE:
            # What the caller says comes last, and is refused by the judge if it does not fit.
            self._options = {"reads": "one"} | options
        self._reference = reference
        self._seed = seed
        self._reasons = reasons
        self._criteria = given_rubric(criteria)
        self._rubrics = rubrics

    @cached_property
    def judge(self) -> Judge:
        """Return the judge, loaded when it is first needed, and asked with or without reasons."""
        from judgetrain.judges import load_judge

        judge = self._judge
        if isinstance(judge, (str, Path)):
            judge = load_judge(judge, **self._options)
        if self._reasons is not None:
            return judge.writing(self._reasons)
        # Nobody reads the text of a reward.
        if judge.scores_alone:
            log.info("%s: rewards are scores without text; reasons=True writes it", self.__name__)
            return judge.writing(False)
        # A judge behind a server is among these: the server says how it is asked.
        log.warning(
            "%s: %s is asked as it is, with the text that it writes; a branching judge that reads one response "
            '(reads="one") gives scores without text, which is faster',
            self.__name__,
            judge.name,
        )
        return judge

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Any) -> list[float | None]:
        """Return one reward for each completion.

        Args:
            prompts: of the completions; equal ones make a group.
            completions: texts or messages, of which all that a reader is shown is judged: texts, calls of tools and
                what they answered, but nothing that the model thought.
            columns: of the data; read are those of references and rubrics, and TRL's ``log_metric``.

        Raises:
            DataError: a prompt that is none, no such column, or criteria that cannot be read.
            EngineError: the judge cannot be loaded or asked.
        """
        references: list[str | None] = [None] * len(completions)
        column = self._column("reference", self._reference, columns)
        if column is not None:
            references = [_reference(value, row, self._reference) for row, value in enumerate(column)]
        if self.mode == SCORE:
            return self._scores(prompts, completions, references, columns)
        return self._compared(prompts, completions, references, columns)

    def _compared(
        self,
        prompts: Sequence[Text],
        completions: Sequence[Text],
        references: Sequence[str | None],
        columns: Mapping[str, Any],
    ) -> list[float | None]:
        """Return what each completion is worth beside the others of its prompt, or beside its reference."""
        # By query and reference: trainers repeat a prompt for each of its completions, in any order.
        rows_of: dict[tuple[tuple[Message, ...], str | None], list[tuple[int, str]]] = defaultdict(list)
        for row, (prompt, completion, reference) in enumerate(zip(prompts, completions, references, strict=True)):
            # In mode anchor, a row without a reference has nothing to be compared with.
            if self._reference is None or reference is not None:
                query, response = _conversation(prompt, completion, row)
                rows_of[query, reference].append((row, response))
        groups = []
        for (query, reference), rows in rows_of.items():
            groups.append(Group(query, [response for _, response in rows], reference))
        predictions: list[Prediction] = []

        def ask(comparisons: Sequence[Comparison]) -> list[Prediction]:
            # Of what is asked, not of a count of calls: a training that goes on from a checkpoint gets the same
            # rewards.
            seed = derive_seed(self._seed, *(comparison.id for comparison in comparisons))
            answers = self.judge.compare_readable(comparisons, seed)
            predictions.extend(answers)
            return answers

        # Rows without a reference stay None, which TRL leaves out of the means.
        rewards: list[float | None] = [None] * len(completions)
        for rows, values in zip(rows_of.values(), scalars(groups, ask, self.mode), strict=True):
            for (row, _), value in zip(rows, values, strict=True):
                rewards[row] = value
        # TRL hands this over beside the columns; other trainers do not.
        log_metric = columns.get("log_metric")
        if log_metric is not None:
            log_metric("judge/comparisons", float(len(predictions)))
            if predictions:
                for verdict in ("unreadable", "inconsistent"):
                    count = sum(prediction.verdict == verdict for prediction in predictions)
                    log_metric(f"judge/{verdict}", count / len(predictions))
        return rewards

    def _scores(
        self,
        prompts: Sequence[Text],
        completions: Sequence[Text],
        references: Sequence[str | None],
        columns: Mapping[str, Any],
    ) -> list[float | None]:
        """Return what each completion is worth by itself; equal ones of a prompt are asked about once."""
        rubrics = self._column("rubrics", self._rubrics, columns) or [None] * len(completions)
        rows_of: dict[tuple[Any, ...], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        # A completion without text is worth nothing, and nobody has to be asked.
        rewards: list[float | None] = [0.0] * len(completions)
        for row, (prompt, completion, reference) in enumerate(zip(prompts, completions, references, strict=True)):
            query, response = _conversation(prompt, completion, row)
            if not response.strip():
                continue
            # The row's own criteria come before those of all rows.
            rubric = self._criteria
            if rubrics[row] not in (None, ""):
                rubric = self._rubric(rubrics[row], row)
            # Equal completions share a score: they are asked about once, and get the same reward.
            rows_of[query, reference, rubric][response].append(row)
        groups = []
        for (query, reference, rubric), by_response in rows_of.items():
            groups.append(Candidates.of(query, [*by_response], reference, rubric))
        seed = derive_seed(self._seed, *(group.id for group in groups))
        scores_of = self.judge.score_batch(groups, seed)
        all_scores = []
        for by_response, scores in zip(rows_of.values(), scores_of, strict=True):
            all_scores += scores
            for rows, score in zip(by_response.values(), scores, strict=True):
                for row in rows:
                    rewards[row] = score.value
        log_metric = columns.get("log_metric")
        if log_metric is not None and all_scores:
            judgments = sum(len(score.reasons) for score in all_scores)
            unreadable = sum(score.value is None for score in all_scores)
            log_metric("judge/judgments", float(judgments))
            log_metric("judge/unreadable", unreadable / len(all_scores))
        return rewards

    def _rubric(self, raw: Any, row: int) -> Rubric:
        """Return a row's own criteria (DataError: they cannot be read; names the row)."""
        try:
            return rubric_of(raw)
        except DataError as error:
            raise DataError(f"row {row}, column {self._rubrics}: {error}") from error

    def _column(self, argument: str, name: str | None, columns: Mapping[str, Any]) -> Sequence[Any] | None:
        """Return a column of the data; None where ``argument`` names none (DataError: there is no such column)."""
        if name is None:
            return None
        if name not in columns:
            raise DataError(f"{argument}={name!r}: no such column in the data, only {', '.join(columns)}")
        values: Sequence[Any] = columns[name]
        return values


@dataclass(frozen=True)
class Best:
    """The best of several responses.

    Args:
        index: its place; None where nothing readable was said.
        scores: what each response is worth. Of a single one it is None, since it is compared with nothing.
    """

    index: int | None
    scores: tuple[Scalar, ...]


def best_of_n(
    judge: Named, prompt: Prompt, responses: Sequence[str], mode: str = "round_robin", *, seed: int = 0, **options: Any
) -> Best:
    """Return the best of several responses to a prompt, the first of several that are equally good.

    Args:
        judge: a judge, or its name: it is then loaded for this one call, and freed.
        prompt: text or messages.
        responses: to choose from.
        mode: as of :class:`JudgeReward`.
        seed: of a judge that samples.
        options: how the judge is loaded and asked, as of :class:`JudgeReward`.

    Raises:
        ConfigError: no such mode or judge.
        DataError: no response, or a prompt that is none.
    """
    reward = JudgeReward(judge, mode, seed=seed, **options)
    if not responses:
        raise DataError("expected at least one response to choose from, found none")
    # As messages, since a text that ends in an open tag of reasoning would count as the beginning of the answers.
    query = [{"role": message.role, "content": message.content} for message in messages_of(prompt)]
    try:
        scores = reward([query] * len(responses), responses)
    finally:
        # A judge that was given loaded is its owner's. The property is in the instance once the judge was loaded.
        if isinstance(judge, (str, Path)) and "judge" in vars(reward):
            reward.judge.close()
    best: int | None = None
    best_score = -math.inf
    for place, score in enumerate(scores):
        # Strictly above: of equally good ones the first stays.
        if score is not None and score > best_score:
            best = place
            best_score = score
    if best is None and len(set(responses)) == 1:
        # There was nothing to ask, and there is nothing else to choose.
        best = 0
    return Best(best, tuple(scores))


def _reference(value: Any, row: int, column: str | None) -> str | None:
    """Return a row's reference answer, None where it has none (DataError: it is no answer; names row and column)."""
    try:
        return messages.reference_text(value)
    except DataError as error:
        raise DataError(f"row {row}, column {column}: {error}") from error


def _conversation(prompt: Text, completion: Text, row: int) -> tuple[tuple[Message, ...], str]:
    """Return the messages up to the user's query, and what a reader is shown of the completion.

    A prompt may begin the completion: with what came after the query, as an answer's first words or calls of tools, or
    with the tag that opens its reasoning.

    Raises:
        DataError: one of them is neither a text nor messages; names the row.
    """
    # TRL gives texts or messages; a trainer's own loop may give what a model that wrote nothing left.
    for name, value in (("prompt", prompt), ("completion", completion)):
        if not isinstance(value, (str, Sequence)):
            raise DataError(f"row {row}: expected a {name}, a text or messages; found {value!r:.80}")
    begun: list[Mapping[str, Any]]
    if isinstance(prompt, str):
        # A rendered prompt may end with a template's opening tag, without which the reasoning could not be told from
        # the answer.
        begun = [{"role": "assistant", "content": opening_in(prompt)}]
        return messages_of(prompt), text_of(continued(begun, completion))
    query, begun = messages.at_query(prompt)
    return messages_of(query), text_of(continued(begun, completion))
