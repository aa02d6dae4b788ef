"""Stage rl: rewards of scripted branches, the rows that TRL learns from, and one process against two."""

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.engines.base import Request
from judgetrain.engines.config import ModelConfig, SamplingConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.errors import ConfigError
from judgetrain.extras.rl.config import PARTS, RlConfig
from judgetrain.extras.rl.run import drawn_comparisons, in_order, labelled_comparisons, split_off_holdout
from judgetrain.extras.rl.stages import RlSettings
from judgetrain.extras.rl.trainer import (
    AGREEMENT,
    Labelled,
    RecordingEngine,
    Rollouts,
    both_orders,
    held_out_figures,
    rewards_of,
    unreadable,
)
from judgetrain.judges import BranchingJudge
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.config import StepsConfig
from judgetrain.label import stage as label_stage
from judgetrain.label.config import LabelConfig
from judgetrain.label.stages import LabelSettings
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.schema import Comparison, Verdict
from tests.builders.closeness import assert_same_but_for_rounding, loss_rounding
from tests.builders.label import ANY_EVIDENCE, tree_of
from tests.builders.pairs_pipeline import OVERRIDES, RL, RL_RATE, RL_STEPS, composed, killed_once, plant, together
from tests.builders.scripted import ScriptedEngine, comparison, criteria, judged
from tests.builders.train import same, weights


@pytest.mark.parametrize(
    ("label", "ab", "ba", "both_orders", "unreadable"),
    [
        ("A", 2.0, 1.0, 1, 0),
        ("A", 2.0, -2.0, 0, 0),
        ("B", 2.0, 2.0, 0, 0),
        ("tie", 0.0, 0.0, 1, 0),
        ("tie", 4.0, 0.0, 0, 0),
        ("A", 0.0, 0.0, 0, 0),
        ("A", None, 4.0, 0, -0.5),
        ("tie", None, None, 0, -1),
    ],
)
def test_rewards_of_scripted_branches(
    label: Verdict, ab: float | None, ba: float | None, both_orders: float, unreadable: float
) -> None:
    assert rewards_of(label, (ab, ba)) == {"both_orders": both_orders, "unreadable": unreadable}


COMPARISONS = eval_comparisons(WorldConfig(eval_comparisons=4), 8)
ASKING = StepsConfig(
    criteria=10,  # what the base has read, and so writes itself
    criteria_sampling=SamplingConfig(1.0, 1.0, 120),
    guideline_sampling=SamplingConfig(1.0, 1.0, 30),
    judgment_sampling=SamplingConfig(1.0, 1.0, 50),
)


@pytest.fixture(scope="module")
def world() -> tuple[Any, Any]:
    config = ModelConfig(path="world")
    return load_model(config), load_tokenizer(config)


def rollouts(model: Any, **changes: Any) -> Rollouts:
    @contextmanager
    def engine(trainer: Any) -> Iterator[RecordingEngine]:
        yield RecordingEngine(model, trainer.processing_class)

    labelled = {c.id: Labelled(c, c.label or "tie") for c in COMPARISONS}
    config = RlConfig(**{"num_generations": 3, **changes})
    return Rollouts(labelled, load_prompt_set("compact"), ASKING, config, 11, engine)


def batch(
    model: Any, tokenizer: Any, ids: list[str], process: int = 0, step: int = 0, **changes: Any
) -> dict[str, Any]:
    sampler = rollouts(model, **changes)
    prompts = [[{"role": "user", "content": i}] for i in ids for _ in range(PARTS * sampler.config.num_generations)]
    trainer = SimpleNamespace(
        accelerator=SimpleNamespace(process_index=process),
        processing_class=tokenizer,
        state=SimpleNamespace(global_step=step),
    )
    return sampler(prompts, trainer)


