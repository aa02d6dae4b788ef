"""A queue as the files that label tools read; ``judgetrain/data/cells.py`` reads what they export.

- Label Studio: tasks to import (JSON) and the labelling interface (XML), by its guide "Task format" and its tags
  Paragraphs, Text and Choices.
- Argilla 2: records for ``dataset.records.from_json``, with a ChatField and a LabelQuestion.

What the judge said is in neither, so that nobody is led by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]
QUESTION = "label"
"""The name of the one question, under which both tools export its answers."""
FACTS = ("model_a", "model_b", "group", "information", "chosen_by", "rank")
"""What travels with a comparison and is not shown."""

INTERFACE = """\
<View>
  <Paragraphs name="messages" value="$messages" layout="dialogue" nameKey="role" textKey="content"/>
  <View style="display: grid; grid-template: auto/1fr 1fr; column-gap: 1em">
    <View><Header value="Response A"/><Text name="response_a" value="$response_a"/></View>
    <View><Header value="Response B"/><Text name="response_b" value="$response_b"/></View>
  </View>
  <Choices name="label" toName="response_a" choice="single" showInline="true" required="true">
    <Choice value="A is better" alias="A"/>
    <Choice value="They are equally good" alias="tie"/>
    <Choice value="B is better" alias="B"/>
  </Choices>
</View>
"""
"""Label Studio's labelling interface: paste it under Settings, Labeling Interface, Code."""


def label_studio(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Tasks, in the order in which they are to be labelled."""
    shown = ("id", "messages", "response_a", "response_b")
    return [{"data": {name: row[name] for name in (*shown, *FACTS) if row[name] is not None}} for row in rows]


def argilla(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Records, in the order in which they are to be labelled."""
    return [
        {
            "id": row["id"],
            "fields": {name: row[name] for name in ("messages", "response_a", "response_b")},
            "metadata": {name: row[name] for name in FACTS if row[name] is not None},
            "suggestions": {},
            "responses": {},
            "vectors": {},
        }
        for row in rows
    ]
