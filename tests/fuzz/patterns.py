"""Runs every regular expression of the package on long repetitive texts; prints those that are not linear.

Each pattern is tried in a process of its own, which the operating system ends when a text takes more than the limit of
processor time: Python cannot interrupt a search. Run by ``test_linear.py``.
"""

import ast
import dataclasses
import importlib
import os
import pkgutil
import re
import signal
import string
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import judgetrain
from judgetrain.judges.prompting.parsing import Frame
from judgetrain.judges.prompting.prompts import DIALECTS, load_prompt_set, packaged_sets

LENGTH = 30_000
SHORT = 3_000
"""Of the texts that begin with a head: on them a cubic search takes minutes, an exponential one for ever."""
SECONDS = 0.3
"""Processor time for one text. A linear search takes some 0.003 s of it, a quadratic one many times as much."""
UNITS = [
    *string.punctuation, " ", "\t", "\n", "\r\n", "1", "a", "A", "\u00e9", "\u4e2d", "\u00a0", "\x00",
    ". ", "- ", "**", "* ", "= ", "a ", "1.", "1 ", ", ", "\n ", "\n- ", "\n1. ", "[[", "[[A", "[[A]]", "\\(", "${",
    "'a ", "a:", "a: ", "1/", "a_", "*a", "[a](", "```", "<a", "</", "<think>", "<style>", "user:", "a://", "1,000",
    "Response A ", "Response A Score: 4\n", "Response A Score: 4 ", "I lower it to 3 ", "or 3 ", "<|im_end|>",
]  # fmt: skip
HEADS = ["Response A Score: 4", "[[", "1. ", "**a", "a:"]
METHODS = frozenset({"match", "fullmatch", "search", "finditer", "findall", "sub", "subn", "split"})
Found = tuple[str, re.Pattern[Any], frozenset[str]]
"""Where a pattern stands, the pattern, and how it is used: what only ``match`` is asked for is not searched with."""


def patterns() -> Iterator[Found]:
    """Yield every pattern of the package: those that modules hold, and those that are written in calls of ``re``."""
    modules = [m for m in pkgutil.walk_packages(judgetrain.__path__, "judgetrain.") if not m.name.endswith("__main__")]
    sources = {m.name: Path(m.module_finder.find_spec(m.name).origin).read_text("utf-8") for m in modules}  # type: ignore[union-attr, call-arg, arg-type]
    trees = {name: ast.parse(source) for name, source in sources.items()}
    used: dict[str, set[str]] = {}
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in METHODS and isinstance(node.value, ast.Name):
                variable = node.value.id
                used.setdefault(f"{name}.{variable}" if variable[0] == "_" else variable, set()).add(node.attr)
    for name, tree in trees.items():
        yield from ((f"{name}:{line}", pattern, frozenset({method})) for line, pattern, method in _written(tree))
        try:
            values = vars(importlib.import_module(name))
        except ImportError:  # an optional library
            continue
        for variable, value in values.items():
            how = frozenset(
                used.get(f"{name}.{variable}" if variable[0] == "_" else variable, METHODS)
                if isinstance(value, re.Pattern)
                else METHODS
            )
            yield from ((f"{name}.{variable}", pattern, how) for pattern in _held(value))
    for name in packaged_sets("branching") + packaged_sets("pairwise") + packaged_sets("pointwise"):
        prompts = load_prompt_set(name, next(d for d in DIALECTS if name in packaged_sets(d)))
        yield from ((f"{name}.yaml", p, frozenset({"finditer"})) for p in prompts._headings.values() if p)
        yield from ((f"{name}.yaml", p, METHODS) for p in _held(prompts.reply_form))
        frames = [Frame(source, 1 if step == "score" else 2) for step, source in prompts.frames.items()]
        lines = [line.pattern for frame in frames for line in frame._lines]
        yield from ((f"{name}.yaml", line, frozenset({"fullmatch"})) for line in lines)


def _held(value: Any, depth: int = 4) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
        return
    inside: list[Any] = []
    if isinstance(value, dict):
        inside = [*value, *value.values()]
    elif isinstance(value, (tuple, list, set, frozenset)):
        inside = [*value]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        inside = [getattr(value, field.name) for field in dataclasses.fields(value)]
    if depth:
        for inner in inside:
            yield from _held(inner, depth - 1)


def _written(tree: ast.Module) -> Iterator[tuple[int, re.Pattern[str], str]]:
    """Patterns that are written out in calls such as ``re.search("...", text)``, with the line and what is called."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Attribute(ast.Name("re"), method), [ast.Constant(str(text)), *_]) if method in METHODS:
                shown = ast.dump(node)
                flags = re.MULTILINE if "'M'" in shown or "MULTILINE" in shown else re.NOFLAG
                yield node.lineno, re.compile(text, flags), method


def texts() -> Iterator[str]:
    """Yield the texts: each unit repeated, with and without another character at the end, and after each head."""
    for unit in UNITS:
        for head in HEADS:
            yield f"{head}{unit * (SHORT // len(unit))}\x01"
    for unit in UNITS:
        yield f"{unit * (LENGTH // len(unit))}\x01"


def slow(pattern: re.Pattern[Any], methods: frozenset[str]) -> str | None:
    """Return the beginning of the first text on which the pattern is not linear, or None."""
    searched = not methods <= {"match", "fullmatch"}
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        for text in texts():
            subject: Any = text.encode() if isinstance(pattern.pattern, bytes) else text
            os.write(writer, f"{text[:30]!r}\n".encode())
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            pattern.match(subject)
            if "fullmatch" in methods:
                pattern.fullmatch(subject)
            if searched:
                for _ in pattern.finditer(subject):
                    pass
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        last = pipe.read().splitlines()[-1]
    return last if os.waitpid(child, 0)[1] else None


def main() -> None:
    """Print the patterns that are too slow, and how many were tried."""
    slow_patterns: dict[tuple[Any, ...], Found] = {}
    for case in patterns():
        slow_patterns.setdefault((case[1].pattern, case[1].flags, case[2]), case)
    for name, pattern, methods in slow_patterns.values():
        if text := slow(pattern, methods):
            print(f"{name} is not linear on {text}", flush=True)
    print(f"{len(slow_patterns)} patterns tried", file=sys.stderr)


if __name__ == "__main__":
    main()
