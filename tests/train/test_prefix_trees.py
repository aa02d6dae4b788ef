"""Examples of a comparison that are trained in one row, in which beginnings that they share stand once."""

import itertools
import random
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.utils import import_utils

from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_model
from judgetrain.errors import ConfigError, TrainingError
from judgetrain.judges.trees.config import TreeConfig
from judgetrain.train.arguments import with_masks
from judgetrain.train.checkpoints import CheckpointMarks
from judgetrain.train.data import Examples, table
from judgetrain.train.prefix_trees import ENDS, POSITIONS, in_prefix_trees
from judgetrain.train.ranking import PAIRS, RANK, ranked_in_batch
from judgetrain.train.stages import INITIAL, InitialSettings
from judgetrain.train.tree_attention import TreeAttention
from tests.builders.architectures import KINDS, tiny
from tests.builders.label import PROMPTER, leaf, tree_of
from tests.builders.pipeline import check_stage
from tests.builders.train import WORDS, config, logged, run_initial, run_sft, same, sft_rows, weights
from tests.builders.watched import interrupted

CRITERIA = ("Tone: polite", "Depth: says why", "Length: no more than asked")
CANNOT = {
    "qwen3_next": r"has layers of type linear_attention, in which a token cannot be kept from others",
    "gpt_oss": r"balances its experts over every token",
    "mixtral": r"balances its experts over every token",
    "qwen3_moe": r"balances its experts over every token",
}
"""Kinds of models that cannot read prefix trees, and the reason that they are refused with."""


def judgments(comparisons: int, seed: int = 0, ties: int = 0, words: int = 8) -> list[dict[str, Any]]:
    """Judgments of both responses of each comparison by three criteria."""
    rng = random.Random(seed)
    tree = tree_of(("AB",))
    guideline = tree.criteria[0].guidelines[0]
    rows = []
    for number in range(comparisons):
        texts = {side: " ".join(rng.choices(WORDS, k=words)) for side in "AB"}
        shown = replace(tree.comparison, id=f"d{number}", response_a=texts["A"], response_b=texts["B"])
        for place, text in enumerate(CRITERIA):
            criterion = replace(tree.criteria[0], text=text)
            scores = (3.0, 3.0)
            if number >= ties:
                scores = rng.choice([(4.0, 2.0), (2.0, 4.0)])
            for side, score in zip("AB", scores, strict=True):
                node = leaf(f"d{number}/c{place}/g0/{side}0", side, f"Score: {score:.0f}", *scores, None)
                rows.append(PROMPTER.judgment_row(shown, criterion, guideline, node))
    return rows


def table_of(
    sequences: list[tuple[list[int], int]], comparisons: list[int], marks: list[int] | None = None
) -> Examples:
    """Return examples of these tokens and lengths of prompts."""
    rows = [{"input_ids": ids, "completion_mask": [0] * n + [1] * (len(ids) - n)} for ids, n in sequences]
    data = table(iter(rows))
    if marks is not None:
        data = data.add_column(RANK, marks)
    lengths = array("i", [len(ids) for ids, _ in sequences])
    return Examples(data=data, lengths=lengths, dropped={}, comparisons=comparisons)


def drawn(rng: random.Random, count: int) -> list[tuple[list[int], int]]:
    """Return examples that begin alike more or less often, some of them the same to the end."""
    sequences = []
    for _ in range(count):
        prompt = [rng.randint(0, 1) for _ in range(rng.randint(1, 9))]
        sequences.append((prompt + [rng.randint(0, 1) for _ in range(rng.randint(1, 3))], len(prompt)))
    return sequences


def paths(row: dict[str, Any]) -> list[list[int]]:
    """Return the places of each example of a row: those that its last token reads, found by trying each place."""
    size = len(row["input_ids"])
    found = []
    for leaf_place in range(size):
        if row[ENDS][leaf_place] == leaf_place + 1:
            found.append([place for place in range(leaf_place + 1) if leaf_place < row[ENDS][place]])
    return found


