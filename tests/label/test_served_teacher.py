"""The teacher behind a real OpenAI-compatible server with real weights: transformers serve with the world's base."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data import world
from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.engines.config import ModelConfig, OpenAIEngineConfig, SamplingConfig, TransformersEngineConfig
from judgetrain.errors import EngineError
from judgetrain.judges.config import TreeConfig
from judgetrain.judges.prompting.parsing import parse_criteria
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label import teacher_stage
from judgetrain.label.config import TeacherConfig
from judgetrain.label.stages import TeacherSettings
from judgetrain.pipeline.config import Config

BASE = str(Path(world.__file__).parent / "base")
COMPARISONS = eval_comparisons(WorldConfig(eval_comparisons=8), seed=5)[:3]
KEY = "sk-of-this-test"


class Served(NamedTuple):
    """A server that runs: its address, its process and what it prints."""

    url: str
    process: subprocess.Popen
    log: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    from transformers.utils.import_utils import is_serve_available

    if not is_serve_available():
        pytest.skip("transformers serve is not installed: pip install 'judgetrain[serving]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    log = tmp_path_factory.mktemp("server") / "log"
    start = "from transformers.cli.transformers import main; main()"
    command = [sys.executable, "-c", start, "serve", BASE, "--host", "127.0.0.1", "--port", port, "--device", "cpu"]
    env = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with log.open("wb") as printed:
        process = subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT, env=env)
    up, deadline = False, time.monotonic() + 180
    while not up and time.monotonic() < deadline and process.poll() is None:
        with suppress(httpx.TransportError):
            up = httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200
        time.sleep(0.2)
    if up:
        yield Served(f"http://127.0.0.1:{port}/v1", process, log)
    process.kill()
    process.wait()
    if not up:
        pytest.fail(f"the server did not come up:\n{log.read_text()[-2000:]}")


def test_the_teachers_stage_completes_and_needs_the_server_once(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVED_KEY", KEY)
    served_engine = OpenAIEngineConfig(model=BASE, base_url=served.url, api_key_env="SERVED_KEY", concurrency=2)
    greedy = SamplingConfig(0.0, 1.0, max_new_tokens=120)
    # Ten criteria are what the base has read, and so writes itself.
    teacher = TeacherConfig(engine=served_engine, comparisons=2, criteria=10, branches=2, sampling=greedy)
    config = Config(prompts="compact", teacher=teacher, tree=TreeConfig(criteria=10))
    responses = StageRun(tmp_path / "responses", "responses", 0, Console())
    responses.write_rows("comparisons", (c.to_row() for c in COMPARISONS))

    def run(name: str) -> StageRun:
        out = StageRun(tmp_path / name, "teacher", 0, Console(), home=tmp_path / "outputs")
        teacher_stage.run(TeacherSettings.of(config), {"responses": responses.directory}, out)
        return out

    out = run("teacher")
    trees = trees_of(out)
    calls = sum(1 + len([*t.guidelines()]) + len([*t.judgments()]) for t in trees)
    assert [len(parse_criteria(t.criteria_text, 10)) for t in trees] == [10, 10], "the world's base writes such lists"
    assert calls == 2 * (1 + 2 + 2 * 2)
    assert served.log.read_text().count('"POST /v1/chat/completions HTTP/1.1" 200') >= calls
    totals = out.totals()["tokens"]
    refused = served.log.read_text().count('"POST /v1/chat/completions HTTP/1.1" 422')  # a parameter it does not know
    assert out.notes["spent"] == {
        "requests": calls + refused, "prompt_tokens": totals["prompt"], "generated_tokens": totals["generated"],
    }  # fmt: skip
    assert refused <= 2, "the two that are under way at once"
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and KEY.encode() in p.read_bytes()]
    served.process.kill()
    served.process.wait()
    again = run("again")
    assert again.notes["spent"]["requests"] == 0
    assert trees == trees_of(again)
    teacher.engine = TransformersEngineConfig(model=ModelConfig(BASE, dtype="float32"))
    local = trees_of(run("local"))
    assert [written(t) for t in local] == [written(t) for t in trees], "the same weights on this machine, greedily"
    config.seed += 1
    teacher.engine = served_engine
    with pytest.raises(EngineError, match="check that the server runs"):
        run("other")


def trees_of(out: StageRun) -> list[EvaluationTree]:
    return [EvaluationTree.from_row(row) for row in read_rows(out.directory, "evaluations")]


def written(tree: EvaluationTree) -> list[str]:
    """All that the teacher wrote for a comparison."""
    texts = [g.text for _, g in tree.guidelines()] + [j.text for _, _, j in tree.judgments()]
    return [text.strip() for text in (tree.criteria_text, *texts)]