def test_the_rows_are_the_parts_of_branches_group_by_group(world: tuple[Any, Any]) -> None:
    model, tokenizer = world
    sampler = rollouts(model)
    ids = [c.id for c in COMPARISONS[:2]]
    rows = batch(model, tokenizer, ids)
    generations = 3
    parts = 4
    assert {len(column) for name, column in rows.items() if name != "logprobs"} == {2 * generations * parts}
    # The same trees, grown by themselves, say which text each row must hold.
    from judgetrain.artifacts.stage_run import derive_seed

    engine = RecordingEngine(model, tokenizer)
    copies = [c for c in COMPARISONS[:2] for _ in range(generations)]
    trees = sampler.grow(copies, engine, derive_seed(11, "rollout", 0))
    for number, tree in enumerate(trees):
        comparison, generation = divmod(number, generations)
        first = comparison * generations * parts + generation
        texts = [tree.lists[0].text]
        for criterion in tree.criteria:
            texts += [criterion.guidelines[0].text, *(j.text for j in criterion.judgments)]
        assert len(texts) == parts, "the base lists criteria here, and writes a guideline for the first"
        for part, text in enumerate(texts):
            row = first + part * generations
            completion = tokenizer.decode(rows["completion_ids"][row], skip_special_tokens=True)
            # The list was stopped where its second criterion would begin, whose number has been generated.
            assert completion.startswith(text) and (part == 0 or completion.strip() == text.strip())
            assert set(rows["env_mask"][row]) == {1}
        (criterion,) = tree.criteria
        margins = [judgment.margin for judgment in criterion.judgments]
        value = rewards_of(COMPARISONS[comparison].label or "tie", margins)["both_orders"]
        assert {rows["rewards"][first + part * generations]["both_orders"] for part in range(parts)} == {value}
    rewards = [row["both_orders"] for row in rows["rewards"]]
    assert 0 < sum(rewards) < len(rewards), "some branches are right, and some are not"


def test_branches_do_not_depend_on_how_many_processes_share_them(world: tuple[Any, Any]) -> None:
    ids = [c.id for c in COMPARISONS]
    whole = batch(*world, ids)
    halves = [batch(*world, ids[2 * p : 2 * p + 2], process=p) for p in (0, 1)]
    assert whole["completion_ids"] == halves[0]["completion_ids"] + halves[1]["completion_ids"]
    assert whole["rewards"] == halves[0]["rewards"] + halves[1]["rewards"]
    assert batch(*world, ids, step=1)["completion_ids"] != whole["completion_ids"]


def test_what_never_came_about_is_not_learned_and_counts_as_unreadable(world: tuple[Any, Any]) -> None:
    model, tokenizer = world
    sampler = rollouts(model)
    short = Rollouts(
        sampler.labelled,
        sampler.prompts,
        StepsConfig(criteria=4, criteria_sampling=SamplingConfig(1.0, 1.0, 1)),  # one token: no list comes about
        sampler.config,
        11,
        sampler.engine,
    )
    prompts = [[{"role": "user", "content": COMPARISONS[0].id}]] * 12
    trainer = SimpleNamespace(
        accelerator=SimpleNamespace(process_index=0), processing_class=tokenizer, state=SimpleNamespace(global_step=0)
    )
    rows = short(prompts, trainer)
    assert all(row["unreadable"] == -1 and row["both_orders"] == 0 for row in rows["rewards"])
    assert [set(mask) for mask in rows["env_mask"]] == [{1}] * 3 + [{0}] * 9


def test_credit_by_level_holds_judgments_to_their_reading_alone(world: tuple[Any, Any]) -> None:
    rows = batch(*world, [COMPARISONS[0].id], credit="level")
    rewards = both_orders(rows["rewards"])
    assert None not in rewards[:6] and rewards[6:] == [None] * 6
    assert None not in unreadable(rows["rewards"])


