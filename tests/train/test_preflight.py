"""What is wrong with a model, a tokenizer or the machine ends training with one sentence: the cause and the remedy."""

import copy
import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from peft import LoraConfig, get_peft_model
from trl.trainer import utils
from trl.trainer.utils import add_fused_lm_head

from judgetrain.engines.config import WORLD_BASE, ModelConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.errors import EngineError, TrainingError
from judgetrain.train.arguments import compiled, memory_explained, training_arguments
from judgetrain.train.config import DpoConfig
from judgetrain.train.data import REFERENCE_COLUMNS, Renderer, dataset, fitting
from judgetrain.train.internals import labelled_tokens_alone
from judgetrain.train.trainers import PreferenceTrainer
from tests.builders.train import config, logged, pair_rows, run_dpo, run_initial, sft_rows, templated

ROWS = 4


def batch(vocabulary: int, tokens: int, labelled: int) -> dict[str, torch.Tensor]:
    """Rows of random tokens, [4, tokens], of which the last ``labelled`` have a label."""
    ids = torch.randint(vocabulary, (ROWS, tokens), generator=torch.Generator().manual_seed(0))
    labels = ids.clone()
    labels[:, : tokens - labelled] = -100
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


def adapted(base: ModelConfig) -> Any:
    """Return the model with TRL's output layer and adapters that do something."""
    model = load_model(base)
    add_fused_lm_head(model, outputs=("log_probs", "entropy", "is_top1"))
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))
    generator = torch.Generator().manual_seed(1)
    for name, weights in model.named_parameters():
        if "lora_B" in name:
            weights.data = torch.randn(weights.shape, generator=generator) * 0.01
    return model.train()


def step(model: Any, rows: dict[str, torch.Tensor]) -> tuple[float, torch.Tensor]:
    """Return the loss, and the gradients of all adapters in one row."""
    model.zero_grad()
    loss = model(**rows, fused_lm_head=True).loss
    loss.backward()
    return float(loss.detach()), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


MUTE = "{% for m in messages if m.role == 'user' %}<user>{{ m.content }}{% endfor %}"
"""A chat template that renders no assistant's turn."""


def test_labels_that_are_all_masked(tmp_path: Path) -> None:
    settings = config(max_steps=1)
    settings.train.base.path = templated(tmp_path / "mute", MUTE)
    with pytest.raises(TrainingError, match=r"in all 4 supervised .* label is masked: .*chat_template\.jinja"):
        run_initial(tmp_path, settings, sft_rows(4))


def test_examples_without_a_completion_are_left_out_and_counted(tmp_path: Path) -> None:
    template = "{% for m in messages if m.role == 'user' or m.content|length > 12 %}<user>{{ m.content }}{% endfor %}"
    tokenizer = load_tokenizer(ModelConfig(path=templated(tmp_path / "partial", template)))
    data = sft_rows(4)
    data[2]["completion"][0]["content"] = "it gives"
    for row, words in zip(data, ("a clear example", "no clear example", "", "a book for my sister"), strict=True):
        row["completion"][0]["content"] += f" {words}".rstrip()
    examples = fitting(data, Renderer.of(tokenizer), 256, "examples")
    assert len(examples) == 3 and examples.dropped == {"all_masked": 1, "too_long": 0}


def test_a_tokenizer_that_cannot_pad(tmp_path: Path) -> None:
    copy = tmp_path / "base"
    shutil.copytree(WORLD_BASE, copy)
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    tokenizer.pad_token = tokenizer.eos_token = tokenizer.unk_token = None
    tokenizer.save_pretrained(copy)
    settings = config(max_steps=1)
    settings.train.base.path = str(copy)
    with pytest.raises(EngineError, match=r"tokenizer of .* has no pad, eos or unk token; add one to its files"):
        run_initial(tmp_path, settings, sft_rows(4))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), "out of memory: lower k.per_device_train_batch_size"),
        (MemoryError(), "out of memory: lower k.per_device_train_batch_size"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
            "out of memory: lower k.per_device",
        ),
        (RuntimeError("shapes do not match"), "shapes do not match"),
    ],
)
def test_memory_that_runs_out_is_said_and_nothing_else_is_taken_for_it(error: Exception, message: str) -> None:
    with pytest.raises(RuntimeError if "shapes" in message else TrainingError, match=message), memory_explained("k"):
        raise error


