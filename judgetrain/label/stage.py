"""Stages ``tree`` and ``label``: trees, labels, supervised examples and preference pairs (sections 4.3, 4.4)."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from judgetrain.artifacts.shards import DiskList, read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed, is_held_out
from judgetrain.data.cells import RowError
from judgetrain.data.config import SourceConfig
from judgetrain.data.duplicates import BenchmarkQueries, named_queries
from judgetrain.data.rows import RowReader
from judgetrain.data.sources import read
from judgetrain.engines.lazy_model import loaded_once, make_engine
from judgetrain.errors import ConfigError, NothingToLearnError, causes
from judgetrain.judges.config import TREE_READS
from judgetrain.judges.prompting.prompts import PromptSet, load_prompt_set, slots_of
from judgetrain.judges.trees.grow import Shape, grow
from judgetrain.judges.trees.schema import EvaluationTree, PrunedBranch, both_sides, prune, shard_of
from judgetrain.judges.views.tree_page import DIRECTORY, views, write_views
from judgetrain.label.config import LabelConfig
from judgetrain.label.examples import Pair, Prompter, leanings, sft_row
from judgetrain.label.external import external_labels
from judgetrain.label.labels import HINTS, Label, accepts, by_rating, each_in, ensemble_label, given_label
from judgetrain.label.pairs import Preferences, pair_builder
from judgetrain.label.rewards import Rewards, branch_rewards
from judgetrain.label.stages import CORRECTION, LabelSettings, TreeSettings, load_external_prompts
from judgetrain.label.worth import Worth, learn
from judgetrain.schema import Comparison

KEY = "label.corrections"
COLUMNS = ("response", "judgment", "corrected")


def correction_rows(
    source: SourceConfig, prompts: PromptSet, queries: BenchmarkQueries | None = None
) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Supervised examples of level ``correction``: the prompt that stage correct asks with, and the corrected response
    (DataError: a row without one of them; names file and line).

    Rows have a query (or messages) and the columns response, judgment and corrected; stage correct's own call the
    judgment evaluation. How many are left out, by reason, comes second: ``contaminated``, they hold one of a
    benchmark's ``queries``, and ``not_corrected``, their ``corrected`` is null.
    """
    reader = RowReader(replace(source, name=source.name or "corrections"), key=KEY)
    dropped = Counter[str]()

    def take(row: Any, number: int) -> list[dict[str, Any]]:
        dialogue = reader.dialogue(row, number)
        texts = {"judgment": row.get("evaluation")} | {name: row[name] for name in COLUMNS if name in row}
        corrected = texts.pop("corrected", "")
        contaminated = queries is not None and queries.matches(dialogue)
        if corrected is None or contaminated:
            dropped["not_corrected" if corrected is None else "contaminated"] += 1
            return []
        for name, text in {"response": None, **texts, "corrected": corrected}.items():
            if not isinstance(text, str) or not text.strip():
                raise RowError("missing_field", f"expected text in the columns {', '.join(COLUMNS)}: {name} has none")
        item = Comparison(dialogue.id, dialogue, texts["response"], corrected)
        return [sft_row(list(prompts.render("correction", slots_of(item) | texts)), corrected, "correction", item, [])]

    return [row for rows in read(source, KEY, take) for row in rows], dropped