@pytest.mark.parametrize("seed", range(12))
def test_every_example_stands_in_its_row_and_what_it_shares_stands_once(seed: int) -> None:
    rng = random.Random(seed)
    sequences = drawn(rng, 40)
    comparisons = [rng.randint(0, 9) for _ in sequences]
    trees = in_prefix_trees(table_of(sequences, comparisons), longest=1000)
    assert len(trees) == len({*comparisons}) == len(trees.data)
    expected_tokens = 0
    for comparison in {*comparisons}:
        of_it = [example for example, number in zip(sequences, comparisons, strict=True) if number == comparison]
        # All beginnings of prompts without their last token, each once, and what every example has for itself.
        beginnings = {tuple(ids[:end]) for ids, prompt in of_it for end in range(1, prompt)}
        expected_tokens += len(beginnings) + sum(len(ids) - prompt + 1 for ids, prompt in of_it)
    assert sum(trees.lengths) == expected_tokens
    read = []
    for row in trees.data:
        answers = 0
        for path in paths(row):
            ids = [row["input_ids"][place] for place in path]
            mask = [row["completion_mask"][place] for place in path]
            assert [row[POSITIONS][place] for place in path] == list(range(len(path)))
            # A token with a label is predicted by the one before it in the row, too.
            for before, place in itertools.pairwise(path):
                assert not row["completion_mask"][place] or before == place - 1
            read.append((tuple(ids), mask.index(1)))
            answers += sum(mask)
        assert answers == sum(row["completion_mask"])
    assert sorted(read) == sorted((tuple(ids), prompt) for ids, prompt in sequences)


def test_a_row_that_is_too_long_is_parted_and_no_pair_is() -> None:
    sequences = [([7, 8, 9, n, n, n], 4) for n in range(6)]
    pairs = [(0, 5, False), (1, 4, True), (2, 3, False)]
    marks = [4, -4, 4, 5, -5, 5]
    examples = replace(table_of(sequences, 6 * [0], marks), pairs=pairs)
    whole = in_prefix_trees(examples, longest=100)
    # Three shared tokens, and three of each example.
    assert [*whole.lengths] == [3 + 6 * 3]
    (row,) = whole.data
    scores = [row["input_ids"][place] for n in range(3) for place in row[PAIRS][3 * n : 3 * n + 2]]
    assert scores == [0, 5, 1, 4, 2, 3] and row[PAIRS][2::3] == [0, 1, 0]
    parted = in_prefix_trees(examples, longest=6)
    # Two pairs would take 3 + 4 * 3 tokens, more than twice the longest example.
    assert [*parted.lengths] == [9, 9, 9]
    assert ranked_in_batch([*parted.data]) == [(0, 4, 0, 8, 0), (1, 4, 1, 8, 1), (2, 4, 2, 8, 0)]


def test_the_pairs_of_a_batch_of_examples_are_its_neighbours() -> None:
    rows = [{RANK: 7}, {RANK: 9}, {}, {RANK: 0}, {RANK: -3}, {RANK: -4}]
    assert ranked_in_batch(rows) == [(0, 7, 1, 9, 0), (4, 3, 5, 4, 1)]


