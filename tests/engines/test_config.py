"""What each type of engine needs and can do, what of its settings decides results, and other models in its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.fingerprint import ContentHashes, plain
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.config import WorldEngineConfig
from judgetrain.engines.answers import answers_of, spending
from judgetrain.engines.config import (
    ENGINES,
    EngineConfig,
    LimitsConfig,
    ModelConfig,
    OpenAIEngineConfig,
    TransformersEngineConfig,
    VllmEngineConfig,
)
from judgetrain.errors import ConfigError

LOCAL = (TransformersEngineConfig, VllmEngineConfig)


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


def test_engines_that_lack_nothing_are_let_through(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    for path in (str(model_dir), "owner/name", "world", "package:some-weights"):
        for kind in LOCAL:
            kind(model=ModelConfig(path=path)).check("e")
    for config in (OpenAIEngineConfig(model="gpt"), WorldEngineConfig()):
        config.check("e")


@pytest.mark.parametrize("kind", LOCAL)
def test_of_a_local_model_the_content_counts_and_not_where_it_lies(kind: Any, tmp_path: Path) -> None:
    def identity(name: str, weights: str) -> Any:
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        (directory / "model.safetensors").write_text(weights)
        config = kind(model=ModelConfig(path=str(directory)))
        assert str(tmp_path) not in str(ContentHashes(tmp_path / "hashes.json").identity(config))
        return ContentHashes(tmp_path / "hashes.json").identity(config)

    assert identity("one", "weights") == identity("two", "weights") != identity("one", "other weights")
    hub = [plain(kind(model=ModelConfig(path=path))) for path in ("owner/one", "owner/two")]
    assert hub[0] != hub[1], "a Hub id stands for itself"


def test_what_changes_how_fast_or_where_is_no_part_of_an_engine() -> None:
    here = OpenAIEngineConfig(model="m")
    there = OpenAIEngineConfig(model="m", name="n", api_key_env="K", concurrency=1)
    assert plain(here) == plain(there) != plain(OpenAIEngineConfig(model="other"))
    for change in (
        {"json_schema": True},
        {"base_url": "http://elsewhere/v1"},
        {"extra_body": {"reasoning_effort": "low"}},
    ):
        assert plain(here) != plain(OpenAIEngineConfig(model="m", **change)), "these change what is written"
    assert plain(TransformersEngineConfig(batch_size=1)) == plain(TransformersEngineConfig())
    assert plain(WorldEngineConfig(error_rate=0.2)) != plain(WorldEngineConfig())


@pytest.mark.parametrize("kind", LOCAL)
def test_another_model_brings_its_own_files_and_a_server_knows_it_by_its_path(kind: Any) -> None:
    own = ModelConfig(path="base", revision="main", dtype="bfloat16")
    other = kind(model=own, name="n").with_model("judge")
    assert other == kind(model=ModelConfig(path="judge", dtype="bfloat16"), name="n")
    assert own.path == "base", "the configuration is as it was"
    server = OpenAIEngineConfig(model="m", base_url="http://here/v1")
    assert server.with_model("out/judge") == OpenAIEngineConfig(model="out/judge", base_url="http://here/v1")
    assert WorldEngineConfig().with_model("out/judge") == WorldEngineConfig()


def test_only_answers_that_may_be_paid_are_kept_and_limited(tmp_path: Path) -> None:
    limits = LimitsConfig(max_requests=1)
    paid = [name for name, kind in ENGINES.items() if answers_of(kind(), tmp_path, 1)]
    out = StageRun(tmp_path / "artifacts" / "stage" / "a", "stage", 1, Console(), home=tmp_path)
    limited = []
    for name, kind in ENGINES.items():
        with spending([None, kind()], limits, "k", out) as budget:
            limited += [name] if budget else []
    assert paid == limited == ["openai"]
