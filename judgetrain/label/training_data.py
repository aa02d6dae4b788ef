"""Training data of trees: labels, supervised examples and preference pairs (branching paper, 4.3 and 4.4)."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from judgetrain.amounts import agree, amount
from judgetrain.artifacts.losses import Losses
from judgetrain.artifacts.shards import DiskList
from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.errors import causes
from judgetrain.judges.trees.schema import (
    CriterionNode,
    EvaluationTree,
    GuidelineNode,
    JudgmentNode,
    PrunedBranch,
    both_sides,
    prune,
)
from judgetrain.label.config import LabelConfig
from judgetrain.label.examples import Pair, Prompter, leanings
from judgetrain.label.labels import HINTS, Label, accepts, ensemble_label
from judgetrain.label.pairs import Evidence, pair_builder
from judgetrain.label.worth import label_by_weights

Row = dict[str, Any]
BranchPath = tuple[CriterionNode, GuidelineNode, JudgmentNode]


@dataclass(frozen=True)
class Drawing:
    """The way in which examples are drawn from the branches of a tree.

    Args:
        seed: what is drawn for a tree depends on it and on the comparison's id.
        ranked: judgments of the two responses, one by one, are taken together or not at all.
    """

    seed: int = 0
    ranked: bool = False


class TrainingData:
    """Collects the labels, supervised examples and preference pairs of trees.

    Args:
        prompter: renders the judge's prompts.
        config: how trees are labelled, and how much is taken from each.
        evidence: what is known of trees besides their own verdicts; by default, nothing.
        drawing: how examples are drawn.
        place: the directory of the temporary files that hold examples and pairs.
    """

    def __init__(
        self,
        prompter: Prompter,
        config: LabelConfig | None = None,
        evidence: Evidence | None = None,
        drawing: Drawing = Drawing(),
        place: Path | None = None,
    ) -> None:
        self.prompter = prompter
        self.config = config or LabelConfig()
        self.evidence = evidence or Evidence()
        self.drawing = drawing
        self.pair_builder = pair_builder(prompter, self.config, self.evidence)

        # On disk, as the examples of millions of comparisons do not fit into memory.
        self.sft: DiskList[Row] = DiskList(dict, dict, place)
        self.pairs: DiskList[Pair] = DiskList(vars, Pair.from_parts, place)
        self.labels: list[Row] = []
        self.divided: dict[str, int] = {}
        """Counts of the comparisons that give SFT examples and pairs, where no comparison gives both."""
        self.trees: Counter[str] = Counter()
        self.unlabelled = Losses()
        """The trees that have no label."""
        self.branches: Counter[str] = Counter()
        self._truth: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()

    def add(self, tree: EvaluationTree, given: Label | None = None) -> Label:
        """Prune and label one tree, take its examples and pairs, and return its label.

        Args:
            tree: with its judgments.
            given: stands in for the label that the branches give.
        """
        branches = prune(tree)
        ensemble = ensemble_label(tree, self.config)
        # The branches' label is counted beside a given one: it says how far they could be trusted without.
        label = given or self._own_label(tree, ensemble)
        self._failures.update(tree.failures)
        self.labels.append(self._label_row(tree, label, ensemble))
        self.trees[label.reason or f"label_{label.verdict}"] += 1
        if label.reason:
            self.unlabelled.lose(label.reason, tree.comparison.id)
        for branch in branches.values():
            self.branches[self._pruning_reason(branch, label)] += 1
        if label.verdict is None:
            return label
        self._compare_with_truth(tree, label, ensemble)
        # A draw of its own for each comparison, so that other trees before it change nothing.
        rng = random.Random(derive_seed(self.drawing.seed, tree.comparison.id))
        self.sft.extend(self.sft_examples(tree, branches, label, rng))
        self.pairs.extend(self.pair_builder.pairs(tree, label, rng))
        return label

    def _own_label(self, tree: EvaluationTree, ensemble: Label) -> Label:
        """Return the label that the tree's branches give: by worth, where that was learned, else by their vote.

        Criteria of a rubric count as people weigh them, until labels have said what they are worth.
        """
        label = ensemble
        worth = self.evidence.worth
        by_rubric = bool(tree.criteria) and all(criterion.given for criterion in tree.criteria)
        if worth and (worth.by_labels or not by_rubric):
            label = worth.label(tree, ensemble)
        elif by_rubric and self.config.rule == "evidence":
            label = label_by_weights(tree, ensemble)
        return self.evidence.rewards.break_tie(tree, label)

    def _label_row(self, tree: EvaluationTree, label: Label, ensemble: Label) -> Row:
        """Return the row of ``labels.jsonl`` for one comparison."""
        comparison = tree.comparison
        row: Row = {
            "comparison_id": comparison.id,
            **label.to_row(),
            "ensemble_verdict": ensemble.verdict,
            "truth": comparison.label,
            "made": comparison.made or "",
        }
        if comparison.alone and comparison.rating_a:
            # A rating is no verdict on two responses.
            row |= {"verdict": None, "truth": None, "rating": comparison.rating_a.score}
        return row

    def _compare_with_truth(self, tree: EvaluationTree, label: Label, ensemble: Label) -> None:
        """Count whether the branches' label is the comparison's own; not where a few labels were given beside them."""
        truth = tree.comparison.label
        is_one_of_few = label.source == "given" and self.config.source != "given"
        if truth is None or is_one_of_few:
            return
        verdict = label.verdict
        if label.source == "given":
            # The label is the comparison's own: what is compared with it is what the branches would have said.
            verdict = ensemble.verdict
        if verdict is None:
            self._truth["no_label"] += 1
        elif verdict == truth:
            self._truth["right"] += 1
        else:
            self._truth["wrong"] += 1

    def _pruning_reason(self, branch: PrunedBranch, label: Label) -> str:
        """Return ``kept``, or why a branch trains nothing: a constraint that it breaks, or what the label lacks.

        Reasons about the label are ``no_label`` and ``against_label``.
        """
        if not branch.kept:
            return branch.reason
        if label.verdict is None:
            return "no_label"
        if not accepts(branch.judgment.verdict, label.verdict, self.config.rule):
            return "against_label"
        return "kept"

    def sft_examples(
        self, tree: EvaluationTree, branches: Mapping[str, PrunedBranch], label: Label, rng: random.Random
    ) -> list[Row]:
        """Return examples from the branches that satisfy both constraints and are in keeping with the label."""
        kept: list[BranchPath] = []
        for path in tree.judgments():
            judgment = path[-1]
            if self._pruning_reason(branches[judgment.id], label) == "kept":
                kept.append(path)
        if not kept:
            return []
        drawn = self._drawn(kept, rng)
        rows = []
        # Several drawn judgments may share a guideline, which is then one example.
        guidelines = {}
        for criterion, guideline, judgment in drawn:
            guidelines[guideline.id] = (criterion, guideline)
            # A text that ran out of tokens would teach to break off.
            if judgment.finish_reason == "stop":
                rows.append(self.prompter.judgment_row(tree.comparison, criterion, guideline, judgment))
        for criterion, guideline in guidelines.values():
            if guideline.finish_reason == "stop" and criterion.wrote(guideline):
                rows.append(self.prompter.guideline_row(tree.comparison, criterion, guideline))
        # A shorter list would teach to name fewer than the prompt asks for; one that was given, nothing.
        if len(tree.criteria) == self.prompter.count and not tree.given:
            rows.append(self.prompter.criteria_row(tree.comparison, self._leading_first(tree, kept, label)))
        return rows

    def _drawn(self, kept: Sequence[BranchPath], rng: random.Random) -> list[BranchPath]:
        """Return at most ``max_sft_per_tree`` branches, drawn at random, in the tree's order.

        Where responses are ranked, the two judgments of a pair are drawn together.
        """
        limit = self.config.max_sft_per_tree
        names = []
        for _, _, judgment in kept:
            name = judgment.id
            if self.drawing.ranked:
                # Both judgments of a pair have one name then.
                name = both_sides(name)
            names.append(name)
        # One by one in a random order, as taking a pair whole may go beyond the limit.
        drawn: set[str] = set()
        for place in rng.sample(range(len(kept)), min(len(kept), limit)):
            with_this = drawn | {names[place]}
            count = sum(name in with_this for name in names)
            # A limit of 1 lets one pair through: half of it could not be ranked.
            if count <= max(limit, 2):
                drawn = with_this
        return [path for path, name in zip(kept, names, strict=True) if name in drawn]

    def _leading_first(self, tree: EvaluationTree, kept: Sequence[BranchPath], label: Label) -> Sequence[CriterionNode]:
        """Return the tree's criteria as a list is to name them.

        What is worth most stands first; without worth, what gives the label; by the paper's letter, as sampled.
        """
        if self.evidence.worth:
            return self.evidence.worth.ranked(tree)
        good: set[str] = set()
        if self.config.rule == "evidence":
            good = {criterion.id for criterion, _, judgment in kept if judgment.verdict == label.verdict}
        # False sorts before True.
        return sorted(tree.criteria, key=lambda criterion: (criterion.id not in good, criterion.rank))

    def select_pairs(self) -> None:
        """Leave out repeated pairs and, where ``config.balance`` asks for it, those that unbalance the rest.

        With ``config.sft_share``, first the pairs of the comparisons that give SFT examples, and those examples of the
        others (the paper's table 6).
        """
        if self.config.sft_share is not None:
            self._divide(self.config.sft_share)
        self.pairs = self.pairs.only(self.pair_builder.selected(self.pairs, self.drawing.seed))

    def _divide(self, share: float) -> None:
        """Take SFT examples and preference pairs from disjoint comparisons: a seeded draw of all trees."""
        ids = [row["comparison_id"] for row in self.labels]
        # At least one comparison gives examples, however small the share.
        number = min(max(1, round(share * len(ids))), len(ids))
        rng = random.Random(derive_seed(self.drawing.seed, "sft_share"))
        taught = set(rng.sample(ids, number))
        self.divided = {"sft": len(taught), "pairs": len(ids) - len(taught)}
        examples = [index for index, row in enumerate(self.sft) if row["comparison_id"] in taught]
        pairs = [index for index, pair in enumerate(self.pairs) if pair.comparison_id not in taught]
        self.sft = self.sft.only(examples)
        self.pairs = self.pairs.only(pairs)

    def table(self) -> dict[str, Row]:
        """Return what was kept and dropped, by rule; ``branches`` are counted by the first rule that they break."""
        truth = "label_vs_truth"
        if self.config.source == "given":
            truth = "ensemble_vs_given"
        table: dict[str, Row] = {
            "trees": dict(sorted(self.trees.items())),
            "branches": dict(sorted(self.branches.items())),
            "sft": dict(Counter(row["level"] for row in self.sft)),
            "pairs": dict(Counter(pair.level for pair in self.pairs)),
            "pairs_skipped": dict(sorted(self.pair_builder.skipped.items())),
            "pairs_lean_to": leanings(self.pairs),
            truth: dict(self._truth),
        }
        if self.divided:
            table["comparisons_for"] = self.divided
        if self.evidence.worth:
            table["criteria_worth"] = {"explained": round(self.evidence.worth.explained, 3)}
        return table

    def nothing_left(self) -> str:
        """Return why there is nothing to train on: what most was lost for, and what helps."""
        message = f"no branch of {amount(self.trees.total(), 'tree')} survived pruning and labelling"
        if self.divided:
            message += f" (label.sft_share takes SFT examples of {self.divided['sft']} of them)"
        lost = self.branches.copy()
        # Trees without a label have a reason of their own.
        del lost["no_label"]
        form = "teach the Initial judge longer, or enforce the judgments' form (tree.constrained=true)"
        judging = causes(self._failures, HINTS, f"look at the texts in trees-*.jsonl; {form}")
        if self.unlabelled.total() > self.trees.total() / 2:
            return f"{message}, no label: {causes(self.unlabelled, HINTS, judging)}"
        if lost["unreadable"] and lost["unreadable"] == max(lost.values()):
            return (
                f"{message}, {amount(lost['unreadable'], 'branch')} {agree(lost['unreadable'], 'are')} unreadable: "
                f"{judging}"
            )
        return f"{message}, branches that were lost: {causes(lost, HINTS, 'grow more trees, or more branches')}"