def trained(place: Path, base: str, rows: list[dict[str, Any]], batch: int, **changes: Any) -> tuple[dict, dict]:
    """Return the first row of the log and the weights after one step of gradient descent."""
    plain = {"optim": "sgd", "lr_scheduler_type": "constant", "warmup_steps": 0, "max_grad_norm": 0.0}
    settings = config(
        max_steps=1,
        per_device_train_batch_size=batch,
        ranking_weight=0.5,
        max_length=512,
        learning_rate=0.01,
        trainer=plain,
        **changes,
    )
    settings.train.base.path = base
    out = run_initial(place, settings, rows, name=f"initial-{batch}")
    return logged(out)[0], weights(out.directory)


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - CANNOT.keys()))
def test_a_step_is_that_of_the_examples_apart(kind: str, tmp_path: Path) -> None:
    """Examples are longer than the window of the layers that have one."""
    tiny(kind, tmp_path / "base")
    rows = judgments(3, ties=1, words=60)
    together, weights_together = trained(tmp_path, str(tmp_path / "base"), rows, 3, share_prefixes=True)
    apart, weights_apart = trained(tmp_path, str(tmp_path / "base"), rows, len(rows))
    assert together["ranking_loss"] == pytest.approx(apart["ranking_loss"], rel=1e-4)
    assert together["ranking_accuracy"] == apart["ranking_accuracy"]
    assert together["num_tokens"] < 0.6 * apart["num_tokens"]
    assert together["loss"] == pytest.approx(apart["loss"], rel=1e-4)
    assert together["grad_norm"] == pytest.approx(apart["grad_norm"], rel=1e-3)
    before = load_model(ModelConfig(path=str(tmp_path / "base"))).state_dict()
    learned = max(float((weight - before[name]).abs().max()) for name, weight in weights_apart.items())
    assert learned > 1e-4
    for name, weight in weights_apart.items():
        assert (weight - weights_together[name]).abs().max() <= 1e-3 * learned, name


def test_eager_attention_reads_trees_too(tmp_path: Path) -> None:
    tiny("gemma3_text", tmp_path / "base")
    rows = judgments(3, words=60)
    logs = []
    for attention in ("eager", "sdpa"):
        settings = config(max_steps=1, per_device_train_batch_size=3, share_prefixes=True, max_length=512)
        settings.train.base.path = str(tmp_path / "base")
        settings.train.base.attn_implementation = attention
        logs.append(logged(run_initial(tmp_path, settings, rows, name=attention))[0])
    assert logs[0]["loss"] == pytest.approx(logs[1]["loss"], rel=1e-4)


@pytest.mark.parametrize("kind", sorted(CANNOT))
def test_a_model_that_cannot_read_trees_is_refused_before_the_run(kind: str, tmp_path: Path) -> None:
    tiny(kind, tmp_path / "base")
    base = str(tmp_path / "base")
    settings = config(share_prefixes=True)
    settings.train.base.path = base
    reason = f"share_prefixes: a model of type '{kind}' {CANNOT[kind]}.*=false"
    with pytest.raises(ConfigError, match=rf"^train\.base\.path={base}: train\.initial\.{reason}"):
        INITIAL.check_here(InitialSettings.of(settings))
    # And where nobody has looked before, as in a judge that is trained again.
    with pytest.raises(TrainingError, match=f"^{reason}"):
        trained(tmp_path, base, judgments(2), 2, share_prefixes=True)


def test_models_that_read_trees_pass_the_check_before_the_run(tmp_path: Path) -> None:
    tiny("gemma3_text", tmp_path)
    settings = config(share_prefixes=True)
    settings.train.base.path = str(tmp_path)
    INITIAL.check_here(InitialSettings.of(settings))


