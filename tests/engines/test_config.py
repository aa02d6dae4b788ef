"""What each type of engine needs and can do, what of its settings decides results, and other models in its place."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.fingerprint import plain
from judgetrain.artifacts.stage_run import RunOptions, StageRun
from judgetrain.data.config import WorldEngineConfig
from judgetrain.engines import loading
from judgetrain.engines.answers import answers_of, spending
from judgetrain.engines.config import (
    ENGINES,
    EngineConfig,
    LimitsConfig,
    ModelConfig,
    OpenAIEngineConfig,
    TransformersEngineConfig,
    VllmEngineConfig,
    gpus_of,
)
from judgetrain.engines.loading import load_model
from judgetrain.errors import ConfigError, EngineError
from judgetrain.extras.selfeval.stages import SelfEvalSettings
from judgetrain.pipeline.config import STAGES, Config
from judgetrain.scorers.config import ScorerConfig, scored_model
from judgetrain.scorers.encode import COLUMNS, Tokens, TokenStatistics
from judgetrain.scorers.statistics import TokenScorer
from tests.builders.engines import tiny_llama, word_tokenizer
from tests.builders.pipeline import check_stage


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (TransformersEngineConfig(), r"e\.model\.path is empty: give a directory, a Hub id"),
        (TransformersEngineConfig(model=ModelConfig(path="./none")), r"e\.model\.path=\./none: no such directory"),
        (TransformersEngineConfig(model=ModelConfig(path="package:not-there")), "pip install not-there"),
        (
            TransformersEngineConfig(model=ModelConfig(path="a/b", attn_implementation="flash_attention_2")),
            r"e\.model\.attn_implementation=flash_attention_2: the package flash-attn is .* --no-build-isolation",
        ),
        (VllmEngineConfig(model=ModelConfig(path="world")), r"e\.type=vllm: the package vllm is not installed"),
        (OpenAIEngineConfig(), r"e\.model is empty: for type openai it is the model's name at the server"),
    ],
)
def test_what_an_engine_lacks_on_this_machine_is_refused(
    config: EngineConfig, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=message):
        config.check("e")


def test_an_argument_of_vllm_that_a_key_decides_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("judgetrain.engines.config.check_package", lambda module, because: None)
    for name, key in {"tensor_parallel_size": "engine.tensor_parallel_size", "dtype": "engine.model"}.items():
        with pytest.raises(ConfigError, match=rf"engine.vllm.{name}: is not given here; see {key}"):
            VllmEngineConfig(model=ModelConfig(path="world"), vllm={name: 2}).check("engine")


def test_what_changes_how_fast_or_where_is_no_part_of_an_engine() -> None:
    here = OpenAIEngineConfig(model="m")
    other = OpenAIEngineConfig(model="m", name="n", api_key_env="K", concurrency=1)
    assert plain(here) == plain(other) != plain(OpenAIEngineConfig(model="other"))
    for change in (
        {"json_schema": True},
        {"base_url": "http://elsewhere/v1"},
        {"extra_body": {"reasoning_effort": "low"}},
    ):
        assert plain(here) != plain(OpenAIEngineConfig(model="m", **change)), "these change what is written"
    assert plain(TransformersEngineConfig(batch_size=1)) == plain(TransformersEngineConfig())
    assert plain(WorldEngineConfig(error_rate=0.2)) != plain(WorldEngineConfig())
    assert plain(VllmEngineConfig(tensor_parallel_size=8)) == plain(VllmEngineConfig())
    assert plain(VllmEngineConfig(vllm={"quantization": "fp8"})) != plain(VllmEngineConfig())


def test_only_answers_that_may_be_paid_are_kept_and_limited(tmp_path: Path) -> None:
    limits = LimitsConfig(max_requests=1)
    paid = [name for name, kind in ENGINES.items() if answers_of(kind(), tmp_path, 1)]
    out = StageRun(tmp_path / "artifacts" / "stage" / "a", "stage", 1, Console(), RunOptions(home=tmp_path))
    limited = []
    for name, kind in ENGINES.items():
        with spending([None, kind()], limits, "k", out) as budget:
            limited += [name] if budget else []
    assert paid == limited == ["openai"]


TOKENIZER = word_tokenizer()


@pytest.fixture
def shared_out(tmp_path: Path) -> Any:
    """Return a model of two layers, the second and the output layer elsewhere."""
    from accelerate import dispatch_model

    places = dict.fromkeys(("model.embed_tokens", "model.rotary_emb", "model.layers.0"), "cpu")
    places |= dict.fromkeys(("model.layers.1", "model.norm", "lm_head"), "disk")
    model = tiny_llama(len(TOKENIZER))
    skipped = model._skip_keys_device_placement
    return dispatch_model(model, places, main_device="cpu", offload_dir=str(tmp_path), skip_keys=skipped)


def test_it_scores_what_the_whole_model_does(shared_out: Any) -> None:
    batch = [Tokens((5, 9, 4), (7, 8)), Tokens((5, 6), (7, 8, 3, 2)), Tokens((2,), (3,))]
    ours, theirs = (TokenScorer(m, TOKENIZER).of_tokens(batch) for m in (shared_out, tiny_llama(len(TOKENIZER))))
    for result, expected in zip(ours, theirs, strict=True):
        assert isinstance(result, TokenStatistics) and isinstance(expected, TokenStatistics)
        for name in COLUMNS:
            torch.testing.assert_close(
                torch.tensor(result.steps[name]), torch.tensor(expected.steps[name]), rtol=1e-4, atol=1e-5
            )


def on_gpus(monkeypatch: pytest.MonkeyPatch, number: int) -> list[dict[str, Any]]:
    """So many GPUs of 10, 20, … bytes; gives what Transformers is asked to load."""
    loads: list[dict[str, Any]] = []

    def load(load: Any, config: ModelConfig, path: str, gguf_file: str | None, **options: Any) -> Any:
        if load == AutoConfig.from_pretrained:
            return AutoConfig.from_pretrained(path)
        loads.append(options)
        return tiny_llama(len(TOKENIZER)), {"missing_keys": set(), "unexpected_keys": set()}

    monkeypatch.setattr(loading, "from_pretrained", load)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: number)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (10 * (index + 1), 0))
    return loads


def test_the_first_gpus_share_it_out_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = on_gpus(monkeypatch, 4)
    config = ModelConfig(path="world", dtype="float32", gpus=2)
    load_model(config, "cuda")  # is not moved as a whole, which would fail here
    assert loads[0]["device_map"] == "balanced" and loads[0]["max_memory"] == {0: 10, 1: 20}
    for device in (None, "cpu"):  # trainers place it themselves; a CPU has room for all of it
        load_model(config, device)
    assert all("device_map" not in options for options in loads[1:])


def test_too_few_gpus_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ModelConfig(path="world", dtype="float32", gpus=3)
    on_gpus(monkeypatch, 2)
    with pytest.raises(EngineError, match=r"model\.gpus=3: world needs so many GPUs, .* 2 here"):
        load_model(config, "cuda")


def test_workers_have_as_many_gpus_as_the_largest_model_takes() -> None:
    assert gpus_of(TransformersEngineConfig(model=ModelConfig(gpus=4))) == 4
    assert gpus_of([VllmEngineConfig(tensor_parallel_size=2), ScorerConfig(model=ModelConfig(gpus=8))]) == 8
    assert gpus_of([]) == gpus_of(None) == 1
    config = Config(scorer=ScorerConfig(model=ModelConfig(gpus=2)))
    settings = STAGES["selfeval"].settings.of(config)
    assert isinstance(settings, SelfEvalSettings) and gpus_of(settings) == 2
    # Without a path the scorer reads train.base, on as many GPUs as scorer.model says.
    assert scored_model(config.scorer, ModelConfig(path="world")) == ModelConfig(path="world", gpus=2)


def test_where_it_does_nothing_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("judgetrain.engines.config.check_package", lambda *_: None)
    with pytest.raises(ConfigError, match=r"engine\.model\.gpus=2: .* set engine\.tensor_parallel_size"):
        VllmEngineConfig(model=ModelConfig(path="world", gpus=2)).check("engine")
    trained = Config()
    trained.train.base = ModelConfig(path="world", gpus=2)
    with pytest.raises(ConfigError, match=r"train\.base\.gpus=2: .* train\.distributed=zero3"):
        check_stage("sft", trained)
