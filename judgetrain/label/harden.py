"""Failed attacks as training data (``label.harden``): the judge that grew the trees judges attacked responses anew.

A criterion and guideline of a tree are judged again with the worse response under an attack. Where the verdict is not
what it must be, the judgment is the rejected side of a pair and what the judge should have said is the chosen one:
under an edit, what it said before; of an answer without content, that it has nothing of the criterion, beside what it
said before of the other response. The chosen side is an SFT example too, and the attacked comparison, whose label is
known, is one for stage rl.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed
from judgetrain.data.attacks.attack import Attack, worse_first
from judgetrain.data.attacks.loading import load_attacks
from judgetrain.engines.base import UNANSWERED
from judgetrain.engines.once import loaded_once
from judgetrain.engines.registry import make_engine
from judgetrain.judges.base import verdict_of
from judgetrain.judges.method import judge_among
from judgetrain.judges.prompting.numbers import LOWEST
from judgetrain.judges.prompting.parsing import Written, render_judgment, written_judgment
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.grow import rejudge
from judgetrain.judges.trees.prune import prune
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, JudgmentNode, shard_of
from judgetrain.label.config import LabelConfig
from judgetrain.label.examples import Pair, Prompter, sft_row
from judgetrain.label.labels import accepts
from judgetrain.label.stages import LabelSettings
from judgetrain.schema import ORDERS, Comparison, Order, Verdict

ROWS = "hardened"
"""The shards that hold attacked trees."""
COMPARED = {"A": "Response A is better.", "B": "Response B is better.", "tie": "Both are equal."}
NOTHING = "it has no content that this could be found in."
"""What a judge that does not say the same each time says of a comparison, and of an answer without content."""


@dataclass(frozen=True)
class Attempt:
    """An attack on a comparison; ``judged`` is what is judged anew, in the tree's order, and no more of the tree."""

    attack: Attack
    comparison: Comparison
    judged: EvaluationTree


@dataclass
class Habits:
    """How the judge words what it says often: of a criterion that a response lacks, and of how two scores compare."""

    lacking: dict[str, Counter[str]] = field(default_factory=dict)
    compared: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, tree: EvaluationTree) -> None:
        """Take in a tree's judgments that are written in the output contract."""
        for criterion, _, node in tree.judgments():
            if (said := written_judgment(node.text)) is None:
                continue
            self.compared.setdefault(str(verdict_of(said.first - said.second)), Counter())[said.comparison] += 1
            for score, analysis in ((said.first, said.analysis_a), (said.second, said.analysis_b)):
                if score == LOWEST:
                    self.lacking.setdefault(criterion.text, Counter())[analysis] += 1

    def without_content(self, criterion: str, said: Written, first: bool) -> str:
        """The judgment, but of an answer without content in the place shown first or second."""
        nothing = _usual(self.lacking.get(criterion), NOTHING)
        score_a, analysis_a = (LOWEST, nothing) if first else (said.first, said.analysis_a)
        score_b, analysis_b = (said.second, said.analysis_b) if first else (LOWEST, nothing)
        verdict = str(verdict_of(score_a - score_b))
        compared = _usual(self.compared.get(verdict), COMPARED[verdict])
        return render_judgment(score_a, score_b, analysis_a, analysis_b, compared)


def _usual(said: Counter[str] | None, otherwise: str) -> str:
    """What was said most often, if more than once."""
    ((text, times),) = said.most_common(1) if said else (("", 0),)
    return text if times > 1 else otherwise


