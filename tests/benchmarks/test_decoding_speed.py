"""The decoding benchmark: both arms generate as many tokens as they say, and its table."""

from __future__ import annotations

import re

import pytest
import torch

from judgetrain.engines.config import ModelConfig, TransformersEngineConfig
from judgetrain.engines.local.transformers_engine import TransformersEngine
from tests.benchmarks.decoding_speed import Measured, judgments, main, plain, table


def test_ratios_are_to_the_first_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    lines = table([Measured("generate", 1000, 9.0, 2.0), Measured("ours", 3000, 9.0, 2.0)])
    assert lines[2:] == [
        "| generate | 1000 | 9.00 / 2.00 | 500.0 | 1.00x |",
        "| ours | 3000 | 9.00 / 2.00 | 1,500.0 | 3.00x |",
    ]


def test_requests_are_several_of_each_prompt() -> None:
    requests = judgments(20, 8, 5)
    assert len(requests) == 20 and len({str(request.messages) for request in requests}) == 3
    assert {request.sampling.max_new_tokens for request in requests} == {5}


def test_tokens_of_generate_are_counted_up_to_the_end_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a loop over the rows; prompts asked for a different number of times are batched apart."""
    engine = TransformersEngine(TransformersEngineConfig(model=ModelConfig("world")))
    outputs = []
    generate = engine.model.generate

    def record(**options):
        outputs.append((options["input_ids"].shape[1], generate(**options)))
        return outputs[-1][1]

    monkeypatch.setattr(engine.model, "generate", record)
    requests = judgments(11, 4, 6)
    counted = plain(engine, requests, 8)
    rows = [row[start:].tolist() for start, output in outputs for row in output]
    ends = engine._ends
    assert len(rows) == 11 and len(outputs) > 1
    assert counted == sum(next((i for i, t in enumerate(row, 1) if t in ends), len(row)) for row in rows)


def test_both_arms_are_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--requests", "8", "--samples", "4", "--tokens", "6", "--batch-size", "8"])
    printed = capsys.readouterr().out
    assert "8 requests, 4 a prompt" in printed
    rows = re.findall(
        r"^\| (model\.generate, \d at once|TransformersEngine) \| (\d+) \| .* \| ([\d.]+)x \|$", printed, re.M
    )
    assert [name for name, *_ in rows][1] == "TransformersEngine" and rows[0][2] == "1.00"
    assert all(8 <= int(tokens) <= 8 * 6 for _, tokens, _ in rows)