def test_losses_gradients_and_names_stay_whatever_the_width() -> None:
    plain = adapted(ModelConfig(path="world")).eval()  # no dropout
    other = copy.deepcopy(plain)
    names = list(other.state_dict())
    compiled_line = compiled(other)
    if "no C++ compiler" in compiled_line:
        pytest.skip(compiled_line)
    assert compiled_line.startswith(f"{plain.config.num_hidden_layers} blocks") and list(other.state_dict()) == names
    for tokens in (24, 31):
        rows = batch(plain.config.vocab_size, tokens, 5)
        rows["attention_mask"][0, -3:] = 0
        loss, gradient = step(plain, rows)
        again, others = step(other, rows)
        assert again == pytest.approx(loss, rel=1e-5)
        torch.testing.assert_close(others, gradient, rtol=1e-3, atol=1e-6)
        assert gradient.norm() > 0


TOKENS = 24
LABELLED = 5


@contextmanager
def projected() -> Iterator[list[int]]:
    """Yield the number of positions of each projection."""
    counts: list[int] = []
    project = utils._ChunkedLogProbFunction.apply

    def counting(hidden: torch.Tensor, *rest: object) -> object:
        counts.append(len(hidden))
        return project(hidden, *rest)

    with patch.object(utils._ChunkedLogProbFunction, "apply", counting):
        yield counts


def test_losses_and_gradients_stay_and_other_tokens_are_left_out() -> None:
    model = adapted(ModelConfig(path="world"))
    model.eval()  # no dropout
    rows = batch(model.config.vocab_size, TOKENS, LABELLED)
    with projected() as counts:
        loss, gradient = step(model, rows)
        with labelled_tokens_alone():
            other, others = step(model, rows)
    assert counts == [ROWS * (TOKENS - 1), ROWS * LABELLED]
    assert other == pytest.approx(loss, rel=1e-6)
    torch.testing.assert_close(others, gradient, rtol=1e-4, atol=1e-7)
    assert gradient.norm() > 0


def test_other_devices_are_as_trl_has_them_and_all_is_undone() -> None:
    before = utils._use_triton
    with patch.object(utils, "_use_triton", lambda device: device.type == "cuda"), labelled_tokens_alone():
        assert [utils._use_triton(torch.device(name)) for name in ("cpu", "cuda", "xpu")] == [True, True, False]
    with pytest.raises(RuntimeError), labelled_tokens_alone():
        raise RuntimeError
    assert utils._use_triton is before


BETA = 0.3


