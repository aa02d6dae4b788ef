"""The replies of rows: the last one of a conversation, to the row's own prompt."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from judgetrain.data.cells import RowError
from judgetrain.data.config import SourceConfig
from judgetrain.data.dialogues import adapted
from judgetrain.data.rows.reader import RowReader
from judgetrain.data.sources import Rejects, read_comparisons
from judgetrain.data.sources import read as read_source
from judgetrain.judging.config import VerdictsConfig
from judgetrain.judging.items import read_items
from judgetrain.schema import Comparison
from tests.builders.data import write_lines
from tests.data.test_messages import ASKED, TOLD, TRACE


def test_calls_before_the_query_are_its_context_and_python_reads_them_alike(tmp_path: Path) -> None:
    turns = [ASKED, *TRACE, {"role": "user", "content": "And in Rome?"}]
    path = write_lines(tmp_path / "in.jsonl", [{"messages": turns, "response_a": "x", "response_b": "y"}])
    (comparison,) = read_comparisons(SourceConfig(name="s", path=path), "key", labelled=None)
    assert (comparison.dialogue.query, comparison.dialogue.context) == (
        "And in Rome?",
        f"User: {ASKED['content']}\nAssistant: {TOLD}",
    )
    assert Comparison.of(turns, "x", "y").dialogue.messages == comparison.dialogue.messages
    reader = RowReader(SourceConfig(name="s"))
    assert reader.dialogue({"messages": [ASKED, *TRACE]}, 1).reference == TOLD


def test_of_a_response_that_is_a_trace_all_is_judged(tmp_path: Path) -> None:
    reader = RowReader(SourceConfig(name="s"))
    row = {"prompt": [ASKED], "response_a": TRACE, "response_b": {"role": "assistant", "content": "Yes."}}
    pair = reader.comparison(row, 1, labelled=False)
    assert (pair.response_a, pair.response_b, pair.dialogue.query) == (TOLD, "Yes.", ASKED["content"])
    scored = reader.candidates({"prompt": [ASKED], "responses": [TRACE, "Yes.", [ASKED, *TRACE]]}, 1)
    assert scored.responses == (TOLD, "Yes.", TOLD)
    assert reader.candidates({"query": "q", "response": TRACE}, 1).responses == (TOLD,)
    rows = [{"prompt_id": "p", "prompt": ASKED["content"], "chosen": [ASKED, *TRACE], "rejected": [ASKED, TRACE[-1]]}]
    path = write_lines(tmp_path / "in.jsonl", rows)
    ((adapted_one,),) = adapted(SourceConfig(name="s", path=path, adapter="ultrafeedback"), "key", Rejects(strict=True))
    (preferred,) = read_comparisons(SourceConfig(name="s", path=path), "key")
    for comparison in (adapted_one, preferred):
        assert (comparison.response_a if comparison.label == "A" else comparison.response_b) == TOLD


def talk(*texts: str) -> list[dict[str, str]]:
    """Return a conversation that the user begins."""
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("columns", "is_said"),
    [
        ({"response_a": "One.", "response_b": "Another."}, True),
        ({"response_a": "One.", "response_b": " So.\n"}, False),
        ({"chosen": talk("Why?", "So."), "rejected": talk("Why?", "One.")}, False),
        ({"response": "One.", "label": "pass"}, True),
        ({"response": "So.", "label": "pass"}, False),
        # An empty cell of references does not make a reference of the answer, which a judge would be shown as right.
        ({"response_a": "One.", "response_b": "Another.", "reference": ""}, True),
    ],
)
def test_an_answer_behind_the_query_that_is_no_response_is_said(columns: dict[str, Any], is_said: bool) -> None:
    fields = {}
    if "chosen" in columns:
        fields = {"response_a": "chosen", "response_b": "rejected"}
    reader = RowReader(SourceConfig(name="s", fields=fields))
    row = {"messages": talk("Why?", "So."), **columns}
    if "response" in columns:
        dialogues = [reader.rated(row, 1).dialogue, reader.candidates(row, 1).dialogue]
    else:
        dialogues = [reader.comparison(row, 1, labelled=None).dialogue]
    assert all((dialogue.query, dialogue.reference) == ("Why?", None) for dialogue in dialogues)
    lines: list[str] = []
    reader.tell(lines.append)
    assert is_said == any("end with an answer of the assistant that is none of the responses" in line for line in lines)


def test_a_field_that_rows_have_in_different_columns_is_said() -> None:
    """In the second row the answer is missing, and another column's is judged in its place."""
    reader = RowReader(SourceConfig(name="s"), key="verdicts.source")
    for answer in ("One.", None):
        row = {"query": "q", "response_a": answer, "answer_a": "Another.", "response_b": "Two."}
        reader.comparison(row, 1, labelled=False)
    lines: list[str] = []
    reader.tell(lines.append)
    assert lines == [
        "s: response_a is read from response_a in some rows, from answer_a in others; "
        "'verdicts.source.fields={response_a: COLUMN}' names the only one"
    ]
    named = RowReader(SourceConfig(name="s", fields={"response_a": "response_a"}), key="verdicts.source")
    lost = named.comparison(row, 1, labelled=False)
    named.tell(lines.append)
    assert (lost.response_a, lines[1:]) == ("", ["s: columns that are not used (rows): answer_a (1)"])


