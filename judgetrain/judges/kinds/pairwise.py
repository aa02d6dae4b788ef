"""The pairwise judge, ``pairwise:MODEL``: one prompt asks which of two responses is better (branching paper, 5.1)."""

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
from judgetrain.judges.prompting.replies import Read
from judgetrain.judges.prompting.verdicts import read_verdict


class PairwiseJudge(PromptedJudge):
    """Shows both responses and asks which is better, once in each order.

    A reply ends with ``[[A]]``, ``[[B]]`` or ``[[C]]``, or as the prompt set says under ``reads``.
    """

    dialect = "pairwise"

    def read(self) -> Read:
        """Return the reader of verdicts: the prompt set's, or the one of marks."""
        if self.prompts.reply_form:
            return self.prompts.reply_form.verdict
        return read_verdict


KIND = Kind(
    name=PairwiseJudge.dialect,
    forms=Forms(
        evaluate="a model or directory after pairwise:",
        unlabelled="pairwise: before a model or a directory",
        python="pairwise:MODEL (a directory, a Hub id, or with engine= a server's model)",
    ),
    target=Target(model=True),
    check=check,
    build=build_by(PairwiseJudge),
    setup=Setup(
        settings=(PairwiseJudge.dialect,), options=options, arguments=arguments, prompts=prompts, identity=identity
    ),
    ask=Ask(rows="replies", process=ask_once, read=read_by("pairwise")),
)
