"""The one interface of everything that compares two responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, overload

from judgetrain.errors import ConfigError, DataError
from judgetrain.judges.forfeits import without_forfeits
from judgetrain.judges.predictions import Prediction, Score
from judgetrain.rubrics import Rubric
from judgetrain.schema import Candidates, Comparison, Prompt, Reference

if TYPE_CHECKING:
    from pandas import DataFrame

    from judgetrain.judges.rows import Rows

Given = Rubric | str | Path | Sequence[Any] | Mapping[str, Any] | None


class Judge(Protocol):
    """Compares two responses, both orders asked. A class that inherits from it implements :meth:`compare_batch`.

    In a ``with`` statement its model is freed at the end.
    """

    name: str
    goes_by_criteria: ClassVar[bool] = False
    """True: it judges by criteria, so that a caller may give some."""
    learns_from_others: ClassVar[bool] = False
    """True: what it says of a row depends on the rows that it is judged with, so that all are judged at once."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @overload
    def __call__(
        self,
        prompt: Prompt,
        response_a: str,
        response_b: None = None,
        *,
        criteria: Given = None,
        reference: Reference = None,
        seed: int = 0,
    ) -> Score: ...

    @overload
    def __call__(
        self,
        prompt: Prompt,
        response_a: str,
        response_b: str,
        *,
        criteria: Given = None,
        reference: Reference = None,
        seed: int = 0,
    ) -> Prediction: ...

    def __call__(
        self,
        prompt: Prompt,
        response_a: str,
        response_b: str | None = None,
        *,
        criteria: Given = None,
        reference: Reference = None,
        seed: int = 0,
    ) -> Score | Prediction:
        """Return the verdict on two responses to a prompt, or the score of one.

        Many rows are judged faster together (:meth:`compare_all`, :meth:`score_all`). An empty response loses without
        being read.

        Args:
            prompt: the query, or the messages up to it.
            response_a: a response.
            response_b: the other one; None: the first is scored by itself.
            criteria: a rubric, its criteria in any shape that is read from files
                (:func:`~judgetrain.data.rubrics.rubric_of`), or a file's name; None: the judge's own.
            reference: a reference answer, which may be a number.
            seed: of what is sampled.

        Raises:
            DataError: a prompt or a response is no text, or the criteria cannot be read.
            ConfigError: one response for a judge that compares two, or criteria for one that goes by none.
        """
        rubric = self._rubric(criteria)
        if not isinstance(response_a, str) or not isinstance(response_b, (str, type(None))):
            types = ", ".join(type(argument).__name__ for argument in (prompt, response_a, response_b))
            raise DataError(f"expected a prompt and one or two responses, which are texts; found {types}")
        # One response alone has no other to be compared with.
        if response_b is None:
            candidates = Candidates.of(prompt, [response_a], reference, rubric)
            return self.score_batch([candidates], seed)[0][0]
        comparison = Comparison.of(prompt, response_a, response_b, reference, rubric=rubric)
        return self.compare_readable([comparison], seed)[0]

    def _rubric(self, criteria: Given) -> Rubric | None:
        """Return the rubric that a caller gives (ConfigError: the judge goes by no criteria)."""
        # Imported here, as only a call with criteria reads files.
        from judgetrain.data.rubrics import given_rubric

        # A file, a list or a text of criteria becomes a rubric here, so that all kinds of judges get the same.
        rubric = given_rubric(criteria)
        if rubric is not None and not self.goes_by_criteria:
            raise ConfigError(f"{self.name} goes by no criteria; judges that branch do")
        return rubric

    def explain(
        self,
        prompt: Prompt,
        response_a: str,
        response_b: str | None = None,
        *,
        criteria: Given = None,
        reference: Reference = None,
        seed: int = 0,
    ) -> Score | Prediction:
        """Return the verdict or the score with the reasons for it, also of a judge that writes scores alone.

        Arguments and errors are those of a call. Judges that write their reasons anyway are asked as ever. The score
        of a judgment stands before its reasons, so that it is the one of a judge that writes scores alone.
        """
        writing = self.writing(True)
        if response_b is None:
            return writing(prompt, response_a, criteria=criteria, reference=reference, seed=seed)
        return writing(prompt, response_a, response_b, criteria=criteria, reference=reference, seed=seed)

    @property
    def scores_alone(self) -> bool:
        """Return whether the judge can give its scores without text (:meth:`writing`)."""
        return False

    def writing(self, reasons: bool) -> Judge:
        """Return the same judge, with the same model, that writes its reasons or gives its scores alone.

        Closing either of the two frees the model of both. Judges that write no reasons return themselves.

        Args:
            reasons: whether judgments are written whole (``judge.reasons``).

        Raises:
            ConfigError: it gives no scores without text.
        """
        if reasons:
            return self
        raise ConfigError(
            f"reasons=false: {self.name} gives no scores without text; branching judges that read one response do"
        )

    def compare(self, comparison: Comparison) -> Prediction:
        """Return the verdict on one comparison, with seed 0."""
        return self.compare_readable([comparison], 0)[0]

    @overload
    def compare_all(
        self, rows: Rows, seed: int = 0, *, criteria: Given = None, frame: Literal[False] = False, progress: bool = True
    ) -> list[Prediction]: ...

    @overload
    def compare_all(
        self, rows: Rows, seed: int = 0, *, criteria: Given = None, frame: Literal[True], progress: bool = True
    ) -> DataFrame: ...

    def compare_all(
        self, rows: Rows, seed: int = 0, *, criteria: Given = None, frame: bool = False, progress: bool = True
    ) -> list[Prediction] | DataFrame:
        """Return the verdicts on many rows, in their order.

        A mapping, or a row of a table, that cannot be judged has no verdict (``unreadable``). Its ``failures`` say why,
        as ``empty_query``. Labels are not needed: one without a meaning is left out, with a warning.

        What is sampled for a row follows from the seed and the row's texts alone: the same row gets the same answer
        whatever is judged with it, up to rounding (:attr:`~judgetrain.schema.Comparison.number`), unless the judge
        learns from the other rows (:attr:`learns_from_others`).

        Args:
            rows: tuples (prompt, response A, response B), mappings with columns as files have them (``query``,
                ``response_a``, ``response_b``), :class:`Comparison` records, a pandas data frame or a
                ``datasets.Dataset``.
            seed: of what is sampled.
            criteria: as of a call; rows that bring criteria of their own keep them.
            frame: whether to return a data frame: the columns of the rows, then ``verdict``, ``verdict_ab``,
                ``verdict_ba``, ``margin``, ``score_a``, ``score_b``, ``decision``, ``failures``, ``note`` (why there is
                no verdict, or why nothing was read for it) and ``reasons``. A column of the rows with one of these
                names is shown as ``given_`` and its name.
            progress: whether a bar shows how far it is, once it has taken a few seconds.

        Raises:
            DataError: a row is no row, or the first one lacks a column; names its number, from 0.
            ConfigError: criteria for a judge that goes by none.
        """
        from judgetrain.judges.rows import comparisons_in, frame_of_predictions, in_steps

        rubric = self._rubric(criteria)
        table = comparisons_in(rows)
        comparisons = [comparison.with_rubric(rubric) for comparison in table.items]

        def judge(some: Sequence[Comparison]) -> list[Prediction]:
            return self.compare_readable(some, seed)

        # A bar must not change what is said.
        has_steps = progress and not self.learns_from_others
        answers = in_steps(comparisons, judge, self.name, has_steps)
        predictions = table.answers_by_row(answers, lambda row: row.prediction(self.name))
        return frame_of_predictions(table, predictions) if frame else predictions

    @overload
    def score_all(
        self, rows: Rows, seed: int = 0, *, criteria: Given = None, frame: Literal[False] = False, progress: bool = True
    ) -> list[list[Score]]: ...

    @overload
    def score_all(
        self, rows: Rows, seed: int = 0, *, criteria: Given = None, frame: Literal[True], progress: bool = True
    ) -> DataFrame: ...

    def score_all(
        self, rows: Rows, seed: int = 0, *, criteria: Given = None, frame: bool = False, progress: bool = True
    ) -> list[list[Score]] | DataFrame:
        """Return the scores of the responses of many rows: a list a row, as a row may hold several responses.

        An empty response scores 0. A mapping, or a row of a table, that cannot be judged has one score without a value.

        Args:
            rows: tuples (prompt, response), mappings with columns as files have them (``query``, ``response`` or
                ``responses``), :class:`Candidates` records, a pandas data frame or a ``datasets.Dataset``.
            seed: of what is sampled.
            criteria: as of a call; rows that bring criteria of their own keep them.
            frame: whether to return a data frame, a line a response: the columns of the rows, then ``score`` (0 to 1),
                ``by_criterion``, ``decision``, ``passes``, ``failures``, ``note`` (why there is no score, or why
                nothing was read for it) and ``reasons``.
            progress: whether a bar shows how far it is, once it has taken a few seconds.

        Raises:
            DataError: a row is no row, or the first one lacks a column; names its number, from 0.
            ConfigError: the judge compares two responses, or goes by no criteria where some are given.
        """
        from judgetrain.judges.rows import candidates_in, frame_of_scores, in_steps

        rubric = self._rubric(criteria)
        table = candidates_in(rows)
        groups = [candidates.with_rubric(rubric) for candidates in table.items]

        def judge(some: Sequence[Candidates]) -> list[list[Score]]:
            return self.score_batch(some, seed)

        answers = in_steps(groups, judge, self.name, progress)
        scores = table.answers_by_row(answers, lambda row: row.scores)
        return frame_of_scores(table, scores) if frame else scores

    def evaluate(
        self,
        rows: Rows,
        seed: int = 0,
        *,
        name: str = "rows",
        criteria: Given = None,
        resamples: int | None = None,
        progress: bool = True,
    ) -> dict[str, Any]:
        """Return how well the judge agrees with the labels of rows, as stage evaluate has it.

        Shares such as ``agreement`` and ``consistency`` are from 0 to 1; ``agreement`` of comparisons asks for the
        label in both orders. It is :func:`~judgetrain.evaluate.in_memory.evaluate_judge` of this judge, which says what
        the figures of single responses are.

        Args:
            rows: as :meth:`compare_all` reads them, with labels (``A``, ``B``, ``tie``); or mappings and tables as
                :meth:`score_all` reads them, one labelled response each.
            seed: of what is sampled, and of intervals.
            name: what the rows are called in the row of figures.
            criteria: as of a call; rows that bring criteria of their own keep them.
            resamples: resamples of an interval; None: as many as stage evaluate takes.
            progress: whether a bar shows how far it is, once it has taken a few seconds.

        Raises:
            DataError: a row cannot be read or holds a single response beside rows of two, two rows have one id, or none
                has a label.
            ConfigError: criteria for a judge that goes by none, or single responses for one that compares two.
        """
        # By the package's front, which imports the floor above when the name is used: judges know no evaluation.
        from judgetrain import evaluate_judge

        return evaluate_judge(
            self, rows, name=name, seed=seed, criteria=criteria, resamples=resamples, progress=progress
        )

    def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        """Return the verdicts on comparisons, judged together; as many as the input, in its order.

        What a kind of judge implements; :meth:`compare_all` reads rows of any shape for it.
        """
        ...

    def compare_readable(self, comparisons: Sequence[Comparison], seed: int) -> list[Prediction]:
        """Return the verdicts of :meth:`compare_batch`, which is asked only about comparisons of two texts.

        An empty response loses without being read, as in stage judge.
        """
        # What learns from rows also learns from those that it does not decide.
        if self.learns_from_others:
            return self.compare_batch(comparisons, seed)

        def ask(some: Sequence[Comparison]) -> list[Prediction]:
            return self.compare_batch(some, seed)

        return without_forfeits(comparisons, ask, self.name)

    def score_batch(self, groups: Sequence[Candidates], seed: int = 0) -> list[list[Score]]:
        """Return the score of each response of each group (ConfigError: the judge compares two responses)."""
        # Most kinds compare: those that score a single response override this.
        raise ConfigError(f"{self.name} compares two responses, and gives no score to one: give it two")

    def close(self) -> None:
        """Free the model, if there is one."""