def test_credit_by_criterion_rewards_lists_for_their_judgments_and_each_of_these_for_its_own(
    world: tuple[Any, Any],
) -> None:
    rows = batch(*world, [c.id for c in COMPARISONS], credit="criterion")
    whole = batch(*world, [c.id for c in COMPARISONS])
    assert rows["completion_ids"] == whole["completion_ids"]
    rewards = [row["both_orders"] for row in rows["rewards"]]
    lone = 0
    for first in range(0, len(rewards), 12):
        for lists, guidelines, ab, ba in zip(*(rewards[first + i : first + i + 3] for i in (0, 3, 6, 9)), strict=True):
            assert lists == guidelines == ab * ba, "right is what is right in both"
            lone += ab != ba
    assert lone, "a judgment that is right has its own reward where the other order is wrong"
    branch = [row["both_orders"] for row in whole["rewards"]]
    assert [branch[i] for i in range(48) if i % 12 < 6] == [rewards[i] for i in range(48) if i % 12 < 6]


@pytest.mark.parametrize(
    ("scores", "credit", "first", "second"),
    [
        ({"good": 5, "poor": 2}, "branch", (1, 0), (1, 0)),
        ({"good": 3, "poor": 3}, "criterion", (0, 0), (0, 0)),
        ({"good": 2, "poor": 5}, "criterion", (0, 0), (0, 0)),
        ({"good": 5, "poor": None}, "branch", (0, -1), (0, -1)),
    ],
)
def test_judgments_of_one_response_are_sampled_and_rewarded_together(
    scores: dict[str, int | None], credit: str, first: tuple[float, float], second: tuple[float, float]
) -> None:
    def says(request: Request, occurrence: int) -> str:
        if request.step != "score":
            return criteria(int(request.slots["count"])) if request.step == "criteria" else "a guideline"
        return f"Score: {scores[request.slots['response'].split()[0]] or 'none'}\nAnalysis: it is what it is."

    engine: Any = ScriptedEngine(says)
    engine.tokens = defaultdict(lambda: ((1,), (2,)))
    engine.tokenizer = SimpleNamespace(eos_token_id=2)
    labelled = {c.id: Labelled(c, "A") for c in [comparison(i, "good", "poor") for i in range(2)]}
    config = RlConfig(num_generations=3, credit=credit)
    sampler = Rollouts(labelled, load_prompt_set("compact"), ASKING, config, 11, lambda t: nullcontext(engine), "one")
    prompts = [[{"role": "user", "content": i}] for i in labelled for _ in range(PARTS * 3)]
    trainer = SimpleNamespace(accelerator=SimpleNamespace(process_index=0), state=SimpleNamespace(global_step=0))
    rows = [tuple(row.values()) for row in sampler(prompts, trainer)["rewards"]]
    assert {request.step for request in engine.requests} == {"criteria", "guideline", "score"}
    assert set(rows[6:9]) == {first} and set(rows[9:12]) == {second} and rows[:12] == rows[12:]


@pytest.mark.parametrize(("wrong", "agreement"), [(False, 1.0), (True, 0.0)])
def test_held_out_comparisons_are_asked_in_both_orders(wrong: bool, agreement: float) -> None:
    def says(request: Request, occurrence: int) -> str:
        if request.step != "judgment":
            return criteria(int(request.slots["count"])) if request.step == "criteria" else "a guideline"
        return judged(5, 1) if ("good" in request.slots["response_a"]) != wrong else judged(1, 5)

    held_out = [Labelled(comparison(i, "good", "poor"), "A") for i in range(4)]
    rollouts = Rollouts({}, load_prompt_set("compact"), StepsConfig(criteria=3), RlConfig(), 11, lambda trainer: None)
    figures = held_out_figures(ScriptedEngine(says), held_out, rollouts)
    assert figures == {AGREEMENT: agreement, "eval_consistency": 1.0, "eval_unreadable": 0.0}


def test_every_epoch_is_shuffled_anew_and_filled_up_to_whole_steps() -> None:
    order = in_order(10, RlConfig(num_train_epochs=2.5, comparisons_per_step=4), 1)
    assert len(order) == 28  # 10 + 10 + 5, and three to fill the last step
    assert sorted(order[:10]) == sorted(order[10:20]) == list(range(10)) and order[:10] != order[10:20]
    assert order[25:] == order[:3] and order == in_order(10, RlConfig(num_train_epochs=2.5, comparisons_per_step=4), 1)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("alone")
    plant(composed(output, *RL)).run("rl")
    return output


