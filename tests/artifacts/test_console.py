"""What is printed: texts of data and models are shown, and never obeyed by a terminal."""

import json

import pytest
from rich.table import Table
from rich.text import Text

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.environment import TEXTS, unresolved
from judgetrain.errors import printable, say_error
from judgetrain.judging.rows import table
from judgetrain.pipeline.job import _show_unforeseen

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


def test_a_plain_text_or_title_in_brackets_is_no_markup_either() -> None:
    rich_table = Table("[red]head[/]", title="[bold]:smile:")
    rich_table.add_row("[/a]")
    printed = Console().plain([rich_table, "text [red]x[/red]"])
    for name in ("[red]head[/]", "[bold]:smile:", "[/a]", "text [red]x[/red]"):
        assert name in printed


def test_the_title_of_a_bar_is_shown_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    console = Console()
    console.terminal = True
    with console.progress(f"[red]of[/] {ATTACK}", 2, "[/]rows{x}") as advance:
        advance(1)
    shown = capsys.readouterr().out
    assert "[red]of[/]" in shown and "[/]rows{x}" in shown and "renamed" in shown
    assert "\x1b]0;" not in shown


def test_what_follows_an_end_of_line_in_a_name_is_no_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    Console().line("a name\n12:00:00  judge: done")
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("  a name") and second == " " * 10 + "12:00:00  judge: done"


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


@pytest.mark.parametrize(
    "form", ["p%26ss%20w%2Frd%3C1%3E", "p%26ss%20w/rd%3C1%3E", "p%26ss+w%2Frd%3C1%3E", "p&amp;ss w/rd&lt;1&gt;"]
)
def test_a_value_of_the_environment_is_named_as_addresses_and_pages_write_it(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that fails to connect writes the address in its own notation, the password in it too."""
    monkeypatch.setitem(TEXTS, "p&ss w/rd<1>", "${oc.env:PASSWORD}")
    assert unresolved(f"http://me:{form}@host failed") == "http://me:${oc.env:PASSWORD}@host failed"


def test_values_of_the_environment_are_named_in_tables_keys_and_escaped_forms(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = 'a long "secret"\u00e9\n' + "x" * 100
    monkeypatch.setitem(TEXTS, secret, "${oc.env:S}")
    for form in (json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret)):
        assert unresolved(f"refused: {form[1:-1]}.") == "refused: ${oc.env:S}."
    assert unresolved({secret: [secret]}) == {"${oc.env:S}": ["${oc.env:S}"]}

    rich_table = Table("of", title=f"title {secret}", width=40)
    rich_table.add_row(f"cell {secret}")
    rich_table.add_row(Text(f"text {secret}"))
    printed = Console().plain([rich_table, f"plain {secret}"])
    assert printed.count("${oc.env:S}") == 4 and "xxx" not in printed and "secret" not in printed

    try:
        raise ValueError(secret)
    except ValueError as error:
        _show_unforeseen(type(error), error, error.__traceback__)
    shown = capsys.readouterr().err
    assert "Traceback" in shown and "ValueError: ${oc.env:S}" in shown and "xxx" not in shown
