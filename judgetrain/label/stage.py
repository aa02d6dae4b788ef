"""Stage ``label``: prune, label, and write supervised examples and preference pairs (sections 4.3, 4.4)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun, is_held_out
from judgetrain.data.contamination import named_queries
from judgetrain.errors import NothingToLearnError
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.judges.views.tree_page import DIRECTORY, views, write_views
from judgetrain.label.corrections import correction_rows
from judgetrain.label.examples import Prompter
from judgetrain.label.external import external_labels, load_external_prompts
from judgetrain.label.labels import given_label
from judgetrain.label.rewards import branch_rewards
from judgetrain.label.stages import CORRECTION, LabelSettings
from judgetrain.label.training_data import TrainingData

VIEWED = 20
"""Pages of trees to look at."""


def run(settings: LabelSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``sft-*``, ``pairs-*`` (train and heldout), ``labels.jsonl``, ``yield.json`` and pages to look at.

    With ``label.source=external`` the external judge's replies are kept in ``external`` shards, and how often it
    disagrees, with itself and with the branches, in ``external.json`` and the manifest; where it prefers critiques
    its preferences make the pairs, and the branches' label chooses the SFT examples. With
    ``label.source=given`` the comparisons' own labels stand in for the branches'. With ``label.signals``
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
    data = TrainingData(prompter, config, rewards, out.seed, preferred, out.directory)
    by_data = config.source == "given"
    shown: list[EvaluationTree] = []
    for row in read_rows(inputs["tree"], "trees"):
        tree = EvaluationTree.from_row(row)
        data.add(tree, given_label(tree, config) if by_data else labels.get(tree.comparison.id))
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
            written = 0
            with out.rows_writer(f"{kind}-{split}") as write:
                for row in rows:
                    if is_held_out(settings.seed, row["comparison_id"], config.holdout) == held:
                        write(row)
                        written += 1
            out.count(out=written)
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
