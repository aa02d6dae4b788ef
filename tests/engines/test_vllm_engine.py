"""The vLLM engine's side of the conversation, with a stand-in for the package (it needs a GPU)."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from judgetrain.engines.base import Choice, Request, Sampling
from judgetrain.engines.config import ModelConfig, VllmEngineConfig
from judgetrain.errors import EngineError


def test_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(EngineError, match=r"judgetrain\[vllm\]"):
        VllmEngineConfig().make()


def test_requests_and_outputs(model_dir, monkeypatch):
    calls = {}

    class LLM:
        def __init__(self, **settings):
            calls["settings"] = settings
            config = SimpleNamespace(max_position_embeddings=64)
            config.get_text_config = lambda: config
            self.llm_engine = SimpleNamespace(model_config=SimpleNamespace(hf_config=config))

        def generate(self, prompts, sampling_params, use_tqdm):
            calls["prompts"], calls["params"] = prompts, sampling_params
            reasons = ["stop", "length"]
            return [
                SimpleNamespace(
                    outputs=[SimpleNamespace(text=f"t{i}", token_ids=[1] * (i + 1), finish_reason=reasons[i])]
                )
                for i in range(2)
            ]

    fake = ModuleType("vllm")
    fake.LLM, fake.SamplingParams = LLM, lambda **settings: settings
    monkeypatch.setitem(sys.modules, "vllm", fake)
    engine = VllmEngineConfig(model=ModelConfig(path=str(model_dir)), max_context=40).make()
    ask = [
        Request(
            messages=({"role": "user", "content": " ".join(["cat"] * n)},),
            sampling=Sampling(temperature=0.5, top_p=0.9, max_new_tokens=8, stop=("\n",)),
        )
        for n in (3, 60, 4)
    ]
    out = engine.generate(ask, seed=10)
    assert [(c.text, c.prompt_tokens, c.generated_tokens, c.finish_reason) for c in out] == [
        ("t0", 5, 1, "stop"),
        ("", 62, 0, "too_long"),
        ("t1", 6, 2, "length"),
    ]
    assert calls["settings"]["max_model_len"] == 40
    assert [len(p["prompt_token_ids"]) for p in calls["prompts"]] == [5, 6]
    assert calls["params"][1] == {
        "temperature": 0.5, "top_p": 0.9, "max_tokens": 8, "stop": ["\n"], "stop_token_ids": [2], "seed": 12,
    }  # fmt: skip


def test_patterns_and_probabilities(model_dir, monkeypatch):
    def token(text, logprob):
        return SimpleNamespace(decoded_token=text, logprob=logprob)

    asked = {}

    class LLM:
        def __init__(self, **settings):
            config = SimpleNamespace(max_position_embeddings=64)
            config.get_text_config = lambda: config
            self.llm_engine = SimpleNamespace(model_config=SimpleNamespace(hf_config=config))

        def generate(self, prompts, sampling_params, use_tqdm):
            asked.update(sampling_params[0])
            logprobs = [{5: token("at", 0.0)}, {7: token(" 1", -0.5), 8: token(" 2", -0.5), 9: token(" no", -2.0)}]
            output = SimpleNamespace(text="at 1", token_ids=[5, 7], finish_reason="stop", logprobs=logprobs)
            return [SimpleNamespace(outputs=[output])]

    fake, params = ModuleType("vllm"), ModuleType("vllm.sampling_params")
    fake.LLM, fake.SamplingParams = LLM, lambda **settings: settings
    params.StructuredOutputsParams = lambda regex: ("regex", regex)
    monkeypatch.setitem(sys.modules, "vllm", fake)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", params)
    engine = VllmEngineConfig(model=ModelConfig(path=str(model_dir))).make()
    limits = Sampling(max_new_tokens=8, candidates=("1", "2"), pattern="at [12]")
    done = engine.generate([Request(messages=({"role": "user", "content": "cat"},), sampling=limits)], seed=1)[0]
    assert done.choices == (Choice(3, (0.5, 0.5)),)
    assert (asked["logprobs"], asked["structured_outputs"]) == (20, ("regex", "at [12]"))
