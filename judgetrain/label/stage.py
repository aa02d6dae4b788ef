"""Stage ``label``: prune, label, and write supervised examples and preference pairs (sections 4.3, 4.4)."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun, derive_seed
from judgetrain.errors import DataError
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.prune import PrunedBranch, prune
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.judges.views.tree_page import DIRECTORY, views, write_views
from judgetrain.label.config import LabelConfig, RewardConfig
from judgetrain.label.examples import Pair, Prompter, criteria_row, guideline_row, judgment_row
from judgetrain.label.external import external_labels
from judgetrain.label.labels import EnsembleLabel, accepts, ensemble_label
from judgetrain.label.pairs import criteria_pairs, guideline_pairs, judgment_pairs
from judgetrain.label.reward_report import Evidence, summary
from judgetrain.label.rewards import Rewards, vote_shares
from judgetrain.label.selection import balanced, leanings, near_identical, without_repeats
from judgetrain.label.self_scores import branch_rewards
from judgetrain.pipeline.config import Config

LEVELS = ("criteria", "guideline", "judgment")


@dataclass
class Harvest:
    """What the trees gave: rows, and the yield table."""

    rewards: Rewards = field(default_factory=Rewards)
    sft: list[dict[str, Any]] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    labels: list[dict[str, Any]] = field(default_factory=list)
    branches: Counter[str] = field(default_factory=Counter)
    consistent: Counter[str] = field(default_factory=Counter)
    trees: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    truth: Counter[str] = field(default_factory=Counter)
    agreeing: set[str] = field(default_factory=set)
    """Judgments that give the label and yet are the rejected side of a pair."""
    ties_broken: int = 0

    def add(
        self,
        tree: EvaluationTree,
        config: LabelConfig,
        prompter: Prompter,
        seed: int,
        given: EnsembleLabel | None = None,
    ) -> None:
        """Prune and label one tree and take its examples and pairs; ``given`` stands in for the branches' label."""
        branches = prune(tree)
        ensemble = ensemble_label(tree, config)
        label = given or self.rewards.break_tie(tree, ensemble, config)
        self.ties_broken += label.source == "reward"
        verdicts = {"ensemble_verdict": ensemble.verdict, "truth": tree.comparison.label}
        self.labels.append({"comparison_id": tree.comparison.id, **label.to_row(), **verdicts})
        self.trees[label.reason or f"label_{label.verdict}"] += 1
        for branch in branches.values():
            self.branches[_fate(branch, label, config.ties)] += 1
            self.consistent["self_consistent"] += branch.self_consistent
            self.consistent["positionally_consistent"] += branch.positionally_consistent
            self.consistent["both"] += branch.self_consistent and branch.positionally_consistent
        if label.verdict is None:
            return
        if tree.comparison.label is not None:
            self.truth["right" if tree.comparison.label == label.verdict else "wrong"] += 1
        rng = random.Random(derive_seed(seed, tree.comparison.id))
        self.sft += sft_examples(tree, branches, label, config, prompter, rng, self.rewards)
        pairs = preference_pairs(tree, label, config, prompter, rng, self.skipped, self.rewards)
        rejected = {p.rejected_nodes[0] for p in pairs if p.level == "judgment"}
        self.agreeing.update(j.id for _, _, j in tree.judgments() if j.id in rejected and j.verdict == label.verdict)
        self.pairs += pairs

    def table(self) -> dict[str, dict[str, int | float]]:
        """Kept and dropped, by rule.

        ``branches`` are counted by the first rule that they break, ``branches_that_are`` by each constraint on its own;
        ``pairs_that_are`` counts kept pairs of a kind that one may want to know of.
        """
        ties = {"ties": {"broken": self.ties_broken}} if self.rewards.config.break_ties else {}
        return {
            "trees": dict(sorted(self.trees.items())),
            "branches": dict(sorted(self.branches.items())),
            "branches_that_are": dict(sorted(self.consistent.items())),
            "sft": dict(Counter(row["level"] for row in self.sft)),
            "pairs": dict(Counter(pair.level for pair in self.pairs)),
            "pairs_skipped": dict(sorted(self.skipped.items())),
            "pairs_that_are": dict(sorted(self._notable().items())),
            "pairs_lean_to": leanings(self.pairs),
            "label_vs_truth": dict(self.truth),
            **ties,
        }

    def _notable(self) -> Counter[str]:
        found = Counter[str]()
        for pair in self.pairs:
            if pair.level == "judgment":
                found["judgment:rejected_agrees_with_label"] += pair.rejected_nodes[0] in self.agreeing
                found["judgment:score_digits_only"] += near_identical(pair.chosen, pair.rejected) is not None
        return found