def artifact(output: Path) -> Path:
    return next(output.glob("artifacts/rl/*/manifest.json")).parent


def test_what_a_run_leaves(alone: Path) -> None:
    directory = artifact(alone)
    manifest = json.loads((directory / "manifest.json").read_text())
    counts = manifest["counts"]
    notes = manifest["notes"]
    assert counts["in"] == 20 and counts["out"] + notes["heldout"]["comparisons"] == 20
    assert notes["kept"]["of"] == notes["training"]["steps"] > 2
    rows = [json.loads(line) for line in (directory / "train_log.jsonl").read_text().splitlines()]
    evaluated = {row["step"]: row["eval_agreement"] for row in rows if "eval_agreement" in row}
    assert evaluated[0] == notes["kept"]["start"] and max(list(evaluated.values())[1:]) == notes["kept"]["agreement"]
    assert all({"rewards/both_orders/mean", "kl", "grad_norm", "entropy"} <= set(row) for row in rows if "loss" in row)
    assert any(row["grad_norm"] > 0 for row in rows if "loss" in row)
    assert {"prompts.yaml", "judge.json", "README.md", "model.safetensors"} <= {
        path.name for path in (directory / "model").iterdir()
    }
    assert not (directory / "checkpoints").exists()


def test_a_killed_process_goes_on_at_its_checkpoint(
    alone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    marked = killed_once(tmp_path, tmp_path / "log", *RL)
    plant(composed(tmp_path, *RL)).run("rl")
    assert f"rl: resuming at step {marked[-1]}\n" in capsys.readouterr().out and 0 < marked[-1] < 4
    assert same(weights(artifact(alone)), weights(artifact(tmp_path)))


def test_a_start_that_no_step_beats_is_what_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = "rl={learning_rate: 1e-9, max_steps: 2, eval_steps: 1}"  # moves weights, and no greedy verdict
    pipeline = plant(composed(tmp_path, *RL, small))
    pipeline.run("rl")
    directory = artifact(tmp_path)
    start_ = pipeline.plan("sft").directory
    kept = json.loads((directory / "manifest.json").read_text())["notes"]["kept"]
    assert kept == {"step": 0, "of": 2, "agreement": kept["start"], "start": kept["start"]}
    assert "kept the judge it started from, since none of 2 steps is better" in capsys.readouterr().out
    assert same(weights(directory), weights(start_))
    assert directory.name in (directory / "model" / "README.md").read_text(), "the card is of this stage all the same"


def test_what_it_holds_out_no_stage_before_it_was_trained_on(tmp_path: Path) -> None:
    trees, out = (StageRun(tmp_path / name, name, 17, Console()) for name in ("tree", "label"))
    rows = [tree_of(("AAAA", "AAAB"), ("BBBB", "BBAB"), ("AABB", "AAAA"), index=i).to_row() for i in range(60)]
    trees.write_rows("trees", rows)
    config = Config(seed=17, prompts="compact", label=LabelConfig(holdout=0.3, balance=[], **ANY_EVIDENCE))
    label_stage.run(LabelSettings.of(config), {"tree": trees.directory}, out)
    taught = {row["comparison_id"] for name in ("sft", "pairs") for row in read_rows(out.directory, f"{name}-train")}
    everyone, _ = labelled_comparisons({"tree": trees.directory, "label": out.directory})
    settings = RlSettings.of(config)
    train, held_out = split_off_holdout(everyone, settings.holdout or 0.0, settings.seed, None)
    assert len(held_out) > 10 and len(train) > 30 and len(taught) > 30
    assert not taught & {held_item.comparison.id for held_item in held_out}


def token_gradient_norm(directory: Path) -> float:
    """Return the root mean square, over tokens, of the norm of the gradient of a token's log-probability.

    The squared norm of a sum of gradients with random signs is the sum of their squared norms, on average.
    """
    model = load_model(ModelConfig(path=str(directory)))
    tokenizer = load_tokenizer(ModelConfig(path=str(directory)))
    generator = torch.Generator().manual_seed(3)
    squares = 0.0
    tokens = 0
    for item in COMPARISONS * 4:
        chat = [{"role": message.role, "content": message.content} for message in item.dialogue.messages]
        chat.append({"role": "assistant", "content": item.response_a})
        ids = tokenizer.apply_chat_template(chat, return_tensors="pt", return_dict=True)["input_ids"]
        logps = model(input_ids=ids).logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])[0, :, 0]
        signs = torch.randint(0, 2, logps.shape, generator=generator) * 2 - 1
        model.zero_grad()
        (signs * logps).sum().backward()
        squares += sum(float(weight.grad.square().sum()) for weight in model.parameters() if weight.grad is not None)
        tokens += len(logps)
    return math.sqrt(squares / tokens)


