"""What is printed: texts of data and models are shown, and never obeyed by a terminal."""

import pytest
from rich.table import Table

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.environment import TEXTS, unresolved
from judgetrain.errors import printable, say_error
from judgetrain.judging.rows import table

ATTACK = "a\x1b]0;renamed\x07b\x1b[2Jc\rd\x9b31me\x7f"
"""Renames the window, clears the screen, goes back to the line's beginning, colours, and deletes."""
SHOWN = "a\u241b]0;renamed\u2407b\u241b[2Jc\u240dd\ufffd31me\u2421"


def test_control_characters_are_shown() -> None:
    assert printable(ATTACK) == SHOWN
    assert printable("lines\nand\ttabs, caf\u00e9, \u518d\u5e2e") == "lines\nand\ttabs, caf\u00e9, \u518d\u5e2e"


def test_marks_of_direction_and_ends_of_lines_are_shown() -> None:
    """They would turn the words behind a name, or make it a line of its own."""
    assert printable("a\u202eb\u2066c\u2029") == "a<U+202E>b<U+2066>c<U+2029>"
    assert printable("\u05d0\u05d1 \u0645") == "\u05d0\u05d1 \u0645"


def test_a_name_in_brackets_is_no_markup() -> None:
    printed = Console().plain([table("[bold]t", ["[/a]", "b"], [["[red]x[/red]", "[/]"]])])
    for name in ("[bold]t", "[/a]", "[red]x[/red]", "[/]"):
        assert name in printed


def test_no_text_reaches_the_terminal_as_an_escape_sequence(capsys: pytest.CaptureFixture[str]) -> None:
    rich_table = Table(title=f"of {ATTACK}")
    rich_table.add_column(f"system {ATTACK}", no_wrap=True)
    rich_table.add_row(f"cell {ATTACK}")
    console = Console()
    console.line(f"line {ATTACK}")
    printed = console.plain([rich_table, f"text {ATTACK}"])
    say_error(f"error {ATTACK}")
    captured = capsys.readouterr()
    assert f"line {SHOWN}" in captured.out
    # Rich takes out the bell and the carriage return itself.
    beginning = SHOWN.replace("\u2407", "").replace("\u240d", "")[:20]
    for what in ("of", "system", "cell", "text"):
        assert f"{what} {beginning}" in captured.out
    assert f"judgetrain: error {SHOWN}" in captured.err
    assert not {"\x1b", "\x07", "\r", "\x9b", "\x7f"} & set(captured.out + captured.err + printed)


def test_an_address_from_the_environment_is_named_without_its_slash_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TEXTS, "http://me:secret@host/v1/", "${oc.env:URL}")
    for end in ("", "/"):
        assert unresolved(f"no answer: http://me:secret@host/v1{end}, ended") == "no answer: ${oc.env:URL}, ended"
