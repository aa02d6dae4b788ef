"""Models whose weights are not what their configuration says, or are none to be loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from judgetrain.data.world import BASE
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_model
from judgetrain.errors import ConfigError, EngineError
from judgetrain.judges.config import JudgeConfig, criteria_of


def copied(directory: Path, layers: int) -> ModelConfig:
    """The world's base under a configuration with so many layers more than it has."""
    shutil.copytree(BASE, directory / "model")
    file = directory / "model" / "config.json"
    config = json.loads(file.read_text())
    config["num_hidden_layers"] += layers
    config.pop("layer_types", None)
    file.write_text(json.dumps(config))
    return ModelConfig(path=str(directory / "model"))


@pytest.mark.parametrize(
    ("layers", "told"),
    [(1, "9 weights are missing, as model.layers.4"), (-1, "9 weights are of layers it does not have")],
)
def test_layers_and_weights_belong_together(layers: int, told: str, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=told):
        load_model(copied(tmp_path, layers))


def test_a_pickle_is_not_loaded(tmp_path: Path) -> None:
    config = copied(tmp_path, 0)
    file = next((tmp_path / "model").glob("*.safetensors"))
    load_model(config)
    file.unlink()
    torch.save({}, tmp_path / "model" / "pytorch_model.bin")
    with pytest.raises(EngineError, match="holds its weights in a pickle, which is never loaded"):
        load_model(config)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"constrained": "false"}', "constrained: expected bool, found 'false'"),
        ('{"criteria": "ten"}', "criteria: expected int"),
        ('{"temperature": true}', "temperature: expected float"),
        ("[1]", "expected an object, found list"),
        ("{", "not JSON"),
    ],
)
def test_what_is_written_beside_a_judge_has_its_types(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "judge.json").write_text(text)
    with pytest.raises(ConfigError, match=f"judge.json: {told}"):
        JudgeConfig.load(tmp_path)
    (tmp_path / "judge.json").write_text('{"criteria": 7, "temperature": 1, "fitted": null}')
    assert JudgeConfig.load(tmp_path).temperature == 1 and criteria_of(tmp_path) == 7