class TrainingData:
    """Collects the examples, pairs and labels of trees.

    Args:
        prompter: renders the judge's prompts.
        config: how trees are labelled, and how much is taken from each.
        rewards: the branches' scores.
        seed: what is drawn for a tree depends on it and on the comparison's id.
        preferred: an external judge's preferences between critiques by comparison, where they choose the pairs.
        place: the directory of the temporary files that hold examples and pairs.
        worth: what criteria are worth over all trees, where that was learned.
        ranked: judgments of the two responses, one by one, are taken together or not at all.
    """

    def __init__(
        self,
        prompter: Prompter,
        config: LabelConfig | None = None,
        rewards: Rewards | None = None,
        seed: int = 0,
        preferred: Mapping[str, Preferences] | None = None,
        place: Path | None = None,
        worth: Worth | None = None,
        ranked: bool = False,
    ) -> None:
        self.prompter, self.config, self.rewards = prompter, config or LabelConfig(), rewards or Rewards()
        self.pair_builder, self.seed = pair_builder(prompter, self.config, self.rewards, preferred, worth), seed
        self.worth, self.ranked = worth, ranked
        self.sft: DiskList[dict[str, Any]] = DiskList(dict, dict, place)
        self.pairs: DiskList[Pair] = DiskList(vars, Pair.from_parts, place)
        self.labels: list[dict[str, Any]] = []
        self.divided: dict[str, int] = {}
        """How many comparisons give SFT examples and pairs, where no comparison gives both."""
        self.trees: Counter[str] = Counter()
        self.branches: Counter[str] = Counter()
        self._truth: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()

    def add(self, tree: EvaluationTree, given: Label | None = None) -> Label:
        """Prune and label one tree and take its examples and pairs; ``given`` stands in for the branches' label."""
        branches, ensemble = prune(tree), ensemble_label(tree, self.config)
        self._failures.update(tree.failures)
        label = given or self.rewards.break_tie(tree, self.worth.label(tree, ensemble) if self.worth else ensemble)
        known: dict[str, Any] = {
            "ensemble_verdict": ensemble.verdict,
            "truth": tree.comparison.label,
            "made": tree.comparison.made or "",
        }
        if tree.comparison.alone and (rating := tree.comparison.rating_a):  # no verdict on two responses
            known |= {"verdict": None, "truth": None, "rating": rating.score}
        self.labels.append({"comparison_id": tree.comparison.id, **label.to_row(), **known})
        self.trees[label.reason or f"label_{label.verdict}"] += 1
        for branch in branches.values():
            self.branches[self._pruning_reason(branch, label)] += 1
        if label.verdict is None:
            return label
        if tree.comparison.label is not None and (label.source != "given" or self.config.source == "given"):
            verdict = ensemble.verdict if label.source == "given" else label.verdict
            self._truth["right" if tree.comparison.label == verdict else "wrong" if verdict else "no_label"] += 1
        rng = random.Random(derive_seed(self.seed, tree.comparison.id))
        self.sft.extend(self.sft_examples(tree, branches, label, rng))
        self.pairs.extend(self.pair_builder.pairs(tree, label, rng))
        return label

    def _pruning_reason(self, branch: PrunedBranch, label: Label) -> str:
        """``kept``, or why a branch trains nothing: a constraint that it breaks, ``no_label`` or ``against_label``."""
        if not branch.kept or label.verdict is None:
            return "no_label" if branch.kept else branch.reason
        return "kept" if accepts(branch.judgment.verdict, label.verdict, self.config.rule) else "against_label"

    def sft_examples(
        self, tree: EvaluationTree, branches: Mapping[str, PrunedBranch], label: Label, rng: random.Random
    ) -> list[dict[str, Any]]:
        """Examples from the branches that satisfy both constraints and are in keeping with the label."""
        config, prompter, comparison = self.config, self.prompter, tree.comparison
        kept = [branch for branch in tree.judgments() if self._pruning_reason(branches[branch[2].id], label) == "kept"]
        if not kept:
            return []
        names, drawn = [both_sides(j.id) if self.ranked else j.id for _, _, j in kept], set[str]()
        for i in rng.sample(range(len(kept)), min(len(kept), config.max_sft_per_tree)):
            more = drawn | {names[i]}
            drawn = more if sum(map(more.__contains__, names)) <= max(config.max_sft_per_tree, 2) else drawn
        chosen = [each for each, name in zip(kept, names, strict=True) if name in drawn]
        rows = [prompter.judgment_row(comparison, c, g, j) for c, g, j in chosen if j.finish_reason == "stop"]
        guidelines = {g.id: (c, g) for c, g, _ in chosen if g.finish_reason == "stop"}
        rows += [prompter.guideline_row(comparison, c, g) for c, g in guidelines.values() if c.wrote(g)]
        if len(tree.criteria) == prompter.count and not tree.given:
            good = {c.id for c, _, j in kept if j.verdict == label.verdict and config.rule == "evidence"}
            leading = sorted(tree.criteria, key=lambda c: (c.id not in good, c.rank))  # the paper: as sampled
            leading = self.worth.ranked(tree) if self.worth else leading
            rows.append(prompter.criteria_row(comparison, leading))
        return rows

    def select_pairs(self) -> None:
        """Leave out repeated pairs and, where ``config.balance`` asks for it, those that unbalance the rest.

        With ``config.sft_share``, first the pairs of the comparisons that give SFT examples, and those examples of the
        others (the paper's table 6).
        """
        if self.config.sft_share is not None:
            self._divide(self.config.sft_share)
        self.pairs = self.pairs.only(self.pair_builder.selected(self.pairs, self.seed))

    def _divide(self, share: float) -> None:
        """Take SFT examples and preference pairs from disjoint comparisons: a seeded draw of all trees."""
        ids = [row["comparison_id"] for row in self.labels]
        number = max(1, round(share * len(ids)))
        taught = set(random.Random(derive_seed(self.seed, "sft_share")).sample(ids, min(number, len(ids))))
        self.divided = {"sft": len(taught), "pairs": len(ids) - len(taught)}
        self.sft = self.sft.only(i for i, row in enumerate(self.sft) if row["comparison_id"] in taught)
        self.pairs = self.pairs.only(i for i, pair in enumerate(self.pairs) if pair.comparison_id not in taught)

    def table(self) -> dict[str, dict[str, Any]]:
        """Kept and dropped, by rule; ``branches`` are counted by the first rule that they break."""
        return {
            "trees": dict(sorted(self.trees.items())),
            "branches": dict(sorted(self.branches.items())),
            "sft": dict(Counter(row["level"] for row in self.sft)),
            "pairs": dict(Counter(pair.level for pair in self.pairs)),
            "pairs_skipped": dict(sorted(self.pair_builder.skipped.items())),
            "pairs_lean_to": leanings(self.pairs),
            "ensemble_vs_given" if self.config.source == "given" else "label_vs_truth": dict(self._truth),
            **({"comparisons_for": self.divided} if self.divided else {}),
            **({"criteria_worth": {"explained": round(self.worth.explained, 3)}} if self.worth else {}),
        }

    def nothing_left(self) -> str:
        """Why there is nothing to train on: what most was lost for, and what helps."""
        said = f"no branch of {self.trees.total()} trees survived pruning and labelling"
        if self.divided:
            said += f" (label.sft_share takes SFT examples of {self.divided['sft']} of them)"
        lost = Counter({r: n for r, n in self.branches.items() if r != "no_label"})
        form = "teach the Initial judge longer, or enforce the judgments' form (tree.constrained=true)"
        judging = causes(self._failures, HINTS, f"look at the texts in trees-*.jsonl; {form}")
        if self.unlabelled.total() > self.trees.total() / 2:
            return f"{said}, no label: {causes(self.unlabelled, HINTS, judging)}"
        if lost["unreadable"] and lost["unreadable"] == max(lost.values()):
            return f"{said}, {lost['unreadable']} branches are unreadable: {judging}"
        return f"{said}, branches that were lost: {causes(lost, HINTS, 'grow more trees, or more branches')}"

    @property
    def unlabelled(self) -> Counter[str]:
        """Trees without a label, by reason."""
        return Counter({reason: n for reason, n in self.trees.items() if not reason.startswith("label_")})