def divergence_rounding(divergence: float, of_token: float) -> float:
    """Return how far apart two computations of a mean divergence may be that differ in rounding alone.

    It is the mean of ``exp(d) - d - 1`` over tokens, ``d`` between the log-probabilities of start and policy: half of
    its square where it is small, so that the mean square of ``d`` is twice the divergence. If each ``d`` is off by
    ``of_token`` (root mean square), the mean of ``d`` times that is the product of both roots at most (Cauchy-Schwarz).
    This is a standard deviation: what is off has signs that have nothing to do with ``d``. Four of them are passed by
    chance in one of 16,000.
    """
    deviation = of_token * (math.sqrt(2 * max(divergence, 0.0)) + of_token / 2)
    return 4 * deviation


def test_two_processes_make_what_one_makes(alone: Path, tmp_path: Path) -> None:
    plant(composed(tmp_path, *RL))
    together(tmp_path, tmp_path / "log", *OVERRIDES, *RL, "train.distributed=ddp")
    logs = [
        [json.loads(line) for line in (artifact(output) / "train_log.jsonl").open()] for output in (alone, tmp_path)
    ]
    assert len(logs[0]) == len(logs[1])
    gradient_norm = max(row["grad_norm"] for row in logs[0] if "grad_norm" in row)
    vocabulary = json.loads((artifact(alone) / "model" / "config.json").read_text())["vocab_size"]
    # Of a token's log-probability, which is as far from 0 as that of a token by chance, or nearer.
    off = loss_rounding(math.log(vocabulary), RL_STEPS, RL_RATE, gradient_norm)
    of_token = loss_rounding(math.log(vocabulary), RL_STEPS, RL_RATE, token_gradient_norm(artifact(alone) / "model"))
    for one, two in zip(*logs, strict=True):
        # Judgments were the same ones: rewards are shares of verdicts.
        for key in ("rewards/both_orders/mean", "eval_agreement"):
            assert one.get(key) == two.get(key)
        if "loss" not in one:
            continue
        # A loss is a mean of such differences, each times an advantage, which is about one.
        assert two["loss"] == pytest.approx(one["loss"], rel=0, abs=off)
        assert two["kl"] == pytest.approx(one["kl"], rel=0, abs=divergence_rounding(one["kl"], of_token))
    learned = max(row["kl"] for row in logs[0] if "kl" in row)
    assert learned > 100 * off**2, "something was learned, whichever step is kept, and rounding is far below it"
    # A step too few changes a divergence by a part of itself that is many times as large.
    assert learned > 20 * divergence_rounding(learned, of_token)
    models = [weights(artifact(output)) for output in (alone, tmp_path)]
    assert_same_but_for_rounding(models[0], models[1], RL_STEPS, RL_RATE)


