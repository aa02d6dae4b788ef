"""YAML of people is read in linear time: aliases of aliases are refused in a sentence, shared parts are not."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from judgetrain.data.benchmarks.adapter import load_adapter
from judgetrain.data.rubrics import read_rubric
from judgetrain.errors import ConfigError, DataError
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.yaml_text import ExpansionError, load_yaml

LEVELS = 7


def nested(first: str) -> list[str]:
    """Values of which each holds the one before ten times: the last stands for 10 to the power of their number."""
    values = [f"&a0 [{', '.join([first] * 10)}]"]
    for level in range(1, LEVELS):
        values.append(f"&a{level} [{', '.join([f'*a{level - 1}'] * 10)}]")
    return values


def merged() -> str:
    """Criteria of which each merges the one before ten times."""
    criteria = ["- &m0 {text: a, weight: 1}"]
    for level in range(1, LEVELS + 1):
        criteria.append(f"- &m{level} {{<<: [{', '.join([f'*m{level - 1}'] * 10)}], text: b{level}}}")
    return "\n".join(criteria)


TEXTS = ", ".join(f"{{value: {place}, text: {value}}}" for place, value in enumerate(nested("x")))
BOMBS = {
    "in levels": f"- {{text: a, scale: [{TEXTS}]}}",
    "in a column": "- text: a\n  name:\n" + "\n".join(f"  - {value}" for value in nested("x")),
    "in keys": "x:\n" + "\n".join(f"- {value}" for value in nested("{y: z}")) + "\ncriteria: [a]",
    "merged": merged(),
    "long scales": (
        f"- {{text: a, scale: &s [{', '.join(map(str, range(1000)))}]}}\n"
        + "\n".join(f"- {{text: b{i}, scale: *s}}" for i in range(3000))
    ),
}  # fmt: skip
READ = """
import sys, time
from judgetrain.data.rubrics import read_rubric
began = time.process_time()
try:
    read_rubric(sys.argv[1])
except Exception as error:
    print(type(error).__name__, error)
print(time.process_time() - began)
"""


@pytest.mark.parametrize("name", BOMBS)
def test_a_rubric_of_aliases_of_aliases_is_refused_in_a_sentence_and_a_second(name: str, tmp_path: Path) -> None:
    path = tmp_path / "rubric.yaml"
    path.write_text(BOMBS[name])
    # In a process of its own: what is not bounded would take hours and all memory.
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, timeout=120)
    message, seconds = done.stdout.splitlines()
    assert message.startswith("DataError") and "rubric.yaml: line " in message
    assert "its aliases (*NAME) stand for more values than the text has characters" in message
    assert float(seconds) < 5


def seconds(number: int, tmp_path: Path) -> float:
    path = tmp_path / "rubric.yaml"
    lines = ["- {text: c, weight: &w 2, scale: &s [{value: 0, text: bad}, {value: 1, text: good}]}"]
    lines += [f"- {{text: what the reader of number {i} looks for, weight: *w, scale: *s}}" for i in range(number)]
    path.write_text("\n".join(lines))
    began = time.process_time()
    assert len(read_rubric(path).criteria) == number + 1
    return time.process_time() - began


def test_criteria_that_share_a_scale_are_read_in_time_linear_in_their_number(tmp_path: Path) -> None:
    seconds(100, tmp_path)
    assert seconds(8_000, tmp_path) < 24 * max(seconds(1_000, tmp_path), 0.02)


@pytest.mark.parametrize(
    "text",
    [
        "", "-", "a", "[]", "{}", "- a\n- b", "{a: 1, b: [x, {y: z}]}", "? a\n: b", "a: &x 1\nb: *x",
        "- &s [1, 2]\n- *s\n- *s", "a: &m {x: 1}\nb: {<<: *m, y: 2}", '{"json": [1, 2.5, null, true]}', "---\na\n...\n",
        "plain\ntext", "a: 2024-01-02", "é: ü", "\n" * 5 + "- [[[]]]", "&a [&b [&c [1]], *b, *c]",
    ],
)  # fmt: skip
def test_what_is_within_bounds_is_read_as_yaml_says(text: str) -> None:
    assert load_yaml(text) == yaml.safe_load(text)


@pytest.mark.parametrize("depth", [300, 3_000, 200_000])
@pytest.mark.parametrize("around", [("[", "]"), ("{a: ", "}"), ("- ", "")])
def test_yaml_nested_thousands_deep_is_refused_and_ends_no_process(depth: int, around: tuple[str, str]) -> None:
    begin, end = around
    with pytest.raises(RecursionError, match="nested deeper than 200 levels"):
        load_yaml(begin * depth + "a" + end * depth)


def test_an_anchor_that_holds_itself_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rubric.yaml"
    path.write_text("&a [*a, *a]")
    with pytest.raises(DataError, match="criterion 1: expected a text or an object, found list"):
        read_rubric(path)


def test_prompts_and_adapters_are_read_within_the_same_bounds(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(BOMBS["in keys"])
    with pytest.raises(ExpansionError):
        load_yaml(path.read_text())
    with pytest.raises(ConfigError, match=r"mine\.yaml: not valid YAML: line \d+: its aliases"):
        load_prompt_set(path)
    with pytest.raises(ConfigError, match=r"mine\.yaml: not valid YAML: line \d+: its aliases"):
        load_adapter(str(path))
    path.write_text("[" * 5_000)
    with pytest.raises(ConfigError, match="nested"):
        load_adapter(str(path))


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("- {name: Tone, text: kind, not cold, weight: 2}", "not cold"),
        ("- {name: Tone, text: kind, weight: 3,5}", "5"),
        ("- {text: it is short,\n   and clear}", "and clear"),
        ("- {text: kind, scale: {no: 0, yes: 0,5}}", "5"),
        ("kinds: [{name: k, queries: [q], criteria: [c], other}]\ncriteria: [d]", "other"),
    ],
)
def test_what_follows_a_comma_in_braces_is_refused(text: str, key: str, tmp_path: Path) -> None:
    """The criterion would lack the end of its text, or the places behind its weight's comma."""
    path = tmp_path / "rubric.yaml"
    path.write_text(text)
    with pytest.raises(DataError, match=rf"line \d: '{key}' stands in braces without a value: put a text with a comma"):
        read_rubric(path)


def test_a_value_that_is_nothing_may_be_said(tmp_path: Path) -> None:
    path = tmp_path / "rubric.yaml"
    path.write_text("- {name: Tone, text: 'kind, not cold', weight: 3.5, guideline: null}\n- text: short\n  name:\n")
    first, second = read_rubric(path).criteria
    assert (first.text, first.weight, first.guideline, second.name) == ("kind, not cold", 3.5, None, "")
    assert load_yaml("{a: ~, b: ''}\n") == {"a": None, "b": ""}
