"""A scalar reward model in the table: its rewards are the classifier's own, whatever stands beside a response."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from judgetrain.artifacts.fingerprint import ContentHashes
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_tokenizer
from judgetrain.errors import ConfigError
from judgetrain.extras.reward_model.kind import KIND
from judgetrain.judges.factory import load_judge
from judgetrain.judges.method import Method, method_directory
from judgetrain.schema import Comparison
from tests.builders.pipeline import check_stage, configured

PAIRS = [("What is a tree?", "A tall plant.", "No."), ("Why?", "Because it is so, and was so before.", "So.")]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier with one label and random weights, by the world's tokenizer."""
    from transformers import LlamaConfig, LlamaForSequenceClassification

    place = tmp_path_factory.mktemp("reward") / "peer"
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, num_labels=1, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    LlamaForSequenceClassification(config).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


def test_the_higher_reward_wins_and_the_margin_is_their_difference(directory: Path) -> None:
    judge = load_judge(f"reward:{directory}")
    predictions = judge.compare_all(PAIRS)
    judge.close()
    model = AutoModelForSequenceClassification.from_pretrained(directory).eval()
    tokenizer = AutoTokenizer.from_pretrained(directory)
    for prediction, (query, *responses) in zip(predictions, PAIRS, strict=True):
        rewards = []
        for response in responses:
            messages = [{"role": "user", "content": query}, {"role": "assistant", "content": response}]
            text = tokenizer.apply_chat_template(messages, tokenize=False)
            # Alone, so that nothing is padded.
            ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
            with torch.no_grad():
                rewards.append(model(input_ids=ids).logits.item())
        assert prediction.margin == pytest.approx(rewards[0] - rewards[1], abs=1e-5)
        winner = "A" if rewards[0] > rewards[1] else "B"
        assert (prediction.verdict_ab, prediction.verdict_ba) == (winner, winner)
        assert prediction.cost.calls == 2


def test_its_content_is_what_an_evaluation_depends_on_and_not_its_path(directory: Path, tmp_path: Path) -> None:
    def known_by(place: Path) -> Mapping[str, Any]:
        method = Method.parse(f"reward:{place}")
        return KIND.setup.identity(None, method, ContentHashes.of_run(None), 0)  # type: ignore[arg-type]

    assert method_directory(f"reward:{directory}") == str(directory)
    moved = tmp_path / "moved"
    shutil.copytree(directory, moved)
    assert known_by(moved) == known_by(directory)
    model = AutoModelForSequenceClassification.from_pretrained(moved)
    with torch.no_grad():
        model.score.weight += 1
    model.save_pretrained(moved)
    assert known_by(moved) != known_by(directory)


def test_weights_are_read_of_safetensors_alone(directory: Path, tmp_path: Path) -> None:
    """Others are pickles, which run what whoever wrote them put there."""
    pickled = tmp_path / "pickled"
    shutil.copytree(directory, pickled)
    torch.save(AutoModelForSequenceClassification.from_pretrained(pickled).state_dict(), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    with pytest.raises(OSError, match="safetensors"):
        load_judge(f"reward:{pickled}").compare(Comparison.of(*PAIRS[0]))


def test_what_is_no_reward_model_is_refused(directory: Path, tmp_path: Path) -> None:
    config = configured("recipe=people_pairs", f"evaluate.methods=['reward:{tmp_path}/none']", "data_dir=DIR")
    with pytest.raises(ConfigError, match="expected a directory with a reward model"):
        check_stage("evaluate", config)
    model = AutoModelForSequenceClassification.from_pretrained(directory, num_labels=3, ignore_mismatched_sizes=True)
    model.save_pretrained(tmp_path / "three")
    AutoTokenizer.from_pretrained(directory).save_pretrained(tmp_path / "three")
    with pytest.raises(ConfigError, match="has 3 labels; a reward model has one"):
        load_judge(f"reward:{tmp_path / 'three'}").compare(Comparison.of(*PAIRS[0]))