def run(config: Config, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``sft-*``, ``pairs-*`` (train and heldout), ``labels.jsonl``, ``yield.json`` and pages to look at.

    With ``label.source=external`` the external judge's replies are kept in ``external`` shards, and how often it
    disagrees, with itself and with the branches, in ``external.json`` and the manifest. With ``label.reward.signals``
    the branches' scores are kept in ``branch-scores-SIGNAL`` shards, and how well they tell right from wrong in
    ``rewards.json`` and the manifest.
    """
    prompter = Prompter(load_prompt_set(config.prompts), config.tree.criteria)
    harvest = Harvest(branch_rewards(config, inputs, prompter, out))
    evidence = Evidence(harvest.rewards, config.label.ties)
    given = external_labels(config, inputs["tree"], out) if config.label.source == "external" else {}
    shown: list[EvaluationTree] = []
    for row in read_rows(inputs["tree"], "trees"):
        tree = EvaluationTree.from_row(row)
        harvest.add(tree, config.label, prompter, out.seed, given.get(tree.comparison.id))
        if config.label.reward.signals:
            evidence.add(tree, harvest.labels[-1]["verdict"])
        if len(shown) < config.label.view:
            shown.append(tree)
        out.count(in_=1)
    harvest.pairs = without_repeats(harvest.pairs, harvest.skipped)
    traits = sorted(set(config.label.balance))
    rng = random.Random(derive_seed(out.seed, "balance", *traits))
    harvest.pairs = balanced(harvest.pairs, traits, rng, harvest.skipped)
    if not harvest.sft:
        raise DataError(_nothing_left(harvest))
    split = {"train": False, "heldout": True}
    for name, wanted in split.items():
        sft = [r for r in harvest.sft if _held_out(r["comparison_id"], config.label, out.seed) == wanted]
        pairs = [p for p in harvest.pairs if _held_out(p.comparison_id, config.label, out.seed) == wanted]
        out.write_rows(f"sft-{name}", sft)
        out.write_rows(f"pairs-{name}", (p.to_row() for p in pairs))
        out.count(out=len(sft) + len(pairs))
    out.write_rows("labels", harvest.labels)
    if shown:
        found = views(shown, harvest.labels, harvest.sft, (p.to_row() for p in harvest.pairs))
        out.log(f"label: trees to look at: {write_views(found, out.path(DIRECTORY), 'Evaluation trees')}")
    if config.label.reward.signals:
        _report(evidence, out)
    table = harvest.table()
    out.write_json("yield", table)
    out.note("yield", table)
    rows = [(what, reason, n) for what, counts in table.items() for reason, n in counts.items()]
    out.track.table("yield", ("what", "reason", "n"), [row for row in rows if isinstance(row[2], (int, float))])
    out.count(dropped={k: n for k, n in harvest.trees.items() if not k.startswith("label_")})


REMEDIES = {
    "too_few_readable": "most judgments cannot be read: look at the trees' texts, or lower label.min_readable",
    "low_vote_share": "the votes are too close: lower label.min_vote_share",
    "low_deciding_share": "most branches see a tie: lower label.min_deciding_share",
    "external_unreadable": "the external judge's replies cannot be read: look at external-*.jsonl, and choose a model "
    "that keeps to the prompt's form",
    "external_orders_disagree": "the external judge's two orders disagree: choose a stronger one",
}
"""What helps where most trees have no label for that reason."""


def _nothing_left(harvest: Harvest) -> str:
    """Why there is nothing to train on, and what helps."""
    unlabelled = Counter({k: n for k, n in harvest.trees.items() if not k.startswith("label_")})
    kept = f"no branch of {harvest.trees.total()} trees survived pruning and labelling"
    if unlabelled.total() > harvest.trees.total() / 2:
        reason = unlabelled.most_common(1)[0][0]
        return f"{kept}: {dict(unlabelled)} have no label; {REMEDIES.get(reason, 'look at labels.jsonl')}"
    return f"{kept}: of the branches {dict(harvest.branches)}; sample more trees, or more branches (tree.criteria)"


def _report(evidence: Evidence, out: StageRun) -> None:
    table = evidence.table(derive_seed(out.seed, "rewards"))
    out.write_json("rewards", table)
    out.note("rewards", table)
    for line in summary(table):
        out.log(f"label: rewards: {line}")


def _held_out(comparison_id: str, config: LabelConfig, seed: int) -> bool:
    return derive_seed(seed, "heldout", comparison_id) / 2**31 < config.holdout


def _fate(branch: PrunedBranch, label: EnsembleLabel, ties: str) -> str:
    if branch.reason != "kept" or label.verdict is None:
        return branch.reason if branch.reason != "kept" else "no_label"
    return "kept" if accepts(branch.judgment.verdict, label.verdict, ties) else "against_label"


def sft_examples(
    tree: EvaluationTree,
    branches: Mapping[str, PrunedBranch],
    label: EnsembleLabel,
    config: LabelConfig,
    prompter: Prompter,
    rng: random.Random,
    rewards: Rewards,
) -> list[dict[str, Any]]:
    """Examples from the branches that satisfy both constraints and are in keeping with the label."""
    comparison = tree.comparison
    kept = [(c, g, j) for c, g, j in tree.judgments() if _fate(branches[j.id], label, config.ties) == "kept"]
    if not kept:
        return []
    shares = vote_shares(tree)
    values = [rewards.of_judgment(j, shares) for _, _, j in kept]
    chosen = sorted(_taken(values, config.max_sft_per_tree, config.reward.choose, rng))
    rows = [judgment_row(prompter, comparison, *kept[i]) for i in chosen if kept[i][2].finish_reason == "stop"]
    guidelines = {kept[i][1].id: kept[i][:2] for i in chosen if kept[i][1].finish_reason == "stop"}
    rows += [guideline_row(prompter, comparison, c, g) for c, g in guidelines.values()]
    good = {c.id for c, _, j in kept if j.verdict == label.verdict}
    criteria = list(tree.criteria)
    if config.criteria_order == "kept_first":
        criteria.sort(key=lambda c: (c.id not in good, c.rank))
    if len(criteria) == prompter.count:
        rows.append(criteria_row(prompter, comparison, criteria))
    return rows


def _taken(values: Sequence[float | None], limit: int, choose: str, rng: random.Random) -> list[int]:
    """Indices of at most ``limit`` candidates: at random, or those of the largest value, of equal ones at random."""
    drawn = rng.sample(range(len(values)), len(values) if choose == "reward" else min(len(values), limit))
    if choose == "reward":
        drawn.sort(key=lambda i: -math.inf if (value := values[i]) is None else value, reverse=True)
    return drawn[:limit]


def preference_pairs(
    tree: EvaluationTree,
    label: EnsembleLabel,
    config: LabelConfig,
    prompter: Prompter,
    rng: random.Random,
    skipped: Counter[str],
    rewards: Rewards,
) -> list[Pair]:
    """At most ``max_pairs_per_level`` pairs of each level, drawn at random or those of the largest margin.

    A tie label makes judgment pairs only: criteria and guidelines that see no difference are no better for it.
    """
    verdict, limit, choose = label.verdict, config.max_pairs_per_level, config.reward.choose
    assert verdict is not None
    found = {"judgment": list(judgment_pairs(tree, verdict, prompter, skipped, config.ties, config.keep_digit_pairs))}
    if verdict != "tie":
        lists = len(tree.criteria) if choose == "reward" and limit else limit
        found["guideline"] = list(guideline_pairs(tree, verdict, prompter, skipped))
        found["criteria"] = list(criteria_pairs(tree, verdict, prompter, rng, lists, skipped))
    pairs: list[Pair] = []
    for level in LEVELS:
        candidates = _with_margin(found.get(level, []), tree, label, config.reward, rewards, skipped)
        skipped[f"{level}:over_cap"] += max(0, len(candidates) - limit)
        pairs += [candidates[i] for i in _taken([p.margin for p in candidates], limit, choose, rng)]
    return pairs


def _with_margin(
    pairs: Sequence[Pair],
    tree: EvaluationTree,
    label: EnsembleLabel,
    config: RewardConfig,
    rewards: Rewards,
    skipped: Counter[str],
) -> list[Pair]:
    """The pairs with their reward parts and combined margin, without those whose margin is too low or not known."""
    kept = []
    for pair in pairs:
        weighed = rewards.of_pair(pair, tree)
        if weighed is None:
            skipped[f"{pair.level}:no_score"] += 1
        elif weighed.margin < config.min_margin:
            skipped[f"{pair.level}:low_margin"] += 1
        else:
            weighed.reward[label.source] = label.share
            kept.append(weighed)
    return kept
