"""Models whose weights are not what their configuration says, or are none to be loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from judgetrain.data.world import BASE
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import DIGESTS, load_model, note_weights
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
    with pytest.raises(ConfigError, match=r"holds no weights \(\.safetensors, \.gguf\)"):
        config.check_here("engine.model")


def test_a_turned_bit_of_a_judge_s_weights_is_noticed_wherever_it_was_copied(tmp_path: Path) -> None:
    config = copied(tmp_path, 0)
    note_weights(tmp_path / "model")
    shutil.move(tmp_path / "model", tmp_path / "copy")
    config = config.at(tmp_path / "copy")
    load_model(config)
    file = next((tmp_path / "copy").glob("*.safetensors"))
    whole = file.read_bytes()
    middle = len(whole) // 2
    file.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    with pytest.raises(EngineError, match=f"copy/{file.name} is missing or holds other bytes than training wrote"):
        load_model(config)
    file.write_bytes(whole)
    (tmp_path / "copy" / DIGESTS).write_text("[")
    with pytest.raises(EngineError, match="is damaged"):
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
