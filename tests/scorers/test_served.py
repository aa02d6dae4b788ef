"""Scores by a server's log-probabilities: the same as by the model in this process, where the server has them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch

from judgetrain.engines.answers import Budget
from judgetrain.engines.config import ModelConfig, OpenAIEngineConfig, TransformersEngineConfig
from judgetrain.errors import ConfigError, EngineError
from judgetrain.pipeline.config import Config
from judgetrain.scorers.encode import Sample, Unscored
from judgetrain.scorers.methods import score
from judgetrain.scorers.results import TokenStatistics
from judgetrain.scorers.served import ServedScorer
from judgetrain.scorers.stages import check_scorer
from judgetrain.scorers.statistics import TokenScorer

PROMPT = ({"role": "user", "content": "the cat"},)
SAMPLES = [Sample(PROMPT, "the dog sat on"), Sample(PROMPT, "list a dog"), Sample(PROMPT, " ")]


@contextmanager
def completions(scorer: TokenScorer, told: bool = True) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server of the scorer's own model that echoes a prompt with its log-probabilities, as vLLM's does."""
    bodies: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            bodies.append(body)
            read = scorer.tokenizer(body["prompt"], add_special_tokens=False, return_offsets_mapping=True)
            ids = torch.tensor([read["input_ids"]])
            with torch.no_grad():
                logs = scorer.model(ids).logits[0].log_softmax(-1)
            found = [None, *(float(logs[i, t]) for i, t in enumerate(ids[0, 1:].tolist()))]
            offsets = [0, *(at for at, _ in read["offset_mapping"][1:])]
            after = {"text_offset": [*offsets, len(body["prompt"])], "token_logprobs": [*found, -0.5]}
            logprobs = {**after, "tokens": ["x"] * len(after["text_offset"]), "top_logprobs": []} if told else None
            choice = {"index": 0, "text": body["prompt"] + "x", "finish_reason": "length", "logprobs": logprobs}
            answer = json.dumps(
                {"id": "1", "object": "text_completion", "created": 0, "model": "m", "choices": [choice]}
            )
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, *given: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", bodies
    finally:
        server.shutdown()
        server.server_close()


def served(scorer: TokenScorer, url: str, budget: Budget | None = None) -> ServedScorer:
    config = OpenAIEngineConfig(model="m", base_url=url, api_key_env="", max_retries=0, concurrency=2)
    return ServedScorer(config, scorer.tokenizer, None, budget)


def test_log_probabilities_are_those_of_the_model_itself(scorer: TokenScorer, tmp_path: Path) -> None:
    budget = Budget(tmp_path / "spent.jsonl")
    with completions(scorer) as (url, bodies):
        remote = served(scorer, url, budget)
        found, local = remote.statistics(SAMPLES), scorer.statistics(SAMPLES)
        for one, other in zip(found[:2], local[:2], strict=True):
            assert isinstance(one, TokenStatistics) and isinstance(other, TokenStatistics)
            assert one.response_tokens == other.response_tokens
            assert one["logprob"] == pytest.approx(other["logprob"], abs=1e-5)
        assert found[2] == Unscored("empty_response") and len(bodies) == 2
        assert all(b["echo"] and b["logprobs"] == 1 for b in bodies)
        assert budget.spent["requests"] == 2
        names = ("sentprob_mean", "softmax_ent")
        ours, theirs = score(remote, SAMPLES, names), score(scorer, SAMPLES, names)  # type: ignore[arg-type]
        assert ours["sentprob_mean"].values[:2] == pytest.approx(theirs["sentprob_mean"].values[:2], abs=1e-5)
        assert ours["softmax_ent"].values[0] == Unscored("no_distribution")


def test_a_server_without_them_is_told_apart(scorer: TokenScorer) -> None:
    with completions(scorer, told=False) as (url, _), pytest.raises(EngineError, match=r"scorer\.engine: .*echo"):
        served(scorer, url).statistics(SAMPLES)
    config = Config()
    config.train.base = ModelConfig(path="world")
    config.scorer.engine = TransformersEngineConfig()
    with pytest.raises(ConfigError, match=r"scorer\.engine\.type='transformers': allowed is openai"):
        check_scorer(config)