FIRST = ("Why?", "So.", "And?")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"query": "Why?", "response_a": talk("Why? ", "So."), "response_b": "No."}, None),
        ({"query": "Why?", "response_a": "No.", "response_b": talk("When?", "Then.")}, "other_prompt"),
        # The second question is not the row's.
        ({"query": "Why?", "response_a": talk(*FIRST, "Then."), "response_b": "No."}, "other_prompt"),
        ({"chosen": talk(*FIRST, "Then."), "rejected": talk(*FIRST, "No.")}, None),
        ({"chosen": talk(*FIRST, "Then."), "rejected": talk("Why?", "Oh.", "And?", "No.")}, "other_turns"),
        ({"chosen": talk(*FIRST, "Then."), "rejected": talk("When?", "So.", "And?", "No.")}, "other_prompt"),
        ({"prompt": "Why?", "chosen": talk("Why?", "So."), "rejected": talk("When?", "No.")}, "other_prompt"),
        ({"query": ["Why?"], "response_a": talk("When?", "So."), "response_b": ["No."]}, "other_prompt"),
    ],
)
def test_a_response_that_is_another_conversation_than_the_row_s_is_refused(
    row: dict[str, Any], reason: str | None, tmp_path: Path
) -> None:
    reasons: list[str] = []
    rejects = Rejects(strict=False, keep=lambda reject: reasons.append(reject["reason"]))
    source = SourceConfig(name="s", path=write_lines(tmp_path / "in.jsonl", [row]))
    comparisons = list(read_source(source, "key", partial(RowReader(source).comparison, labelled=None), rejects))
    assert (len(comparisons), reasons) == ((1, []) if reason is None else (0, [reason]))


def test_scored_responses_are_to_the_row_s_own_prompt() -> None:
    reader = RowReader(SourceConfig(name="s"))
    scored = reader.candidates({"query": "Why?", "responses": [talk("Why?", "So."), "No."]}, 1)
    assert scored.responses == ("So.", "No.")
    with pytest.raises(RowError, match="field response: a conversation whose turns of the user"):
        reader.candidates({"query": "Why?", "response": talk("When?", "Then.")}, 1)


def test_a_label_beside_a_chosen_response_is_named_as_unused(tmp_path: Path) -> None:
    """Whichever side the chosen response gets, an A or B of the row's own is of no response that is known."""
    rows = [{"prompt": "Why?", "chosen": "So.", "rejected": "No.", "label": label} for label in ("A", "B", None)]
    lines: list[str] = []
    config = VerdictsConfig(source=SourceConfig(path=write_lines(tmp_path / "in.jsonl", rows)))
    items = read_items(config, None, 0, lines.append)
    for item in items:
        comparison = item.comparison
        assert (comparison.response_a if comparison.label == "A" else comparison.response_b) == "So."
    assert lines == ["in: columns that are not used (rows): label beside chosen (2)"]


@pytest.mark.parametrize(
    "text", ['[{"name": "oak"}]', '[{"role": "user", "content": "hi"}]', "[1] is a footnote", "[]"]
)
def test_a_response_whose_text_is_json_is_that_text(text: str) -> None:
    reader = RowReader(SourceConfig(name="s"))
    pair = reader.comparison({"query": "As JSON.", "response_a": text, "response_b": "no"}, 1, labelled=False)
    assert pair.response_a == text
    assert reader.candidates({"query": '[{"tree": "oak"}]', "responses": [text, "no"]}, 1).responses == (text, "no")