def test_a_model_that_reads_them_otherwise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The window is left out, as by a model whose layers would not go by the mask that they are given."""
    tiny("mistral", tmp_path / "base")
    monkeypatch.setattr("judgetrain.train.tree_attention._window", lambda *_: None)
    with pytest.raises(TrainingError, match=r"'mistral' gives an answer -\d.*, and -\d.* apart"):
        trained(tmp_path, str(tmp_path / "base"), judgments(2, words=100), 2, share_prefixes=True)


def test_attention_that_takes_no_mask_is_refused() -> None:
    class Model:
        dtype = torch.float32

        class config:
            model_type = "llama"
            _attn_implementation = "flash_attention_2"

            @staticmethod
            def get_text_config() -> Any:
                return object()

    with pytest.raises(TrainingError, match=r"'flash_attention_2' takes no mask .*attn_implementation=sdpa"):
        TreeAttention(Model())


def test_examples_of_one_response_are_trained_without_a_ranking_loss(tmp_path: Path) -> None:
    """Lists of criteria and judgments of a comparison stand in one row, and rows of no comparison by themselves."""
    rows = judgments(2) + [{name: row[name] for name in ("prompt", "completion")} for row in sft_rows(3)]
    settings = config(max_steps=3, per_device_train_batch_size=5, share_prefixes=True)
    initial = run_initial(tmp_path, settings, rows)
    out = run_sft(tmp_path, settings, initial.directory, rows)
    for run in (initial, out):
        assert "ranking_loss" not in logged(run)[0] and logged(run)[2]["loss"] < logged(run)[0]["loss"]


def test_a_run_that_goes_on_ends_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = judgments(8, words=20)
    settings = config(per_device_train_batch_size=2, num_train_epochs=2, share_prefixes=True, ranking_weight=0.5)
    whole = run_initial(tmp_path, settings, rows, name="whole")
    assert "48 supervised examples stand in 8 rows that share beginnings" in " ".join(capsys.readouterr().out.split())
    assert logged(whole)[-1]["step"] == 8
    interrupted(monkeypatch, CheckpointMarks, "on_save", 2)
    with pytest.raises(KeyboardInterrupt):
        run_initial(tmp_path, settings, rows, "killed")
    monkeypatch.undo()
    resumed = run_initial(tmp_path, settings, rows, "killed")
    assert "resuming at step 2" in capsys.readouterr().out
    assert [row["step"] for row in logged(whole)] == [row["step"] for row in logged(resumed)]
    assert same(weights(whole.directory), weights(resumed.directory))


def test_a_batch_may_have_any_number_of_comparisons(tmp_path: Path) -> None:
    settings = config(ranking_weight=0.1, per_device_train_batch_size=3, share_prefixes=True)
    one = replace(settings, tree=TreeConfig(reads="one"), judge=replace(settings.judge, reads="one"))
    check_stage("initial", one)


def test_attention_that_takes_no_mask_is_refused_before_the_run() -> None:
    settings = config(share_prefixes=True)
    settings.train.base.attn_implementation = "flex_attention"
    with pytest.raises(ConfigError, match=r"train\.initial\.share_prefixes=true .*=flex_attention: .*=sdpa, or train"):
        check_stage("initial", settings)


def test_noise_that_depends_on_the_length_of_a_row_is_refused() -> None:
    settings = config(share_prefixes=True, trainer={"neftune_noise_alpha": 5.0})
    with pytest.raises(ConfigError, match=r"neftune_noise_alpha: .* train\.initial\.share_prefixes=true a row holds"):
        check_stage("initial", settings)


@pytest.mark.parametrize("option", ["lora", "gradient_checkpointing"])
def test_other_ways_to_train_read_trees_alike(option: str, tmp_path: Path) -> None:
    tiny("gemma3_text", tmp_path / "base")
    rows = judgments(3, words=40)
    changes = {option: True}
    together, weights_together = trained(tmp_path, str(tmp_path / "base"), rows, 3, share_prefixes=True, **changes)
    apart, weights_apart = trained(tmp_path, str(tmp_path / "base"), rows, len(rows), **changes)
    for figure in ("loss", "ranking_loss", "grad_norm"):
        assert together[figure] == pytest.approx(apart[figure], rel=1e-3)
    for name, weight in weights_apart.items():
        assert (weight - weights_together[name]).abs().max() <= 1e-4, name


def test_flash_attention_is_not_taken_for_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_there, taken in ((True, "sdpa"), (False, None)):
        monkeypatch.setattr(import_utils, "is_flash_attn_2_available", lambda there=is_there: there)
        assert with_masks(ModelConfig(path="world")).attn_implementation == taken
        assert with_masks(ModelConfig(path="world", attn_implementation="eager")).attn_implementation == "eager"