@pytest.mark.parametrize(("mode", "lora"), [("zero2", False), ("zero3", True), ("zero3_offload", False)])
def test_under_zero_too(mode: str, lora: bool, tmp_path: Path) -> None:
    """The same branches, rewards and weights: what is learned in two steps, which keep_best might leave out."""
    pytest.importorskip("deepspeed")
    words = [*RL, "rl.max_steps=2", "rl.keep_best=false", f"rl.lora={str(lora).lower()}"]
    outputs = [tmp_path / "one", tmp_path / "two"]
    plant(composed(outputs[0], *words)).run("rl")
    plant(composed(outputs[1], *words))
    together(outputs[1], tmp_path / "log", *OVERRIDES, *words, f"train.distributed={mode}")
    logs = [[json.loads(line) for line in (artifact(output) / "train_log.jsonl").open()] for output in outputs]
    rewards = [[row.get("rewards/both_orders/mean") for row in log] for log in logs]
    assert len(rewards[0]) >= 2 and rewards[0] == rewards[1]
    start = weights(next(outputs[0].glob("artifacts/sft/*/manifest.json")).parent)
    models = [weights(artifact(output)) for output in outputs]
    learned = [torch.cat([(model[name] - start[name]).flatten().double() for name in start]) for model in models]
    # Adam's steps are off by as much of their length, and what they add up to by no more (rounding in closeness.py).
    allowed = 2 * math.sqrt(torch.finfo(torch.float32).eps)
    assert learned[0].any(), "the start is not what was kept"
    assert (learned[0] - learned[1]).norm() <= allowed * learned[0].norm()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("rl.per_device_train_batch_size=5", r"does not divide the 32 texts"),
        ("train.distributed=fsdp", r"distributed=fsdp: stage rl samples from whole weights, .*=ddp, zero2 or zero3$"),
        ("label.holdout=0", r"rl\.keep_best=true: label\.holdout=0 holds no comparisons out"),
        ("engine=vllm ~engine.batch_size", "engine.type=vllm: the package vllm is not installed; pip install vllm"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_runs(
    override: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        Pipeline(composed(tmp_path, *RL, *override.split())).check("rl")


def test_the_start_labels_for_itself_and_no_label_of_others_is_read(tmp_path: Path) -> None:
    overrides = [*RL, "rl.labels=start", "judge.aggregation=mean"]
    few = plant(composed(tmp_path / "few", *overrides, "rl.max_comparisons=3"))
    drawn = drawn_comparisons({"responses": few.plan("responses").directory}, 3, 7, lambda c: c.id.endswith("1"))
    everyone = [row["id"] for row in read_rows(few.plan("responses").directory, "comparisons")]
    expected_ids = {i for i in everyone if i.endswith("1")}
    assert expected_ids and expected_ids <= {c.id for c in drawn}, (
        "what a checkpoint is chosen by is labelled whatever the limit"
    )
    assert (
        3 <= len(drawn) <= 3 + len(expected_ids)
        and {c.id for c in drawn} - expected_ids != {*everyone[:3]} - expected_ids
    )
    pipeline = plant(composed(tmp_path, *overrides, "rl.max_steps=1"))
    pipeline.run("rl")
    manifest = json.loads((artifact(tmp_path) / "manifest.json").read_text())
    assert sorted(manifest["upstream"]) == ["responses", "sft", "teacher"]
    remaining_ids = {row["id"] for row in read_rows(pipeline.plan("teacher").directory, "remaining")}
    chosen_by = {row["comparison_id"] for row in read_rows(artifact(tmp_path), "heldout")}
    assert chosen_by and chosen_by <= remaining_ids, "the Initial judge was trained on what the teacher had"
    rows = [json.loads(line) for path in artifact(tmp_path).glob("own-labels-*.jsonl") for line in path.open()]
    agreed = {row["comparison_id"]: row["verdict_ab"] for row in rows if row["verdict_ab"] == row["verdict_ba"]}
    counts = manifest["counts"]
    assert counts["in"] == len(rows) == 20 and counts["dropped"].get("no_label", 0) == 20 - len(agreed)
    start_ = BranchingJudge.from_pretrained(
        pipeline.plan("sft").directory / "model", 4, aggregation="mean", criteria_tokens=120
    )
    everyone = [Comparison.from_row(row) for row in read_rows(pipeline.plan("responses").directory, "comparisons")]
    verdicts = start_.compare_batch(everyone)
    assert {p.comparison_id: p.verdict_ab for p in verdicts if p.consistent} == agreed
