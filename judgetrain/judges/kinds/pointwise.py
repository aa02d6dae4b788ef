"""The pointwise judge, ``pointwise:MODEL``: one prompt has a response rated by itself (branching paper, 5.1)."""

from collections.abc import Sequence
from functools import partial

from judgetrain.judges.kinds.kind import Ask, Forms, Kind, Setup, Target
from judgetrain.judges.kinds.prompted import (
    PromptedJudge,
    arguments,
    ask_once,
    build_by,
    check,
    identity,
    options,
    prompts,
    read_by,
)
from judgetrain.judges.prompting.prompts import slots_of
from judgetrain.judges.prompting.replies import Question, Read, Reply
from judgetrain.judges.prompting.verdicts import read_rating
from judgetrain.schema import Comparison


class PointwiseJudge(PromptedJudge):
    """Rates each response by itself (``[[7]]``); the higher rating wins, equal ones are a tie.

    It sees no order: each response is rated once, both verdicts are the same, and its consistency of 100% (less what
    cannot be read) says nothing. A verdict costs both ratings.
    """

    dialect = "pointwise"

    def read(self) -> Read:
        """Return the reader of ratings on the prompt set's scale: the set's, or the one of marks."""
        assert self.prompts.scale is not None
        lowest, highest = self.prompts.scale
        reader = read_rating
        # A set may say with marks of its own where the rating stands.
        if self.prompts.reply_form:
            reader = self.prompts.reply_form.rating
        # Replies are read by whoever asks, who knows no scale.
        return partial(reader, lowest=lowest, highest=highest)

    def questions(self, comparison: Comparison, sides: str = "AB") -> list[Question]:
        """Return the questions that rate a comparison's responses, one for each of the ``sides``."""
        assert self.prompts.scale is not None
        lowest, highest = self.prompts.scale
        slots = slots_of(comparison)
        slots["lowest"] = str(lowest)
        slots["highest"] = str(highest)
        # Never the other response: the rating is to be of one alone.
        texts = {"A": comparison.response_a, "B": comparison.response_b}
        return [Question(side, {**slots, "response": texts[side]}) for side in sides]

    def rate(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Reply]:
        """Return the rating of each comparison's first response alone, a reply each.

        Its ``answer`` is None where no rating could be read.
        """
        questions = [self.questions(comparison, "A") for comparison in comparisons]
        groups = self._ask(questions, seed, [comparison.number for comparison in comparisons])
        # One question a group, so that each has one reply.
        return [reply for replies in groups for reply in replies]


KIND = Kind(
    name=PointwiseJudge.dialect,
    forms=Forms(
        evaluate="a model or directory after pointwise:",
        unlabelled="pointwise: before a model or a directory",
        python="pointwise:MODEL (likewise)",
    ),
    target=Target(model=True),
    check=check,
    build=build_by(PointwiseJudge),
    setup=Setup(
        settings=(PointwiseJudge.dialect,), options=options, arguments=arguments, prompts=prompts, identity=identity
    ),
    ask=Ask(rows="replies", process=ask_once, read=read_by("pointwise"), orders=1),
    rates=True,
)