@dataclass
class Hardened:
    """What failed attacks teach: SFT rows, pairs, and labelled comparisons for stage rl; ``counts`` by attack."""

    sft: list[dict[str, Any]] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    comparisons: list[dict[str, Any]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def hardened(
    settings: LabelSettings,
    inputs: Mapping[str, Path],
    labels: Mapping[str, Verdict | None],
    prompter: Prompter,
    out: StageRun,
) -> Hardened:
    """What the judge that grew the trees gets wrong under attack; its attacked judgments are kept in shards.

    ``labels`` of the comparisons, by id: those that are no A or B have no worse response, and are not attacked.
    """
    config, asking, engine_config = settings.label, settings.tree, settings.engine
    assert asking is not None and engine_config is not None
    attacks = [a for a in load_attacks(config.harden_wording, config.harden, "label.harden") if _teaches(a)]
    attempts, habits = list[Attempt](), Habits()
    for tree in map(EvaluationTree.from_row, read_rows(inputs["tree"], "trees")):
        habits.add(tree)
        attempts += attempts_on(tree, labels.get(tree.comparison.id), attacks, config, out.seed)
    judge = judge_among(inputs)
    name, model, greedy = judge.parent.name, judge / "model", replace(asking.judgment_sampling, temperature=0.0)
    prompts, asked = load_prompt_set(model / "prompts.yaml"), replace(asking, judgment_sampling=greedy)

    def process(index: int, items: Sequence[EvaluationTree]) -> ShardResult:
        found = shard_of(rejudge(items, engine(), prompts, asked, out.shard_seed(index)))
        return replace(found, counts_in=0, counts_out=0, dropped={})  # they are no items of this stage

    size, spread = asking.shard_size * 4, not engine_config.paid
    with loaded_once(lambda: make_engine(engine_config, model_path=str(model), name=name)) as engine:
        trees = [attempt.judged for attempt in attempts]
        out.sharded(ROWS, trees, size, process, "attacked comparisons", engine, spread=spread)
    result = Hardened()
    for attempt, row in zip(attempts, read_rows(out.directory, ROWS), strict=True):
        _learn(attempt, EvaluationTree.from_row(row), habits, prompter, labels, result)
    return result


def _teaches(attack: Attack) -> bool:
    """Whether it changes a response: lists and guidelines, which an attack on the query concerns, are not asked for."""
    return attack.kind in ("edit", "empty", "forgery") and attack.place == "response" and attack.how != "swap"


def attempts_on(
    tree: EvaluationTree, label: Verdict | None, attacks: Sequence[Attack], config: LabelConfig, seed: int
) -> Iterator[Attempt]:
    """Up to ``label.harden_attempts`` attacks on a tree's worse response, each by a criterion of its own draw.

    Drawn are criteria whose judgments survive pruning and are in keeping with the label: what they said is what is to
    stay. Those that decide and those that see no difference, which are many more, take turns.
    """
    if label not in ("A", "B"):
        return
    plain = worse_first(replace(tree.comparison, label=label))
    branches = prune(tree)
    sound = [c for c in tree.criteria if _sound(c, label, config) and all(branches[j.id].kept for j in c.judgments)]
    decide = [c for c in sound if any(j.verdict == label for j in c.judgments)]
    pools = [pool or sound for pool in (decide, [c for c in sound if c not in decide])]
    rng = random.Random(derive_seed(seed, "harden", tree.comparison.id))
    drawn = rng.sample(list(attacks), min(len(attacks), config.harden_attempts)) if sound else []
    for attack, pool in zip(drawn, itertools.cycle(pools), strict=False):
        attacked, criterion = attack.into(plain), rng.choice(pool)
        if attacked is not None:
            shown = attacked if label == "B" else attacked.swapped()
            asked = (replace(criterion, guidelines=criterion.guidelines[:1]),)
            judged = replace(tree, comparison=shown, criteria=asked, failures={}, earlier=())
            yield Attempt(attack, tree.comparison, judged)


def _sound(criterion: CriterionNode, label: Verdict, config: LabelConfig) -> bool:
    first = criterion.guidelines[0].judgments if criterion.guidelines else ()
    return {j.order for j in first} == set(ORDERS) and all(accepts(j.verdict, label, config.ties) for j in first)


def _learn(
    attempt: Attempt,
    judged: EvaluationTree,
    habits: Habits,
    prompter: Prompter,
    labels: Mapping[str, Verdict | None],
    result: Hardened,
) -> None:
    """Add what an attempt teaches, if the judge failed in an order."""
    name, failed = attempt.attack.name, False
    before = {j.order: j for c in attempt.judged.criteria for g in c.guidelines for j in reversed(g.judgments)}
    label = labels[attempt.comparison.id]
    for criterion, guideline, node in judged.judgments():
        if node.finish_reason in UNANSWERED or before[node.order].finish_reason != "stop":
            result.counts["not_whole"] += 1
            continue
        result.counts[f"{name}:asked"] += 1
        chosen = _should_say(attempt, before[node.order], criterion.text, habits, labels)
        if chosen is None:
            result.counts["not_in_the_contract"] += 1
            continue
        text, verdict = chosen
        if node.verdict in (verdict, label):  # an attacked response that is worse, and now said to be, teaches nothing
            continue
        failed = True
        result.counts[f"{name}:failed"] += 1
        prompt = prompter.judgment(judged.comparison, criterion.text, guideline.text, node)
        id_of = attempt.comparison.id
        result.sft.append(sft_row(prompt, text, "judgment", attempt.comparison, [before[node.order].id]))
        result.pairs.append(
            Pair(
                prompt=prompt,
                chosen=text,
                rejected=node.text,
                level="judgment",
                margin=1.0,
                comparison_id=id_of,
                chosen_nodes=(before[node.order].id,),
                rejected_nodes=(f"{node.id}+{name}",),
                chosen_verdict=verdict,
                made=f"harden: {name}",
            )
        )
    if failed:
        told = replace(judged.comparison, label=None)
        row = {"of": attempt.comparison.id, "verdict": label, "attack": name}
        result.comparisons.append(row | {"comparison": told.to_row()})


def _should_say(
    attempt: Attempt, before: JudgmentNode, criterion: str, habits: Habits, labels: Mapping[str, Verdict | None]
) -> tuple[str, Verdict | None] | None:
    """What the judge should say of an attacked response, and the verdict in the comparison's own order.

    None where what it said before is not in the output contract, so that nothing can be put in its place.
    """
    if attempt.attack.kind != "empty":
        return before.text, before.verdict
    said = written_judgment(before.text)
    if said is None:
        return None
    worse_is_a = labels[attempt.comparison.id] == "B"
    shown_first: Order = "AB" if worse_is_a else "BA"
    text = habits.without_content(criterion, said, first=before.order == shown_first)
    other = before.score_b if worse_is_a else before.score_a
    assert other is not None  # what survives pruning was read
    margin = LOWEST - other if worse_is_a else other - LOWEST
    return text, verdict_of(margin, before.tie)
