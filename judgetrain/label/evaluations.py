"""Multi-branch evaluations that are already written, in the teacher's place (docs/dialogues.md has the schema)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from judgetrain.data.cells import RowError
from judgetrain.data.config import SourceConfig
from judgetrain.data.rows import RowReader
from judgetrain.data.sources import read
from judgetrain.judges.prompting.parsing import parse_judgment, render_criteria
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, GuidelineNode, JudgmentNode
from judgetrain.schema import ORDERS, Comparison

KEY = "teacher.evaluations"
NOT_SAMPLED: dict[str, Any] = {"prompt_tokens": 0, "generated_tokens": 0, "finish_reason": "stop"}
Text = tuple[str, str, str, str]


def read_evaluations(path: str) -> Iterator[EvaluationTree]:
    """The evaluations of a file or glob of JSON lines, one comparison each.

    A row is an evaluation tree as stage ``teacher`` writes them, or a plain one: a comparison (``query`` or
    ``messages``, ``response_a``, ``response_b``) with ``criteria``, each with its ``guidelines`` and their
    ``judgments``. A judgment whose text has no scores is kept and counted in the tree's ``failures``.

    Raises:
        ConfigError: no such file.
        DataError: a malformed row or a comparison that stands twice; names file and line.
    """
    source = SourceConfig(name="evaluations", path=path, fields={"criteria": ""})  # they are a tree here, no rubric
    reader = RowReader(source, key=KEY)
    seen: set[str] = set()

    def take(row: Any, number: int) -> EvaluationTree:
        tree = _tree(row, number, reader)
        if tree.comparison.id in seen:
            raise RowError("repeated_id", f"the comparison {tree.comparison.id!r} stands twice; ids must differ")
        seen.add(tree.comparison.id)
        return tree

    yield from read(source, KEY, take)


def text_of(comparison: Comparison) -> Text:
    """What makes two comparisons the same one: the dialogue before the query, the query and the two responses."""
    dialogue = comparison.dialogue
    return dialogue.context, dialogue.query, comparison.response_a, comparison.response_b


def _tree(row: Any, number: int, reader: RowReader) -> EvaluationTree:
    if isinstance(row, Mapping) and "criteria_text" in row:
        try:
            return EvaluationTree.from_row(dict(row))
        except (KeyError, TypeError, AttributeError) as error:
            raise RowError("malformed", f"not an evaluation tree as stage teacher writes them ({error})") from error
    comparison = reader.comparison(row, number, labelled=False)
    listed = _list(row, "criteria", f"comparison {comparison.id!r}")
    criteria = tuple(_criterion(c, rank, f"{comparison.id}/c{rank}") for rank, c in enumerate(listed))
    if not criteria:
        raise RowError("missing_field", "criteria is empty; expected at least one criterion")
    failures = Counter(f"judgment:{j.failure}" for c in criteria for j in c.judgments if j.failure)
    return EvaluationTree(
        comparison=comparison,
        criteria_text=render_criteria([c.text for c in criteria]),
        criteria_prompt_tokens=0,
        criteria_generated_tokens=0,
        criteria=criteria,
        seed=0,
        failures=dict(sorted(failures.items())),
    )


def _criterion(value: Any, rank: int, identifier: str) -> CriterionNode:
    """A criterion: its text alone, or an object with its guidelines."""
    item, place = {"criterion": value} if isinstance(value, str) else value, f"criteria[{rank}]"
    text = " ".join(_text(item, "criterion", place).split())
    found = enumerate(_list(item, "guidelines", place, required=False))
    guidelines = tuple(_guideline(g, f"{identifier}/g{i}", f"{place}.guidelines[{i}]") for i, g in found)
    return CriterionNode(id=identifier, text=text, rank=rank, generated_tokens=0, guidelines=guidelines)


def _guideline(item: Any, identifier: str, place: str) -> GuidelineNode:
    text = _text(item, "guideline", place)
    judgments: list[JudgmentNode] = []
    for number, judgment in enumerate(_list(item, "judgments", place, required=False)):
        node = _judgment(judgment, f"{place}.judgments[{number}]")
        name = f"{identifier}/{node.order}{sum(j.order == node.order for j in judgments)}"
        judgments.append(replace(node, id=name))
    return GuidelineNode(id=identifier, text=text, judgments=tuple(judgments), **NOT_SAMPLED)


def _judgment(item: Any, place: str) -> JudgmentNode:
    """A judgment: its ``text`` as it was written, and the ``order`` that was shown."""
    text = _text(item, "text", place)
    order = item.get("order", "AB")
    if order not in ORDERS:
        raise RowError("wrong_type", f"{place}.order={order!r}: expected AB or BA")
    parsed = parse_judgment(text)
    a, b = (parsed.first, parsed.second) if order == "AB" else (parsed.second, parsed.first)
    return JudgmentNode(id="", order=order, text=text, score_a=a, score_b=b, failure=parsed.failure, **NOT_SAMPLED)


def _text(item: Any, name: str, place: str) -> str:
    value = item.get(name) if isinstance(item, Mapping) else None
    if not isinstance(value, str) or not value.strip():
        raise RowError("missing_field", f"{place}: expected an object with the text {name}, found {value!r}")
    return value.strip()


def _list(item: Any, name: str, place: str, required: bool = True) -> Sequence[Any]:
    value = item.get(name) if isinstance(item, Mapping) else None
    if value is None and not required:
        return []
    if not isinstance(value, list):
        raise RowError("wrong_type", f"{place}: expected the list {name}, found {type(value).__name__}")
    return value
