"""The debug recipe by the real command, and what of its artifacts must not depend on how often it was stopped."""

import gc
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from judgetrain.artifacts.integrity import CHECKSUM, FILES, UNLISTED
from judgetrain.artifacts.stage_run import MANIFEST
from judgetrain.pipeline import config

COMMAND = [sys.executable, "-m", "judgetrain", "recipe=debug", "stage=evaluate"]
STAGES = [
    *("dialogues", "cluster", "responses", "teacher", "initial", "tree", "label", "sft", "reference", "dpo"),
    "evaluate",
]
"""What the command makes, in its order."""
RENDERED = ("report.html", "report.md")
"""Pages made of metrics.json and the manifests, with the seconds of both."""
_TIME = re.compile(r"seconds|runtime|step_time|_per_second|^train_loss$|^total_flos$")
"""Keys that tell of the process: the time it took, and what Transformers sums up over its own steps alone."""


def start(output: Path, log: Path, *overrides: str) -> subprocess.Popen[bytes]:
    """Start the command in a process of its own, whose lines go to ``log``, and return the process."""
    with log.open("ab") as file:
        return subprocess.Popen(
            [*COMMAND, f"output_dir={output}", *overrides], stdout=file, stderr=file, cwd=output.parent
        )


def finished_once(factory: pytest.TempPathFactory) -> Path:
    """Return the ``output_dir`` of a run that was left alone; made once, it is read by all processes of the tests."""
    root = factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    place = root / "debug-run"
    with FileLock(root / "debug-run.lock"):
        if not (place / "finished").exists():
            place.mkdir(exist_ok=True)
            assert start(place / "outputs", place / "log").wait(9000) == 0, (place / "log").read_text()
            (place / "finished").touch()
    return place / "outputs"


def lasting(output: Path) -> dict[str, bytes]:
    """Return the bytes of every file of every artifact by its place; JSON without what it says of time."""
    root = output / "artifacts"
    contents = {}
    for path in sorted(p for p in root.glob("*/*/**/*") if p.is_file()):
        name = "/".join(path.relative_to(root).parts[2:])
        if name != MANIFEST and (name in UNLISTED or path.name in RENDERED):
            continue
        content = path.read_bytes()
        if path.suffix == ".json":
            content = json.dumps(_timeless(json.loads(content)), sort_keys=True).encode()
        elif path.name == "train_log.jsonl":
            content = json.dumps([_timeless(json.loads(line)) for line in content.splitlines()]).encode()
        contents[str(path.relative_to(root))] = content
    return contents


def _timeless(value: Any) -> Any:
    """JSON without times, and without the hashes of files that tell them."""
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if k not in (FILES, CHECKSUM) and not _TIME.search(k)}
    return [_timeless(part) for part in value] if isinstance(value, list) else value


PRELOADED = (
    *("tests.conftest", "hydra.main", "datasets", "sentence_transformers", "sklearn.cluster", "transformers", "trl"),
    *("judgetrain.judges.factory", "judgetrain.pipeline.job", "judgetrain.pipeline.run"),
    *("judgetrain.train.checkpoints", "judgetrain.train.trainers", "judgetrain.train.reference"),
    *sorted({stage.code.partition(":")[0] for stage in config.STAGES.values()}),
)
"""What the command imports: a process that is forked from one that has it is at work at once."""


def fork(output: Path, log: Path, *overrides: str) -> BaseProcess:
    """Start the command as :func:`start` does, without the time that imports take, and return the process."""
    arguments = f"output_dir={output}", "track.tracker=none", *overrides
    return forked(log, command, {}, output.parent, *COMMAND[3:], *arguments)


def forked(log: Path, target: Callable[..., object], *arguments: object) -> BaseProcess:
    """Start a call in a process that has the imports of the command behind it, and return it; lines go to ``log``."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    process = context.Process(target=_logged, args=(log, target, *arguments))
    process.start()
    return process


def lines_of(run: BaseProcess, log: Path) -> str:
    """Return the lines of a process that was forked, at its end, which is a good one."""
    run.join(1800)
    assert run.exitcode == 0, log.read_text()
    return log.read_text()


def _logged(log: Path, target: Callable[..., object], *arguments: object) -> None:
    gc.freeze()
    gc.enable()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its children in the background ignore Ctrl-C
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    target(*arguments)


def command(environment: dict[str, str], directory: Path, *arguments: str) -> None:
    """Run the command line as a process does that was started in a directory with these variables."""
    from judgetrain.pipeline.cli import main

    os.environ.update(environment)
    os.chdir(directory)
    sys.argv = ["judgetrain", *arguments]
    sys.exit(main())
