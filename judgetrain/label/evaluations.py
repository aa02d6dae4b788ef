"""Multi-branch evaluations that stage ``teacher`` has already written, in the teacher's place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from judgetrain.data.config import SourceConfig
from judgetrain.data.rows import RowError
from judgetrain.data.sources import read
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.schema import Comparison

KEY = "teacher.evaluations"
Text = tuple[str, str, str, str]


def read_evaluations(path: str) -> Iterator[EvaluationTree]:
    """The evaluations of a file or glob of JSON lines, one comparison each.

    A row is an evaluation tree as stage ``teacher`` writes them.

    Raises:
        ConfigError: no such file.
        DataError: a malformed row or a comparison that stands twice; names file and line.
    """
    source = SourceConfig(name="evaluations", path=path)
    seen: set[str] = set()

    def take(row: Any, number: int) -> EvaluationTree:
        try:
            tree = EvaluationTree.from_row(dict(row))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RowError("malformed", f"not an evaluation tree as stage teacher writes them ({error})") from error
        if tree.comparison.id in seen:
            raise RowError("repeated_id", f"the comparison {tree.comparison.id!r} stands twice; ids must differ")
        seen.add(tree.comparison.id)
        return tree

    yield from read(source, KEY, take)


def text_of(comparison: Comparison) -> Text:
    """What makes two comparisons the same one: the dialogue before the query, the query and the two responses."""
    dialogue = comparison.dialogue
    return dialogue.context, dialogue.query, comparison.response_a, comparison.response_b
