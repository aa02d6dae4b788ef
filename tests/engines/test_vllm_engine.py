"""The vLLM engine's side of the conversation, with a stand-in for the package (really: ``test_vllm_contract.py``)."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import pytest

from judgetrain.artifacts.fingerprint import plain
from judgetrain.engines.base import Choice, Request, Sampling
from judgetrain.engines.config import ModelConfig, VllmEngineConfig
from judgetrain.engines.lazy_model import make_engine
from judgetrain.errors import ConfigError, EngineError, EngineLostError


@pytest.fixture(autouse=True)
def on_gpus(monkeypatch):
    """No CPU: what is said there is really run."""
    monkeypatch.setattr("judgetrain.engines.vllm_engine._on_cpu", lambda: False)


class Recorded:
    """An ``LLM`` that keeps what it was made with and asked, answers as it was told to, and is ended once."""

    made: ClassVar[list[dict]] = []
    asked: ClassVar[list[tuple]] = []
    outputs: ClassVar[list[SimpleNamespace]] = []

    def __init__(self, **settings):
        self.made.append(settings)
        config = SimpleNamespace(max_position_embeddings=64)
        config.get_text_config = lambda: config
        self.ended = []
        core = SimpleNamespace(shutdown=lambda: self.ended.append(True))
        self.llm_engine = SimpleNamespace(model_config=SimpleNamespace(hf_config=config), engine_core=core)

    def generate(self, prompts, sampling_params, use_tqdm):
        self.asked.append((prompts, sampling_params))
        return [SimpleNamespace(outputs=[output]) for output in self.outputs]


@pytest.fixture
def recorded(monkeypatch):
    fake, params = ModuleType("vllm"), ModuleType("vllm.sampling_params")
    fake.LLM, fake.SamplingParams = Recorded, lambda **settings: settings
    params.StructuredOutputsParams = lambda regex: ("regex", regex)
    for module in (fake, params):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for name in ("made", "asked", "outputs"):
        monkeypatch.setattr(Recorded, name, [])
    return Recorded.made


def test_requests_and_outputs(model_dir, recorded):
    engine = make_engine(VllmEngineConfig(model=ModelConfig(path=str(model_dir)), vllm={"max_model_len": 40}))
    Recorded.outputs += [
        SimpleNamespace(text="t0", token_ids=[1], finish_reason="stop"),
        SimpleNamespace(text="t1", token_ids=[1, 1], finish_reason="length"),
    ]
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
    assert recorded[0]["max_model_len"] == 40
    [(prompts, params)] = Recorded.asked
    assert [len(p["prompt_token_ids"]) for p in prompts] == [5, 6]
    assert params[1] == {
        "temperature": 0.5, "top_p": 0.9, "max_tokens": 8, "stop": ["\n"], "stop_token_ids": [2], "seed": 12,
    }  # fmt: skip


def test_patterns_and_probabilities(model_dir, recorded):
    def token(text, logprob):
        return SimpleNamespace(decoded_token=text, logprob=logprob)

    logprobs = [{5: token("at", 0.0)}, {7: token(" 1", -0.5), 8: token(" 2", -0.5), 9: token(" no", -2.0)}]
    Recorded.outputs += [SimpleNamespace(text="at 1", token_ids=[5, 7], finish_reason="stop", logprobs=logprobs)]
    engine = make_engine(VllmEngineConfig(model=ModelConfig(path=str(model_dir))))
    limits = Sampling(max_new_tokens=8, candidates=("1", "2"), pattern="at [12]")
    done = engine.generate([Request(messages=({"role": "user", "content": "cat"},), sampling=limits)], seed=1)[0]
    assert done.choices == (Choice(3, (0.5, 0.5)),)
    [(_, [params])] = Recorded.asked
    assert (params["logprobs"], params["structured_outputs"]) == (20, ("regex", "at [12]"))


@pytest.mark.parametrize(("error", "told"), [("EngineDeadError", EngineLostError), ("ValueError", ValueError)])
def test_the_end_of_vllms_process_is_told_apart_from_other_errors(error, told, monkeypatch, model_dir, recorded):
    kind = type(error, (Exception if error == "EngineDeadError" else ValueError,), {})

    def generate(self, *args, **kwargs):
        raise kind("see above")

    monkeypatch.setattr(Recorded, "generate", generate, raising=False)
    engine = make_engine(VllmEngineConfig(model=ModelConfig(path=str(model_dir))))
    with pytest.raises(told, match="vLLM's process has ended" if told is EngineLostError else "see above"):
        engine.generate(
            [Request(messages=({"role": "user", "content": "cat"},), sampling=Sampling(max_new_tokens=8))], 1
        )


def test_where_vllms_process_does_not_start_the_message_says_where_the_cause_stands(monkeypatch, model_dir):
    def fails(**settings):
        raise RuntimeError("Failed. See root cause above.")

    fake = ModuleType("vllm")
    fake.LLM = fails
    monkeypatch.setitem(sys.modules, "vllm", fake)
    with pytest.raises(EngineError, match=r"^vLLM cannot load .*: Failed\. See root cause above\. \(.*gpu_mem"):
        make_engine(VllmEngineConfig(model=ModelConfig(path=str(model_dir))))


def test_keys_and_further_arguments_reach_vllm(model_dir, recorded):
    make_engine(VllmEngineConfig(model=ModelConfig(path=str(model_dir))))
    assert not {"gpu_memory_utilization", "max_num_seqs", "quantization"} & {*recorded[0]}, "vLLM's own stand"
    assert recorded[0]["dtype"] == "float32", "as the Transformers engine loads it, not vLLM's float16"
    config = VllmEngineConfig(
        model=ModelConfig(path=str(model_dir)), tensor_parallel_size=4,
        vllm={"pipeline_parallel_size": 2, "gpu_memory_utilization": 0.8, "quantization": "fp8", "enforce_eager": True},
    )  # fmt: skip
    make_engine(config)
    given = {
        "tensor_parallel_size": 4, "pipeline_parallel_size": 2, "gpu_memory_utilization": 0.8,
        "quantization": "fp8", "enforce_eager": True, "dtype": "auto",
    }  # fmt: skip
    assert given.items() <= recorded[1].items()
    assert config.gpus == 8
    assert plain(replace(config, tensor_parallel_size=8)) == plain(config) != plain(replace(config, vllm={}))


def test_an_argument_that_a_key_decides_is_refused(model_dir, monkeypatch):
    monkeypatch.setattr("judgetrain.engines.config.check_package", lambda module, because: None)
    for name, key in {"tensor_parallel_size": "engine.tensor_parallel_size", "dtype": "engine.model"}.items():
        with pytest.raises(ConfigError, match=rf"engine.vllm.{name}: is not given here; see {key}"):
            VllmEngineConfig(model=ModelConfig(path=str(model_dir)), vllm={name: 2}).check("engine")


def test_adapters_are_to_be_merged(model_dir, tmp_path, recorded):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((model_dir / name).read_bytes())
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(EngineError, match=r"merge them into their base"):
        make_engine(VllmEngineConfig(model=ModelConfig(path=str(tmp_path))))