def _drawn(trees: Path, count: int, seed: int) -> set[str]:
    """Return the ids of ``count`` comparisons whose own labels are used, drawn by the seed among those that have one.

    The first of a longer draw are those of a shorter one.
    """
    if not count:
        return set()
    comparisons = (EvaluationTree.from_row(row).comparison for row in read_rows(trees, "trees"))
    with_label = [comparison.id for comparison in comparisons if comparison.label is not None]
    random.Random(derive_seed(seed, "given")).shuffle(with_label)
    return set(with_label[:count])


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
    labelled = _drawn(inputs["tree"], config.given, settings.seed)
    if len(labelled) < config.given:
        raise ConfigError(f"label.given={config.given}: {len(labelled)} of the trees' comparisons have a label")

    def given(tree: EvaluationTree) -> Label | None:
        by_data = config.source == "given" or tree.comparison.alone or tree.comparison.id in labelled
        return given_label(tree, config) if by_data else labels.get(tree.comparison.id)

    worth = None
    if config.rule == "evidence" and not by_pair:
        trees = map(by_rating, map(EvaluationTree.from_row, read_rows(inputs["tree"], "trees")))
        with threadpool_limits(1):  # on matrices of this size two threads take three times the time of one
            worth = learn(trees, lambda tree: label.verdict if (label := given(tree)) else None)
    data = TrainingData(prompter, config, rewards, out.seed, preferred, out.directory, worth, bool(settings.ranking))
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
