"""Replies as JSON: the schema that a server is asked to keep to, and its answer in the form of the prompt."""

from __future__ import annotations

import json
from typing import Any

from judgetrain.engines.base import Form, FormLine, Step


def response_format(form: Form, step: Step) -> dict[str, Any]:
    """The parameter ``response_format`` of a request whose reply has this form."""
    properties = {line.name: _schema(line) for line in form}
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return {"type": "json_schema", "json_schema": {"name": step, "strict": True, "schema": schema}}


def _schema(line: FormLine) -> dict[str, Any]:
    values = [int(value) if value.isdigit() else value for value in line.values]
    kind = {"type": "integer" if values and isinstance(values[0], int) else "string"}
    return kind | ({"enum": values} if values else {})


def in_form(answer: str, form: Form) -> str:
    """The lines of the form with an answer's values, each on one line; the answer itself where it breaks the schema.

    Such an answer has to be in the prompt's own form, or nothing is read from it.
    """
    try:
        pairs = json.loads(answer, object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        return answer
    said = dict(pairs) if isinstance(pairs, tuple) else {}
    whole = len(said) == len(form) and len(pairs) == len(form)
    if not (whole and all(_keeps(said.get(line.name), line) for line in form)):
        return answer
    return "\n".join(line.written.replace("{}", " ".join(str(said[line.name]).split())) for line in form)


def _keeps(value: Any, line: FormLine) -> bool:
    return value in (_schema(line).get("enum") or [str(value)]) and not isinstance(value, bool)
