"""Stage ``label``: pruning, labels, supervised examples and preference pairs of trees (paper, 4.3 and 4.4)."""

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun, derive_seed
from judgetrain.artifacts.stage_run import is_held_out as is_example_held_out
from judgetrain.data.duplicates import named_queries
from judgetrain.data.prompt_keys import is_held_out
from judgetrain.errors import ConfigError, NothingToLearnError
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.judges.views.tree_page import DIRECTORY, views, write_views
from judgetrain.label.config import LabelConfig
from judgetrain.label.corrections import LEFT_OUT, correction_rows
from judgetrain.label.examples import Prompter
from judgetrain.label.external import External, external_labels
from judgetrain.label.labels import HINTS, Label, by_rating, given_label
from judgetrain.label.pairs import Evidence, Preferences
from judgetrain.label.rewards import branch_rewards
from judgetrain.label.stages import CORRECTION, LabelSettings, load_external_prompts
from judgetrain.label.training_data import Drawing, TrainingData
from judgetrain.label.worth import Worth, learn

VIEWED = 20
"""Pages of trees to look at."""

OutsideLabel = Callable[[EvaluationTree], Label | None]
"""Returns a tree's label that is known from elsewhere than its branches, or None."""
Row = dict[str, Any]


def run(settings: LabelSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``sft-*``, ``pairs-*`` (train and heldout), ``labels.jsonl``, ``yield.json`` and pages to look at.

    With ``label.source=external`` the external judge's replies are kept in ``external`` shards, and how often it
    disagrees, with itself and with the branches, in ``external.json`` and the manifest; where it prefers critiques
    its preferences make the pairs, and the branches' label chooses the SFT examples. With
    ``label.source=given`` the comparisons' own labels and ratings stand in for the branches', with ``label.given`` so
    many of them. With ``label.signals`` the branches' scores are kept in ``branch-scores-SIGNAL`` shards.
    """
    config = settings.label
    prompter = Prompter(load_prompt_set(settings.prompts), settings.criteria, settings.reference)
    rewards = branch_rewards(settings, inputs, prompter, out)

    external: dict[str, External] = {}
    if config.source == "external":
        external = external_labels(config, inputs["tree"], settings.seed, out)
    preferred = _preferred(config, external)
    outside_label = _outside_labels(settings, inputs["tree"], external)

    worth = None
    # By the paper's letter, and where critiques were compared, each tree stands for itself.
    if config.rule == "evidence" and preferred is None:
        worth = _learn_worth(inputs["tree"], outside_label)

    evidence = Evidence(rewards=rewards, preferred=preferred, worth=worth)
    drawing = Drawing(out.seed, ranked=bool(settings.ranking))
    data = TrainingData(prompter, config, evidence, drawing, out.directory)

    # A second pass over the trees: what criteria are worth had to be known of all before the first is labelled.
    viewed: list[EvaluationTree] = []
    # The ids alone, as the trees of millions of comparisons do not fit into memory.
    held_out: set[str] = set()
    for tree in _trees(inputs["tree"]):
        rated = by_rating(tree)
        data.add(rated, outside_label(rated))
        if is_held_out(settings.seed, tree.comparison.dialogue, config.holdout):
            held_out.add(tree.comparison.id)
        # Pages show the scores that were written, not how near they are to a rating.
        if len(viewed) < VIEWED:
            viewed.append(tree)
        out.count(in_=1)

    # Repeats and the balance of pairs show only when all trees are there.
    data.select_pairs()
    if not data.sft:
        raise NothingToLearnError(data.nothing_left())

    corrections: list[Row] = []
    if config.corrections.path:
        corrections = _corrections(settings, out)
    for example in corrections:
        if is_example_held_out(settings.seed, example["comparison_id"], config.holdout):
            held_out.add(example["comparison_id"])
    _write(data, corrections, held_out, out)
    _write_pages(data, viewed, out)
    _report(data, corrections, out)


def _preferred(config: LabelConfig, external: Mapping[str, External]) -> dict[str, Preferences] | None:
    """Return the critiques that the external judge prefers, by comparison; None where it compares none."""
    if config.source != "external":
        return None
    _, dialect = load_external_prompts(config.external)
    if dialect != "preference":
        return None
    return {comparison_id: answer.nodes for comparison_id, answer in external.items()}


def _trees(directory: Path) -> Iterator[EvaluationTree]:
    """Yield the trees of a finished stage tree, one at a time: millions do not fit into memory."""
    return map(EvaluationTree.from_row, read_rows(directory, "trees"))


def _outside_labels(settings: LabelSettings, trees: Path, external: Mapping[str, External]) -> OutsideLabel:
    """Return a function that gives a tree its label from elsewhere: the data's own, or an external judge's."""
    config = settings.label
    drawn = _draw_labelled(trees, config, settings.seed)

    def outside_label(tree: EvaluationTree) -> Label | None:
        comparison = tree.comparison
        # A response that stands alone has a rating or nothing: branches about it compare with nothing.
        if config.source == "given" or comparison.alone or comparison.id in drawn:
            return given_label(tree, config)
        answer = external.get(comparison.id)
        if answer is None:
            return None
        return answer.label

    return outside_label


def _draw_labelled(trees: Path, config: LabelConfig, seed: int) -> set[str]:
    """Return the ids of the ``label.given`` comparisons whose own labels are used, drawn among those that have one.

    A longer draw by the same seed holds all of a shorter one, so that figures for more and more labels compare.

    Raises:
        ConfigError: fewer have a label.
    """
    if not config.given:
        return set()
    labelled = []
    for tree in _trees(trees):
        # Of those without a label none could be used, and a draw among them would give too few.
        if tree.comparison.label is not None:
            labelled.append(tree.comparison.id)
    if len(labelled) < config.given:
        raise ConfigError(f"label.given={config.given}: only {len(labelled)} of the comparisons in trees have a label")
    # The whole list is shuffled and its beginning taken: sample() would draw others for another number.
    random.Random(derive_seed(seed, "given")).shuffle(labelled)
    return set(labelled[: config.given])


def _learn_worth(trees: Path, outside_label: OutsideLabel) -> Worth | None:
    """Return what criteria are worth over all trees, by the labels that are known and by their agreement."""

    def verdict_of(tree: EvaluationTree) -> Any:
        label = outside_label(tree)
        if label is None:
            return None
        return label.verdict

    # On matrices of this size two threads take three times the time of one.
    with threadpool_limits(1):
        return learn(map(by_rating, _trees(trees)), verdict_of)


def _corrections(settings: LabelSettings, out: StageRun) -> list[Row]:
    """Return the examples of ``label.corrections``, and count the rows that were left out."""
    prompts = load_prompt_set(CORRECTION, "correction", "label.corrections")
    queries = None
    if settings.dialogues:
        queries = named_queries(settings.dialogues)
    examples, left_out = correction_rows(settings.label.corrections, prompts, queries)
    out.count(dropped={f"corrections:{reason}": number for reason, number in left_out.items()})
    for sentence in left_out.sentences(len(examples) + left_out.total(), LEFT_OUT, "corrections"):
        out.log(f"label: {sentence}")
    return examples


def _write(data: TrainingData, corrections: list[Row], held_out: Collection[str], out: StageRun) -> None:
    """Write examples and pairs, those of the ``held_out`` comparisons apart, and the labels."""
    for split, is_of_heldout in (("train", False), ("heldout", True)):
        # Read once for each split: examples and pairs stand on disk.
        by_kind = {"sft": chain(data.sft, corrections), "pairs": (pair.to_row() for pair in data.pairs)}
        for kind, rows in by_kind.items():
            with out.rows_writer(f"{kind}-{split}") as write:
                for row in rows:
                    if (row["comparison_id"] in held_out) == is_of_heldout:
                        write(row)
                        out.count(out=1)
    out.write_rows("labels", data.labels)


def _write_pages(data: TrainingData, trees: list[EvaluationTree], out: StageRun) -> None:
    """Write pages of the first trees with what they teach."""
    if not trees:
        return
    pages = views(trees, data.labels, data.sft, (pair.to_row() for pair in data.pairs))
    index = write_views(pages, out.path(DIRECTORY), "Evaluation trees")
    out.log(f"label: trees to look at: {index}")


def _report(data: TrainingData, corrections: list[Row], out: StageRun) -> None:
    """Write ``yield.json``, note it in the manifest, and say how many pairs there are."""
    table = data.table()
    if corrections:
        table["corrections"] = {"taken": len(corrections)}
    out.write_json("yield", table)
    out.note("yield", table)
    by_level = ", ".join(f"{number:,} {level}" for level, number in table["pairs"].items())
    out.log(f"label: preference pairs: {by_level or 'none'}")
    for sentence in data.unlabelled.sentences(data.trees.total(), HINTS, "trees"):
        out.log(f"label: {sentence}")
    out.count(dropped=data.unlabelled)
