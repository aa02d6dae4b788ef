"""A stage of paid requests, in this process or one of its own that may be killed."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tests.builders.client_pauses  # noqa: F401
from judgetrain.artifacts.console import Console
from judgetrain.artifacts.stage_run import RunOptions, ShardResult, StageRun
from judgetrain.engines.answers import AnswerStore, Budget
from judgetrain.engines.base import Request, Sampling, shard_of
from judgetrain.engines.config import OpenAIEngineConfig
from judgetrain.engines.openai import engine as openai_engine
from judgetrain.engines.openai import gate
from judgetrain.engines.openai.engine import OpenAIEngine
from judgetrain.errors import JudgetrainError

SHARD = 8
LONGEST = 40


def requests(number: int) -> list[Request]:
    """So many questions."""
    return [
        Request(messages=({"role": "user", "content": f"question {i}"},), sampling=Sampling(max_new_tokens=LONGEST))
        for i in range(number)
    ]


def stage(home: Path, name: str, number: int, speed: float = 1.0, **options: Any) -> StageRun:
    """Ask for ``number`` answers in shards of ``SHARD``; ``options`` are the engine's and the budget's."""
    limits = {key: options.pop(key, None) for key in ("max_requests", "max_tokens")}
    openai_engine.RETRIES = options.pop("retries", 6)
    out = StageRun(home / "artifacts" / "stage" / name, "stage", 1, Console(), RunOptions(home=home))
    budget = Budget(out.path(".spent.jsonl"), key="stage", **limits)
    config = OpenAIEngineConfig(model="m", api_key_env="TEST_KEY", **options)
    engine = OpenAIEngine(config, AnswerStore(home / "answers", 1), budget)
    engine._clock = gate.Clock(speed)

    def process(index: int, items: Sequence[Request]) -> ShardResult:
        texts = [request.messages[0] | {"number": i} for i, request in enumerate(items)]
        return shard_of(texts, engine.generate(items, index))

    try:
        out.sharded("rows", requests(number), SHARD, process, "requests")
    finally:
        out.note("spent", budget.spent)
    return out


def started(home: Path, name: str, number: int, **options: Any) -> subprocess.Popen[str]:
    """Start the stage in a process of its own, whose exit code is 2 after an expected error, and return the process."""
    arguments = json.dumps({"home": str(home), "name": name, "number": number, **options})
    command = [sys.executable, "-m", "tests.builders.paid", arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ.copy())


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.INFO)
    try:
        stage(Path(given.pop("home")), **given)
    except JudgetrainError as error:
        print(f"judgetrain: {error}", file=sys.stderr)
        sys.exit(2)
