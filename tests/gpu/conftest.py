"""The GPU kit's rows: every test leaves one, and the run ends with a table of them, as text and as JSON in files."""

import datetime
import gc
import json
import math
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.benchmarks.common import versions
from tests.gpu.sizes import DEVICE, TINY

OUT = Path(os.environ.get("JUDGETRAIN_GPU_OUT", "outputs/gpu"))
"""Where rows go as they come, and ``table.md`` and ``table.json`` at the end; several commands fill one table."""
SECONDS = float(os.environ.get("JUDGETRAIN_GPU_SECONDS", "480"))
"""The whole kit's time, so that a GPU that is lent for ten minutes gives a table: what has no time left is skipped."""
BEGAN = time.monotonic()
PACKAGES = ("torch", "transformers", "trl", "peft", "bitsandbytes", "deepspeed", "flash-attn", "vllm", "cuml-cu13")


def pytest_runtest_setup() -> None:
    """Before any fixture is made."""
    if DEVICE == "cpu" and not TINY:
        pytest.skip("no CUDA device")
    if seconds_left() <= 0:
        pytest.skip(f"the kit's {SECONDS:.0f} s are used up; JUDGETRAIN_GPU_SECONDS gives it more")


def seconds_left() -> float:
    """Return how many seconds the kit still has; tiny sizes, whose figures mean nothing, have no limit."""
    if TINY:
        return math.inf
    return SECONDS - (time.monotonic() - BEGAN)


@pytest.fixture(autouse=True)
def bounded(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give a test its seconds (``@pytest.mark.gpu(limit=...)``), and leave the GPU's memory as it was found."""
    limit = request.node.get_closest_marker("gpu").kwargs.get("limit", 60) * (10 if TINY else 1)
    limit = max(1, int(min(limit, seconds_left())))

    def late(*_: Any) -> None:
        raise TimeoutError(f"longer than {limit} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(limit)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        gc.collect()
        if DEVICE == "cuda":
            torch.cuda.empty_cache()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write a test's row: what it measured, or why it has no figures."""
    if "gpu" not in report.keywords or (report.when != "call" and report.outcome == "passed"):
        return
    crash = getattr(report.longrepr, "reprcrash", None)
    explanation = (
        crash.message if crash else report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    )
    entry = {"test": report.nodeid.split("::")[-1], "outcome": report.outcome, "seconds": round(report.duration, 1)}
    entry |= {"figures": dict(report.user_properties), "why": " ".join(str(explanation or "").split())[:300]}
    OUT.mkdir(parents=True, exist_ok=True)
    with (OUT / "rows.jsonl").open("a") as file:
        file.write(json.dumps(entry) + "\n")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table, with the last row of every test."""
    if not (OUT / "rows.jsonl").exists():
        return
    rows: dict[str, dict[str, Any]] = {}
    for row in map(json.loads, (OUT / "rows.jsonl").open()):
        # What an earlier command has measured stays where this one had no time left for it.
        if row["outcome"] != "skipped" or row["test"] not in rows:
            rows[row["test"]] = row
    about = machine()
    (OUT / "table.json").write_text(json.dumps({**about, "rows": [*rows.values()]}, indent=1) + "\n")
    text = table(about, [*rows.values()])
    (OUT / "table.md").write_text(text)
    terminalreporter.write_line(f"\n{text}")


def machine() -> dict[str, Any]:
    """Return what the figures belong to."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    name, memory = ("a CPU", 0) if DEVICE == "cpu" else (torch.cuda.get_device_name(), torch.cuda.mem_get_info()[1])
    about = {"device": name, "gpus": torch.cuda.device_count(), "memory_gib": round(memory / 2**30), "tiny": TINY}
    about |= {
        "versions": ", ".join(
            package_version
            for package_version in versions(*PACKAGES).split(", ")
            if not package_version.startswith("no ")
        )
    }
    commit = os.environ.get("JUDGETRAIN_COMMIT", commit or "unknown")
    return about | {"commit": commit, "date": str(datetime.date.today())}


def table(about: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Markdown: a row a test."""
    facts = "{device}, {memory_gib} GiB; {versions}; {date}, commit {commit}".format(**about)
    lines = ["Tiny sizes: these figures mean nothing.\n" if about["tiny"] else "", facts, ""]
    lines += ["| test | seconds | figures |", "| --- | --- | --- |"]
    for row in rows:
        name = row["test"].removeprefix("test_").replace("_", " ")
        figures_text = [f"{key} {value}" for key, value in row["figures"].items()]
        figures_text += [f"{row['outcome']}: {row['why']}"] if row["outcome"] != "passed" else []
        lines.append(f"| {name} | {row['seconds']:.0f} | {'; '.join(figures_text)} |")
    return "\n".join(lines).lstrip() + "\n"
