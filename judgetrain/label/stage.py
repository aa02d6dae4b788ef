"""Stages ``tree`` and ``label``: trees, labels, supervised examples and preference pairs (sections 4.3, 4.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, is_held_out
from judgetrain.data.duplicates import named_queries
from judgetrain.engines.lazy_model import loaded_once, make_engine
from judgetrain.errors import NothingToLearnError
from judgetrain.judges.config import TREE_READS
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.grow import Shape, grow
from judgetrain.judges.trees.schema import EvaluationTree, shard_of
from judgetrain.judges.views.tree_page import DIRECTORY, views, write_views
from judgetrain.label.corrections import correction_rows
from judgetrain.label.examples import Prompter
from judgetrain.label.external import external_labels, load_external_prompts
from judgetrain.label.labels import Label, by_rating, each_in, ensemble_label, given_label
from judgetrain.label.rewards import branch_rewards
from judgetrain.label.stages import CORRECTION, LabelSettings, TreeSettings
from judgetrain.label.training_data import TrainingData
from judgetrain.label.worth import learn
from judgetrain.schema import Comparison

VIEWED = 20
"""Pages of trees to look at."""


def run_tree(settings: TreeSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``trees`` shards by the Initial judge: one tree per remaining comparison, complete (section 4.3)."""
    config, engine_config, model = settings.tree, settings.engine, inputs["initial"] / "model"
    comparisons = [Comparison.from_row(row) for row in read_rows(inputs["teacher"], "remaining")]
    shape = Shape(
        count=config.criteria,
        criteria=config.criteria,
        guidelines=config.guidelines,
        judgments=config.judgments,
        orders=TREE_READS[config.reads],
        top_up=True,
    )
    prompts, name = load_prompt_set(model / "prompts.yaml"), model.parent.parent.name
    with loaded_once(lambda: make_engine(engine_config, model_path=str(model), name=name)) as engine:

        def process(index: int, items: Sequence[Comparison]) -> ShardResult:
            steer = each_in(shape.orders)
            return shard_of(grow(items, engine(), prompts, shape, config, out.shard_seed(index), steer=steer))

        taken, spread = comparisons[: config.max_comparisons], not engine_config.paid
        out.sharded("trees", taken, config.shard_size, process, "comparisons", engine, spread=spread)


def run(settings: LabelSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``sft-*``, ``pairs-*`` (train and heldout), ``labels.jsonl``, ``yield.json`` and pages to look at.

    With ``label.source=external`` the external judge's replies are kept in ``external`` shards, and how often it
    disagrees, with itself and with the branches, in ``external.json`` and the manifest; where it prefers critiques
    its preferences make the pairs, and the branches' label chooses the SFT examples. With
    ``label.source=given`` the comparisons' own labels and ratings stand in for the branches'. With ``label.signals``
    the branches' scores are kept in ``branch-scores-SIGNAL`` shards.
    """
    config = settings.label
    prompter = Prompter(load_prompt_set(settings.prompts), settings.criteria, settings.reference)
    rewards = branch_rewards(settings, inputs, prompter, out)
    external = config.source == "external"
    asked = external_labels(config, inputs["tree"], settings.seed, out) if external else {}
    by_pair = external and load_external_prompts(config.external)[1] == "preference"
    preferred = {name: said.nodes for name, said in asked.items()} if by_pair else None
    labels = {name: said.label for name, said in asked.items()}
    by_data = config.source == "given"

    def given(tree: EvaluationTree) -> Label | None:
        alone = by_data or tree.comparison.alone
        return given_label(tree, config) if alone else labels.get(tree.comparison.id)

    worth = None
    if config.rule == "evidence" and not by_pair:
        trees = map(by_rating, map(EvaluationTree.from_row, read_rows(inputs["tree"], "trees")))
        label_of = lambda tree: (given(tree) or ensemble_label(tree, config)).verdict  # noqa: E731
        worth = learn(trees, label_of, relabel=config.source == "ensemble")
    data = TrainingData(prompter, config, rewards, out.seed, preferred, out.directory, worth)
    shown: list[EvaluationTree] = []
    for row in read_rows(inputs["tree"], "trees"):
        tree = EvaluationTree.from_row(row)
        rated = by_rating(tree)
        data.add(rated, given(rated))
        if len(shown) < VIEWED:
            shown.append(tree)
        out.count(in_=1)
    data.select_pairs()
    if not data.sft:
        raise NothingToLearnError(data.nothing_left())
    corrections: list[dict[str, Any]] = []
    if config.corrections.path:
        wording = load_prompt_set(CORRECTION, "correction", "label.corrections")
        queries = named_queries(settings.dialogues) if settings.dialogues else None
        corrections, left_out = correction_rows(config.corrections, wording, queries)
        out.count(dropped={f"corrections:{reason}": n for reason, n in left_out.items()})
    for split, held in {"train": False, "heldout": True}.items():
        kinds = {"sft": chain(data.sft, corrections), "pairs": (pair.to_row() for pair in data.pairs)}
        for kind, rows in kinds.items():
            with out.rows_writer(f"{kind}-{split}") as write:
                for row in rows:
                    if is_held_out(settings.seed, row["comparison_id"], config.holdout) == held:
                        write(row)
                        out.count(out=1)
    out.write_rows("labels", data.labels)
    if shown:
        found = views(shown, data.labels, data.sft, (p.to_row() for p in data.pairs))
        index = write_views(found, out.path(DIRECTORY), "Evaluation trees")
        out.log(f"label: trees to look at: {index}")
    table = data.table()
    if corrections:
        table["corrections"] = {"taken": len(corrections)}
    out.write_json("yield", table)
    out.note("yield", table)
    made = ", ".join(f"{number:,} {level}" for level, number in table["pairs"].items())
    out.log(f"label: preference pairs: {made or 'none'}")
    out.count(dropped=data.unlabelled)
