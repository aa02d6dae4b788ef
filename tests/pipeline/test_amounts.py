"""Messages say a number with its noun, and their verb agrees with it: one row, two rows."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import judgetrain
from judgetrain.amounts import agree, amount

PACKAGE = Path(judgetrain.__file__).parent
COUNTED = (
    "rows prompts queries comparisons pairs requests responses criteria trees branches examples files texts tokens "
    "judgments replies labels steps columns systems turns processes workers artifacts jobs stages calls dialogues "
    "evaluations verdicts values shards cells levels"
).split()
"""What messages count, in the plural."""
NEVER_ONE = {
    "judgetrain/data/world/floors.py": "counts of the benchmark, which are written out",
    "judgetrain/extras/world_base/corpus.py": "a text that the base is trained on",
    "judgetrain/judges/prompting/prompts.py": "a docstring of slots",
}
"""Files whose numbers are no message's, and why."""
NO_NUMBERS = {
    "request.step": "the name of a step",
    "step": "the name of a step",
    "labels.source": "a name",
    "counts": "several numbers with their parts",
    "split": "the name of a part",
}
"""Expressions behind which a plural stands that are no numbers."""


@pytest.mark.parametrize(
    ("number", "noun", "verb", "sentence"),
    [
        (0, "row", "hold", "0 rows hold"),
        (1, "row", "hold", "1 row holds"),
        (2000, "row", "hold", "2,000 rows hold"),
        (1, "query", "are", "1 query is"),
        (2, "query", "are", "2 queries are"),
        (2, "criterion", "were", "2 criteria were"),
        (1, "branch", "have", "1 branch has"),
        (3, "branch", "have", "3 branches have"),
        (1, "process", "do", "1 process does"),
        (2, "process", "do", "2 processes do"),
        (2, "turn", "carry", "2 turns carry"),
        (1, "turn", "carry", "1 turn carries"),
        (2, "day", "stay", "2 days stay"),
        (1, "day", "stay", "1 day stays"),
        (1, "try", "pass", "1 try passes"),
    ],
)
def test_a_number_its_noun_and_its_verb_agree(number: int, noun: str, verb: str, sentence: str) -> None:
    assert f"{amount(number, noun)} {agree(number, verb)}" == sentence


def counted_by_hand(file: Path) -> Iterator[str]:
    """Yield the places of a file where a text puts a plural behind a number that may be one."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, text in zip(node.values, node.values[1:], strict=False):
            if not isinstance(value, ast.FormattedValue) or not isinstance(text, ast.Constant):
                continue
            words = str(text.value).split()
            is_behind = str(text.value).startswith(" ") and bool(words) and words[0].strip(",.;:)") in COUNTED
            # Constants are no ones, and a number with decimals takes the plural.
            written = ast.unparse(value.value)
            is_constant = any(part.isupper() for part in written.split("."))
            is_number = written not in NO_NUMBERS and not written.startswith("agree(")
            has_decimals = value.format_spec is not None and ast.unparse(value.format_spec) != "f','"
            if is_behind and is_number and not is_constant and not has_decimals:
                yield f"{file.relative_to(PACKAGE.parent)}:{node.lineno}: {{{written}}} {words[0]}"


def test_no_message_puts_a_plural_behind_a_number_that_may_be_one() -> None:
    places = []
    for file in sorted(PACKAGE.rglob("*.py")):
        if str(file.relative_to(PACKAGE.parent)) not in NEVER_ONE:
            places += counted_by_hand(file)
    assert places == []


def test_a_plural_that_is_written_by_hand_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.pipeline.test_amounts.PACKAGE", tmp_path / "package")
    file = tmp_path / "package" / "module.py"
    file.parent.mkdir()
    file.write_text(
        'f"{len(rows)} rows hold"\nf"{number:,} texts"\nf"{MOST} rows"\nf"{share:.1f} tokens"\nf"{n} rowsets"'
    )
    assert list(counted_by_hand(file)) == [
        "package/module.py:1: {len(rows)} rows",
        "package/module.py:2: {number} texts",
    ]