def sequence_logprobs(model: Any, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum of the completion's log-probabilities and number of its tokens, by row, each run without padding."""
    sums = []
    counts = []
    for ids, seen, completion in zip(
        batch["input_ids"], batch["attention_mask"].bool(), batch["completion_mask"].bool(), strict=True
    ):
        logits = model(input_ids=ids[seen][None]).logits[0]
        logprobs = logits[:-1].log_softmax(-1).gather(1, ids[seen][1:, None])[:, 0]
        sums.append(logprobs[completion[seen][1:]].sum())
        counts.append(completion.sum())
    return torch.stack(sums), torch.stack(counts)


def trainer_of(settings: DpoConfig, pairs: int, directory: Path) -> PreferenceTrainer:
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    tokenizer.padding_side = "right"
    rows = pair_rows(pairs)
    for i, row in enumerate(rows):
        row["rejected"] = [{"role": "assistant", "content": "it gives no example of it" + " for my sister" * i}]
    examples = fitting(rows, Renderer.of(tokenizer), 256, "pairs")
    return PreferenceTrainer(
        model=load_model(ModelConfig(path="world")),
        args=training_arguments(settings, "train.dpo", directory, 0, evaluate=False),
        train_dataset=dataset(examples, range(len(rows))),
        processing_class=tokenizer,
    )


def test_the_loss_is_the_mean_of_each_pairs(tmp_path: Path) -> None:
    supervised = 0.7
    settings = DpoConfig(beta=BETA, sft_weight=supervised, per_device_train_batch_size=4)
    trainer = trainer_of(settings, 4, tmp_path)
    batch = next(iter(trainer.get_train_dataloader()))
    reference = torch.randn(2, 4, generator=torch.Generator().manual_seed(1)) * 3
    ours, counts = sequence_logprobs(trainer.model, batch)
    ratios = ours.view(2, 4) - (ours.view(2, 4).detach() + reference)
    batch["ref_chosen_logps"], batch["ref_rejected_logps"] = ours.view(2, 4).detach() + reference
    lengths = counts.view(2, 4)
    losses = torch.log1p(torch.exp(-BETA * (ratios[0] - ratios[1])))
    losses = losses - supervised * ours.view(2, 4)[0] / lengths[0]
    expected = losses.mean()
    actual = trainer.compute_loss(trainer.model, batch)
    assert actual.item() == pytest.approx(expected.item(), rel=1e-4)
    weight = trainer.model.get_input_embeddings().weight
    ours_grad, theirs = (torch.autograd.grad(value, weight)[0] for value in (actual, expected))
    assert torch.allclose(ours_grad, theirs, rtol=1e-3, atol=1e-5)
    assert float(theirs.abs().max()) > 1e-2


def test_held_out_figures_are_means_over_pairs_however_they_are_batched(tmp_path: Path) -> None:
    settings = DpoConfig(beta=BETA, sft_weight=0.7, per_device_train_batch_size=2)
    trainer = trainer_of(settings, 5, tmp_path)
    batch = trainer.data_collator([trainer.train_dataset[i] for i in range(5)])
    with torch.no_grad():
        ours, counts = sequence_logprobs(trainer.model.eval(), batch)
    reference = torch.tensor([[-9.0, -8, -7, -6, -5], [-9.0, -12, -7, -10, -20]])
    ratios = ours.view(2, 5) - reference
    losses = torch.log1p(torch.exp(-BETA * (ratios[0] - ratios[1]))) - 0.7 * ours[:5] / counts[:5]
    rows = trainer.train_dataset.remove_columns(REFERENCE_COLUMNS)
    for name, values in zip(REFERENCE_COLUMNS, reference.tolist(), strict=True):
        rows = rows.add_column(name, values)
    reads = []
    for size in (2, 1, 5):
        trainer.args.per_device_eval_batch_size = size
        with patch.object(trainer.model, "forward", side_effect=trainer.model.forward) as forward:
            metrics = trainer.evaluate(rows)
        reads.append(forward.call_count)
        assert metrics["eval_loss"] == pytest.approx(losses.mean().item(), rel=1e-4), size
        assert metrics["eval_rewards/accuracies"] == pytest.approx((ratios[0] > ratios[1]).float().mean().item())
        for place, side in ((slice(0, 5), "chosen"), (slice(5, 10), "rejected")):
            assert metrics[f"eval_lengths/{side}"] == pytest.approx(counts[place].float().mean().item())
            assert metrics[f"eval_logps/{side}"] == pytest.approx(ours[place].mean().item(), rel=1e-4)
    assert reads == [3, 5, 1], "a batch is read once"


def test_what_a_practitioner_expects_is_in_the_log_of_a_run_with_every_option(tmp_path: Path) -> None:
    start = run_initial(tmp_path, config(max_steps=1), [r | {"completion": r["chosen"]} for r in pair_rows(8)])
    settings = config(max_steps=2, eval_steps=2)
    settings.train.dpo.trainer = {"f_divergence_type": "js_divergence"}
    out = run_dpo(tmp_path, settings, start.directory)
    rows = logged(out)
    expected = {f"{kind}/{side}" for kind in ("rewards", "logps", "lengths") for side in ("chosen", "rejected")}
    expected |= {"rewards/margins", "rewards/accuracies", "kl", "loss", "grad_norm"}
    assert expected <= rows[0].keys()
    assert {f"eval_{name}" for name in expected - {"grad_norm"}} <= {k for row in rows for k in row}
    assert rows[0]["loss"] == pytest.approx(math.log(2), rel=1e-4)
    assert rows[0]["kl"] == pytest.approx(0.0, abs=1e-3)
