"""Architectures of bases: a tiny model of each is checked, trained, written, read again and asked.

Those that pass stand in docs/architectures.md.
"""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
import transformers
from transformers import AutoTokenizer

from judgetrain.engines.config import WORLD_BASE, ModelConfig, TransformersEngineConfig
from judgetrain.engines.loading import config_ends, end_token_ids, flat_ids, load_model, load_tokenizer
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.engines.model_check import check_loadable, check_trainable
from judgetrain.errors import ConfigError, EngineError, TrainingError
from judgetrain.train.base_check import check_adapters, check_head
from judgetrain.train.config import TrainConfig
from judgetrain.train.stages import INITIAL, InitialSettings
from tests.builders.architectures import KINDS, PAGE, REFUSED, TEXT, Kind, configuration, page, tiny
from tests.builders.engines import ask
from tests.builders.train import config, logged, run_initial, sft_rows, weights


def check_base(base: ModelConfig) -> None:
    """Check a base as a run does before its first stage."""
    check_loadable(base, "train.base.path")
    check_trainable(base, "train.base.path")
    check_head(base, "train.base.path")


@pytest.mark.parametrize("lora", [False, True], ids=["whole", "adapters"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_base_goes_from_the_check_to_its_answers(kind: str, lora: bool, tmp_path: Path) -> None:
    tiny(kind, tmp_path / "base")
    check_base(ModelConfig(path=str(tmp_path / "base")))
    settings = config(max_steps=2, lora=lora)
    settings.train.base.path = str(tmp_path / "base")
    run = run_initial(tmp_path, settings, sft_rows(12))
    assert [row["step"] for row in logged(run) if "loss" in row] == [1, 2]
    judge = ModelConfig(path=str(run.path("model")))
    before = load_model(ModelConfig(path=str(tmp_path / "base"))).state_dict()
    after = weights(run.directory)
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    engine = TransformersEngine(TransformersEngineConfig(model=judge))
    (answer,) = engine.generate([ask("the cat", temperature=0.0, max_new_tokens=4)], 0)
    assert answer.error is None and answer.generated_tokens > 0


def test_a_model_of_text_and_pictures_ends_where_its_text_model_does(tmp_path: Path) -> None:
    directory = tiny("gemma3", tmp_path)
    # It stands in text_config alone.
    end = directory.text_config.eos_token_id
    assert getattr(directory, "eos_token_id", None) is None and end is not None
    assert flat_ids(config_ends(directory), "gemma3") == {end}
    (tmp_path / "generation_config.json").unlink(missing_ok=True)
    tokenizer = load_tokenizer(ModelConfig(path=str(tmp_path)))
    tokenizer.eos_token = None
    assert end_token_ids(ModelConfig(path=str(tmp_path)), tokenizer) == {end}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_pass_is_refused_before_anything_is_paid(kind: str, tmp_path: Path) -> None:
    if kind == "gemma3n":
        if importlib.util.find_spec("timm"):
            pytest.skip("timm is here")
        # Not even a tiny one can be made without the package.
        tiny("gemma3n_text", tmp_path)
        configuration(kind, REFUSED[kind]).save_pretrained(tmp_path)
    else:
        tiny(kind, tmp_path)
    base = ModelConfig(path=str(tmp_path))
    with pytest.raises(ConfigError, match=rf"^train\.base\.path: .*{REFUSED[kind].refusal}") as refusal:
        check_base(base)
    assert "\n" not in str(refusal.value)


def test_a_model_whose_logits_trl_computes_otherwise_is_not_trained(tmp_path: Path) -> None:
    """What nobody looked at before the run is looked at before its first step."""
    tiny("modernbert-decoder", tmp_path / "base")
    settings = config(max_steps=2)
    settings.train.base.path = str(tmp_path / "base")
    with pytest.raises(ConfigError, match=r"^train\.base\.path=.*base: TRL computes another loss"):
        INITIAL.check_here(InitialSettings.of(settings))
    with pytest.raises(TrainingError, match=r"'modernbert-decoder': of a training row -\d.* and the model gives -\d"):
        run_initial(tmp_path, settings, sft_rows(12))
    assert not (tmp_path / "initial" / "train_log.jsonl").exists()


def test_a_model_whose_loss_trl_cannot_compute_is_not_trained(tmp_path: Path) -> None:
    tiny("granitemoe", tmp_path / "base")
    settings = config(max_steps=2)
    settings.train.base.path = str(tmp_path / "base")
    with pytest.raises(TrainingError, match=r"cannot compute the loss of .*'granitemoe' \(AttributeError: .*num_exp"):
        run_initial(tmp_path, settings, sft_rows(12))
    # As the refusal before the run advises.
    content = json.loads((tmp_path / "base" / "config.json").read_text())
    (tmp_path / "base" / "config.json").write_text(json.dumps(content | {"router_aux_loss_coef": 0.0}))
    check_base(ModelConfig(path=str(tmp_path / "base")))
    assert len([row for row in logged(run_initial(tmp_path, settings, sft_rows(12))) if "loss" in row]) == 2


def test_a_model_without_experts_is_trained_once_nothing_balances_them(tmp_path: Path) -> None:
    tiny("doge", tmp_path / "base")
    content = json.loads((tmp_path / "base" / "config.json").read_text())
    (tmp_path / "base" / "config.json").write_text(json.dumps(content | {"router_aux_loss_coef": 0.0}))
    base = ModelConfig(path=str(tmp_path / "base"))
    check_base(base)
    settings = config(max_steps=2)
    settings.train.base.path = base.path
    run = run_initial(tmp_path, settings, sft_rows(12))
    assert len([row for row in logged(run) if "loss" in row]) == 2


def test_trying_a_base_draws_none_of_the_runs_random_numbers(tmp_path: Path) -> None:
    """XLM is tried with weights, since it looks at the lengths of texts."""
    tiny("xlm", tmp_path)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with pytest.raises(ConfigError, match="fails over two tokens with a cache"):
        check_loadable(ModelConfig(path=str(tmp_path)), "k")
    assert torch.equal(torch.rand(3), expected)


def test_adapters_that_peft_does_not_put_on_a_model_are_refused(tmp_path: Path) -> None:
    sizes = {"mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 1, "n_routed_experts": 4}
    model_config = transformers.NemotronHConfig(**TEXT | sizes | {"layers_block_type": ["mamba", "attention"]})
    model_config.save_pretrained(tmp_path)
    base = ModelConfig(path=str(tmp_path))
    check_adapters(base, "k", TrainConfig(), "train.sft")
    with pytest.raises(ConfigError, match=r"k: PEFT cannot .*'nemotron_h' .*: set train\.sft\.lora=false"):
        check_adapters(base, "k", TrainConfig(lora=True), "train.sft")


def test_a_configuration_that_does_not_fit_itself_is_refused(tmp_path: Path) -> None:
    # Of DeepSeek every head has keys of its own: with fewer, attention fails whatever the weights are.
    sizes = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8}
    kind = Kind("", TEXT | sizes | {"n_routed_experts": 4, "n_group": 1, "topk_group": 1})
    configuration("deepseek_v3", kind).save_pretrained(tmp_path)
    load_tokenizer(ModelConfig(path=str(WORLD_BASE))).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ConfigError, match=r"'deepseek_v3' fails over two tokens with a cache \(RuntimeError: .*size"):
        check_loadable(ModelConfig(path=str(tmp_path)), "k")


def test_the_text_model_of_one_that_reads_pictures_is_asked(tmp_path: Path) -> None:
    """Weights of its pictures are beside the text model's, and no layers that are missing in config.json."""
    tiny("llama4", tmp_path)
    judge = ModelConfig(path=str(tmp_path))
    check_loadable(judge, "judge")
    engine = TransformersEngine(TransformersEngineConfig(model=judge))
    (answer,) = engine.generate([ask("the cat", temperature=0.0, max_new_tokens=4)], 0)
    assert answer.error is None and answer.generated_tokens > 0


def test_weights_of_layers_that_a_text_model_lacks_are_not_beside_it(tmp_path: Path) -> None:
    tiny("gemma3", tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    content["text_config"] |= {"num_hidden_layers": 1, "layer_types": ["full_attention"]}
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(EngineError, match=r"weights are of layers it does not have, as \S*language_model\.layers\.1\."):
        load_model(ModelConfig(path=str(tmp_path)))


def test_a_tokenizer_that_transformers_does_not_read_as_it_is_written_is_refused(tmp_path: Path) -> None:
    # A model of Qwen2's architecture gets Qwen2's tokenizer, whatever its tokenizer.json says.
    tiny("qwen2", tmp_path)
    check_loadable(ModelConfig(path=str(tmp_path)), "k")
    load_tokenizer(ModelConfig(path=str(WORLD_BASE))).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"^k: Transformers reads its tokenizer as Qwen2Tokenizer, which splits"):
        check_loadable(ModelConfig(path=str(tmp_path)), "k")


def test_of_named_chat_templates_the_default_makes_the_judge(tmp_path: Path) -> None:
    tiny("llama", tmp_path / "base")
    tokenizer = load_tokenizer(ModelConfig(path=str(tmp_path / "base")))
    default = tokenizer.chat_template
    tokenizer.chat_template = {"default": default, "tool_use": "{{ messages[0].content }}", "rag": "nothing"}
    tokenizer.save_pretrained(tmp_path / "base")
    base = ModelConfig(path=str(tmp_path / "base"))
    check_loadable(base, "k")
    assert load_tokenizer(base).chat_template == default
    settings = config(max_steps=1)
    settings.train.base.path = base.path
    run = run_initial(tmp_path, settings, sft_rows(8))
    assert AutoTokenizer.from_pretrained(run.path("model")).chat_template == default

    (tmp_path / "base" / "chat_template.jinja").unlink()
    tokenizer.chat_template = {"chat": default, "tool_use": default}
    tokenizer.save_pretrained(tmp_path / "base")
    with pytest.raises(ConfigError, match=r"chat templates \(chat, rag, tool_use\) and none that is named default"):
        check_loadable(base, "k")


def test_the_page_names_what_was_tried() -> None:
    """``python -m tests.builders.architectures`` writes it."""
    assert PAGE.read_text(encoding="utf-8") == page()
