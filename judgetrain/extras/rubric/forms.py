"""A rubric as files: for ``criteria=`` here, for AutoRubric and verifiers, and as text for a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from judgetrain.data.rubric_kinds import RubricByKind
from judgetrain.rubrics import HIGHEST, LOWEST, SCALE, Criterion, Rubric

HEAD = "Judge the response by these criteria. Score each from 1 (worst) to 5 (best); what weighs more counts more."


def own_form(rubric: Rubric) -> Any:
    """Return what ``rubric.yaml`` holds: a list of criteria, or with kinds a mapping of those."""
    if not isinstance(rubric, RubricByKind):
        return [_own_criterion(criterion) for criterion in rubric.criteria]
    kinds = []
    for kind in rubric.kinds:
        kinds.append({"name": kind.name, "queries": list(kind.queries), "criteria": own_form(kind.rubric)})
    return {"criteria": own_form(Rubric(rubric.criteria)), "kinds": kinds}


def _own_criterion(criterion: Criterion) -> dict[str, Any]:
    """Return a criterion as people write it: without what is the default."""
    row: dict[str, Any] = {}
    if criterion.name:
        row["name"] = criterion.name
    row |= {"text": criterion.text, "weight": criterion.weight}
    if criterion.guideline:
        row["guideline"] = criterion.guideline
    return row


def yaml_text(value: Any) -> str:
    """Return a value as YAML, in the order in which it was written down."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)


def autorubric_form(rubric: Rubric) -> dict[str, Any]:
    """Return a rubric as AutoRubric's ``Rubric.from_file`` reads it: criteria of five ordered options."""
    criteria = []
    for criterion in rubric.criteria:
        options = [{"label": f"{level.score:g}", "value": _share(level.score)} for level in SCALE]
        row = {"requirement": _described(criterion), "weight": criterion.weight, "options": options}
        if criterion.name:
            row = {"name": criterion.name, **row}
        criteria.append({**row, "scale_type": "ordinal"})
    return {"criteria": criteria}


def verifiers_form(rubric: Rubric) -> list[dict[str, Any]]:
    """Return a rubric as verifiers' ``RubricJudgeConfig(path=...)`` reads it: each with a name and ordered choices."""
    criteria = []
    for criterion in rubric.criteria:
        criteria.append(
            {
                "name": criterion.name or criterion.text,
                "text": _described(criterion),
                "weight": criterion.weight,
                "choices": [f"{level.score:g}" for level in SCALE],
            }
        )
    return criteria


def _share(score: float) -> float:
    """Return where a score lies on the scale, 0 to 1."""
    return (score - LOWEST) / (HIGHEST - LOWEST)


def _described(criterion: Criterion) -> str:
    """Return what a criterion asks, and how a response at each level looks."""
    if not criterion.guideline:
        return criterion.text
    return f"{criterion.text} ({' '.join(criterion.guideline.split())})"


def prompt_text(rubric: Rubric) -> str:
    """Return a rubric for a prompt: of kinds, each with what its queries are like."""
    if not isinstance(rubric, RubricByKind):
        return f"{HEAD}\n\n{_lines(rubric)}\n"
    parts = [HEAD]
    for kind in rubric.kinds:
        examples = "; ".join(kind.queries[:3])
        parts.append(f"For queries such as: {examples}\n{_lines(kind.rubric)}")
    parts.append(f"For any other query:\n{_lines(Rubric(rubric.criteria))}")
    return "\n\n".join(parts) + "\n"


def _lines(rubric: Rubric) -> str:
    """Return a rubric's criteria, a line each."""
    whole = sum(criterion.weight for criterion in rubric.criteria)
    lines = []
    for number, criterion in enumerate(rubric.criteria, start=1):
        line = f"{number}. {criterion.line} (weight {100 * criterion.weight / whole:.0f}%)"
        if criterion.guideline:
            line = f"{line}\n   {' '.join(criterion.guideline.split())}"
        lines.append(line)
    return "\n".join(lines)


def file_names(names: Sequence[str]) -> list[str]:
    """Return a file name for each kind, all different: its words with hyphens between them."""
    files: list[str] = []
    for number, name in enumerate(names, start=1):
        words = "".join(letter if letter.isalnum() else " " for letter in name.casefold()).split()
        files.append(f"{number:02d}-{'-'.join(words)}" if words else f"{number:02d}")
    return files
