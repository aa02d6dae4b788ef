"""The branching judge: k criteria, one branch each, in both orders (branching paper, section 4.5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.stage_run import ShardResult, derive_seed
from judgetrain.data.rubrics import given_rubric, read_rubric
from judgetrain.engines.base import UNANSWERED, Engine
from judgetrain.errors import ConfigError
from judgetrain.judges.base import Cost, Judge, Prediction, Reason, Score, in_own_order
from judgetrain.judges.config import JudgeOptions, check_branches, criteria_of
from judgetrain.judges.kinds.aggregation import Rule, margin_of, margins_of, next_wave, stopped, used, verdict
from judgetrain.judges.kinds.kind import Arguments, Ask, Forms, Kind, Outcome, Parts, Use
from judgetrain.judges.method import BRANCHING, TARGETS, Method
from judgetrain.judges.parts import parts_of
from judgetrain.judges.prompting.prompts import FILE, PromptSet, check_reads, load_prompt_set, prompt_path
from judgetrain.judges.settings import ModelSettings, check_criteria, check_model, no_judge, too_long_hint
from judgetrain.judges.trees.grow import Shape, grow
from judgetrain.judges.trees.schema import OTHER, CriterionNode, EvaluationTree, cost_of, shard_of, trees_of
from judgetrain.rubrics import Rubric, weighted
from judgetrain.schema import ORDERS, RESPONSES, Candidates, Comparison, Order

if TYPE_CHECKING:
    from judgetrain.artifacts.fingerprint import ContentHashes
    from judgetrain.judges.factory import Models


class BranchingJudge(Judge):
    """Compares two responses by the first k criteria that the model names.

    Each criterion gets one guideline and, in each order, one judgment. ``aggregation`` ``vote``: the side that more
    branches prefer, a tie when equally many do. ``mean``: the side with the larger weighted mean of scores, where a
    criterion of the judge's own weighs a third of the one before. Asked to read one response at a time, each criterion
    gets a judgment of either.

    Asked greedily, branch i follows the i-th criterion of the most likely list, with the most likely guideline and
    judgment: branches differ by their criteria alone.

    Args:
        engine: generates the text.
        prompts: the prompt set the model was trained with.
        options: how it is asked.
        name: the method's name in predictions.
    """

    goes_by_criteria = True

    def __init__(
        self, engine: Engine, prompts: PromptSet, options: JudgeOptions | None = None, name: str = "judge"
    ) -> None:
        self.engine, self.prompts, self.options, self.name = engine, prompts, options or JudgeOptions(), name
        check_reads(prompts, self.options.orders, "judge.reads=one")

    @classmethod
    def from_pretrained(cls, path: str | Path, branches: int = 1, **how: Any) -> BranchingJudge:
        """A judge from a directory that training wrote; it carries its prompt set and how it is asked (ConfigError: the
        directory holds no judge, no such setting, a value out of range, or more branches than the judge has criteria).

        ``how``: as of :func:`~judgetrain.judges.factory.load_judge`.
        """
        method = Method.parse(str(Path(path).expanduser().absolute()))
        call = Arguments(
            branches=branches,
            engine=how.pop("engine", None),
            criteria=how.pop("criteria", None),
            prompts=how.pop("prompts", None),
            changes=how,
        )
        options, parts = parts_of(method, call)
        prompt_set = parts.prompts()
        return cls(parts.engine(), prompt_set, options, method.name)

    def compare_all(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        trees, others = self.ask(comparisons, seed, numbers=[c.number for c in comparisons])
        return self.predictions(trees, self.options.branches, others)

    def ask(
        self,
        comparisons: Sequence[Comparison],
        seed: int,
        branches: int | None = None,
        numbers: Sequence[int] | None = None,
    ) -> tuple[list[EvaluationTree], list[EvaluationTree]]:
        """The trees of both orders and none, or where plans are independent those of order AB and those of order BA.

        ``numbers`` decide the trees' random numbers; None: those of their places in the call.
        """
        if self.options.plan == "shared" or self.options.reads == "one":
            return self.sample(comparisons, seed, branches, self.options.orders, numbers), []
        first, second = (
            self.sample(comparisons, derive_seed(seed, order), branches, (order,), numbers) for order in ORDERS
        )
        return first, second

    def sample(
        self,
        comparisons: Sequence[Comparison],
        seed: int,
        branches: int | None = None,
        orders: tuple[Order, ...] = ORDERS,
        numbers: Sequence[int] | None = None,
        options: JudgeOptions | None = None,
    ) -> list[EvaluationTree]:
        """Grow one branch for each of the first ``branches`` criteria and each given one, in all ``orders``
        (ConfigError: more branches than the judge names criteria, or none).

        The list is written only as far as it is used, so that what the first k < ``branches`` branches say and
        cost is what a run with k branches would have said and cost. With ``early_stop`` only what the verdict needs
        is grown; that is also enough for every smaller number of branches. ``options``: others than the judge's own.
        """
        options = options or self.options
        steps = options.steps
        wanted = options.branches if branches is None else branches
        check_branches(wanted, steps.criteria)
        shape = Shape(count=steps.criteria, criteria=wanted, orders=orders)
        steer = (lambda tree: next_wave(tree, wanted, options.rule, orders)) if options.stops_early else None
        how = self.engine, self.prompts
        shown = [c if c.rubric else replace(c, rubric=options.rubric) for c in comparisons]
        trees = grow(shown, *how, shape, steps, seed, steer=steer, numbers=numbers)
        places = range(len(trees)) if numbers is None else numbers
        for attempt in range(1, options.retries + 1):
            lost = [i for i, tree in enumerate(trees) if not tree.can_be_read(orders)]
            items, anew = [shown[i] for i in lost], replace(shape, attempt=attempt)
            other, kept = derive_seed(seed, "again", attempt), [places[i] for i in lost]
            again = grow(items, *how, anew, steps.sampled, other, steer=steer, numbers=kept)
            for i, tree in zip(lost, again, strict=True):
                trees[i] = replace(tree, earlier=(*trees[i].earlier, replace(trees[i], earlier=())))
        return [replace(tree, comparison=given) for tree, given in zip(trees, comparisons, strict=True)]

    def predictions(
        self, trees: Sequence[EvaluationTree], branches: int, others: Sequence[EvaluationTree] = ()
    ) -> list[Prediction]:
        """What the first ``branches`` criteria say of the trees, and the ``others``, that :meth:`ask` gave."""
        second = others or repeat(None, len(trees))
        pairs = zip(trees, second, strict=True)
        return [predict(tree, branches, self.options, self.name, other) for tree, other in pairs]

    def score_all(self, groups: Sequence[Candidates], seed: int = 0) -> list[list[Score]]:
        """How good each response of each group is: lists of the groups' lengths, in their order (ConfigError: the judge
        reads two responses at a time).

        The responses of a group share a list of criteria and its guidelines, written for the first of them, or the
        group's rubric; each costs one judgment a criterion. One without text is worth 0, and is not asked about.
        """
        if self.options.reads != "one":
            raise ConfigError(f"{self.name} reads two responses at a time: ask it with reads='one' (judge.reads=one)")
        whole = replace(self.options, early_stop=False)
        closed = replace(whole, steps=replace(whole.steps, rubric="only"))
        alone = [
            [Comparison(g.id, g.dialogue, text, "", rubric=g.rubric) for text in g.responses if text.strip()]
            for g in groups
        ]
        first = iter(self._alone([each[0] for each in alone if each], seed, whole))
        trees = [[next(first)] if each else [] for each in alone]
        rest = [
            (found, replace(one, rubric=rubric))
            for each, found in zip(alone, trees, strict=True)
            if found and (rubric := rubric_of(found[0], whole.branches))  # else no criteria came
            for one in each[1:]
        ]
        for (found, _), tree in zip(rest, self._alone([one for _, one in rest], seed, closed), strict=True):
            found.append(tree)
        return [list(_scores(group, found, whole.branches)) for group, found in zip(groups, trees, strict=True)]

    def _alone(self, items: Sequence[Comparison], seed: int, options: JudgeOptions) -> list[EvaluationTree]:
        return self.sample(items, seed, orders=RESPONSES[:1], numbers=[c.number for c in items], options=options)

    def close(self) -> None:
        self.engine.close()


def predict(
    tree: EvaluationTree, branches: int, options: JudgeOptions, method: str, other: EvaluationTree | None = None
) -> Prediction:
    """One prediction from the first ``branches`` criteria of a tree, or from as many of them as settle it.

    ``options``: how the judge was asked. ``other``: the tree of order BA where each order has its own plan; ``tree`` is
    then that of order AB.
    """
    both = options.orders
    rule = Rule(True, options.tie) if tree.given else options.rule  # the weights of a rubric count
    parts: list[tuple[EvaluationTree, Sequence[Order]]] = [(tree, both)]
    if other is not None:
        parts = [(tree, ORDERS[:1]), (other, ORDERS[1:])]
    trees = [stopped(t, branches, rule, orders) if options.stops_early else t for t, orders in parts]
    found = [used(tree, branches) for tree in trees]
    criteria = [c for each in found for c in each]
    nodes = [j for c in criteria for j in c.judgments]
    failures = Counter(j.failure for j in nodes if j.failure)
    failures.update(f"guideline:{r}" for c in criteria for g in c.guidelines if (r := g.failure))
    failures.update(_nothing(tree) for tree, each in zip(trees, found, strict=True) if not each)
    verdicts = [verdict(found[i], both[i], rule) for i in (0, -1)]
    margin, summed = _margin(criteria, both), None
    if options.fitted:
        margin = options.fitted.logit(margins_of(*found)) if None not in verdicts else None
        summed = options.fitted.verdict(margin)
    return Prediction.of(
        tree.comparison,
        method,
        *verdicts,
        branches=branches,
        margin=margin,
        summed=summed,
        # A plan that both orders share is paid once, half by each of them.
        cost=sum(map(cost_of, trees, found), Cost()) * (1.0 if options.reads == "one" else 1 / len(ORDERS)),
        judgments=len(nodes),
        failures=dict(failures),
        reasons=tuple(reasons_of(criteria)),
        asked=options.shown,
        plan=None if options.reads == "one" else "shared" if other is None else "independent",
        asked_again=sum(len(tree.earlier) for tree in trees),
        score_a=score_of(criteria, "A"),
        score_b=score_of(criteria, "B"),
    )


def _margin(criteria: Sequence[CriterionNode], orders: Sequence[Order]) -> float | None:
    found = [
        (abs(c.criterion.weight), margin)
        for order in orders
        for c in criteria
        for j in c.judgments
        if j.order == order and (margin := margin_of(c, j)) is not None
    ]
    return sum(weight * margin for weight, margin in found) / sum(weight for weight, _ in found) if found else None


def score_of(criteria: Sequence[CriterionNode], side: Order) -> float | None:
    """How good response ``A`` or ``B`` is, 0 to 1: the weighted mean over the criteria of its mean score on each.

    None where a given criterion could not be read: the rest would be another rubric, under which another response, or
    one that hides what it is asked for, may look better.
    """
    shares: list[tuple[float, float]] = []
    for criterion in criteria:
        nodes = [j for j in criterion.judgments if side in j.order]
        if scores := [s for j in nodes if (s := j.score_a if side == "A" else j.score_b) is not None]:
            share = criterion.criterion.share(sum(scores) / len(scores))
            shares.append((criterion.criterion.weight, share))
        elif criterion.criterion.source == "given":
            return None
    return weighted(shares)


def _nothing(tree: EvaluationTree) -> str:
    """Why a tree has no criteria: the engine gave no list, or none was in it."""
    unanswered = {f"criteria:{reason}" for reason in UNANSWERED}
    return next((reason for reason in tree.failures if reason in unanswered), "criteria:none")


def reasons_of(criteria: Sequence[CriterionNode]) -> Iterator[Reason]:
    """The branches by order and then by rank."""
    for order in (*ORDERS, *RESPONSES):
        for criterion in criteria:
            told = criterion.criterion
            for guideline in criterion.guidelines:
                for node in (j for j in guideline.judgments if j.order == order):
                    yield Reason(
                        order=order,
                        criterion=criterion.text,
                        guideline=guideline.text,
                        text=in_own_order(node.text, order),
                        **{name: getattr(node, name) for name in ("score_a", "score_b", "verdict", "failure")},
                        **{name: getattr(told, name) for name in ("name", "weight", "source")},
                    )


def rubric_of(tree: EvaluationTree, branches: int) -> Rubric | None:
    """The criteria that a tree was judged by, each with its first usable guideline; None where there are none."""
    # One whose guideline failed is not asked for again: later responses would be judged by another list.
    written = [(c.criterion, g.text) for c in used(tree, branches) for g in c.guidelines if g.failure is None]
    found = {c: replace(c, guideline=c.guideline or text) for c, text in reversed(written)}
    return Rubric(tuple(found.values())[::-1]) if found else None


def _scores(group: Candidates, trees: Sequence[EvaluationTree], branches: int) -> Iterator[Score]:
    """The scores of a group's responses by the trees of those that have a text, the first of which has the plan."""
    plan = used(trees[0], branches) if trees else ()
    unplanned = Counter(f"guideline:{r}" for c in plan for g in c.guidelines if (r := g.failure))
    whole = not any(c.given and all(g.failure for g in c.guidelines) for c in plan)  # else it is another rubric
    judged = sum((Cost(j.prompt_tokens, j.generated_tokens, 1) for c in plan for j in c.judgments), Cost())
    left, number = iter(trees), sum(bool(response.strip()) for response in group.responses)
    shared = (cost_of(trees[0]) + judged * -1.0) * (1 / number) if trees else Cost()
    for response in group.responses:
        if not response.strip():
            yield Score(value=0.0)
        elif (tree := next(left, None)) is None:  # nothing came to judge by
            yield Score(value=None, failures=dict(trees[0].failures), cost=shared)
        else:
            criteria = used(tree, branches)
            failures = unplanned + Counter(j.failure for c in criteria for j in c.judgments if j.failure)
            failures.update({} if criteria else tree.failures)
            yield Score(
                value=score_of(criteria, "A") if whole else None,
                reasons=tuple(reasons_of(criteria)),
                failures=dict(failures),
                cost=shared + (judged if tree is trees[0] else cost_of(tree)),
            )


def check(settings: ModelSettings, method: Method, use: Use) -> None:
    """Refuse a model that cannot be asked, and more branches than the judge names criteria, or none."""
    check_model(settings, method, use.key)
    criteria = settings.criteria or 0
    if use.branches is not None:
        if method.most == 0:
            raise ConfigError(f"{use.key}: {method.text!r}: a judge has at least 1 branch")
        check_criteria(criteria, method, max(method.branches(use.branches)), "evaluate.branches")
        return
    most = 1 if method.most is None else method.most
    if most < 1 or (most > criteria and not method.is_directory):
        raise ConfigError(f"{use.key}={method.text!r}: {most} branches; allowed are 1 to tree.criteria={criteria}")
    check_criteria(criteria, method, most, use.key)


def options(models: Models, method: Method, branches: int) -> JudgeOptions:
    """Return how the judge is asked in a run: as ``judge.*`` and the options behind its name say.

    A trained judge is asked for as many criteria as it was trained on.
    """
    settings = models.settings
    assert settings.criteria is not None
    directory = models.directory(method)
    criteria = settings.criteria if directory is None else criteria_of(directory)
    more: dict[str, Any] = {"plan": method.changes.get("plan", "shared")}
    if settings.whole_trees:
        more["early_stop"] = False
    if settings.rubric and not settings.own_criteria:
        more["rubric"] = read_rubric(settings.rubric)
    return JudgeOptions.of(models.asking(method), criteria, directory, branches=branches, **more)


def arguments(method: Method, directory: Path | None, call: Arguments) -> JudgeOptions:
    """Return how the judge is asked by a caller in Python: as its ``judge.json`` says, but for what the caller sets."""
    branches = call.branches if method.most is None else method.most
    changes = {**method.changes, **call.changes}
    return JudgeOptions.of_directory(directory, changes, branches=branches, rubric=given_rubric(call.criteria))


def prompts(method: Method, options: JudgeOptions, directory: Path | None, others: str | Path) -> PromptSet:
    """Return the prompts that the judge was trained with, or of a model that is no trained judge ``others``."""
    if directory is None:
        return load_prompt_set(others)
    if not (directory / FILE).is_file():
        raise ConfigError(f"{method.text}: {no_judge(directory)}")
    return load_prompt_set(directory / FILE)


def build(method: Method, options: JudgeOptions, parts: Parts) -> Judge:
    """Return the judge."""
    prompt_set = parts.prompts()
    return BranchingJudge(parts.engine(), prompt_set, options, method.name)


def identity(models: Models, method: Method, hashes: ContentHashes, branches: int) -> dict[str, Any]:
    """Return what the judge's trees depend on besides the model."""
    asking = models.asking(method)
    if not asking.early_stop:
        # Aggregation and tie decide what is asked only where branches stop early.
        asking = asking.changed(aggregation="vote", tie=0.0)
    prompts = None
    if method.target not in models.inputs and not method.is_directory:
        # A trained judge brings its own prompts; any other model is asked by the run's.
        prompts = hashes.of(prompt_path(models.settings.prompts or ""))
    return {
        "method": "+".join(method.options) if method.is_directory else method.name,
        "branches": branches,
        "asking": asking,
        "criteria": models.settings.criteria,
        "prompts": prompts,
    }


def grow_branches(judge: Any, comparisons: Sequence[Comparison], seed: int, branches: int) -> ShardResult:
    """Return the trees of comparisons as a finished shard, grown with so many branches."""
    trees, others = judge.ask(comparisons, seed, branches)
    shard = shard_of([*trees, *others])
    rows = [*shard.rows[: len(trees)]]
    for row, other in zip(rows, shard.rows[len(trees) :], strict=bool(others)):
        row[OTHER] = other
    return replace(shard, rows=rows, counts_in=len(rows))


def read_trees(
    rows: Sequence[Mapping[str, Any]],
    comparisons: Sequence[Comparison],
    options: JudgeOptions,
    name: str,
    branches: Sequence[int],
) -> Outcome:
    """Return the predictions for each number of branches, read off trees that were grown with the most."""
    trees = [trees_on(row, comparison) for row, comparison in zip(rows, comparisons, strict=True)]
    predictions = {k: [predict(tree, k, options, name, other) for tree, other in trees] for k in branches}
    failures: Counter[str] = Counter()
    for prediction in predictions[max(predictions)]:
        failures.update(prediction.failures)
    return Outcome(predictions=predictions, trees=trees, message=too_long_hint(failures) or "", lasting=True)


def trees_on(row: Mapping[str, Any], comparison: Comparison) -> tuple[EvaluationTree, EvaluationTree | None]:
    """Return the tree of both orders and None, or the trees of order AB and of order BA, of a shard's row.

    Both are about the benchmark's ``comparison``: trees of an earlier evaluation may carry a label that has been
    corrected since.
    """
    first, *others = (replace(tree, comparison=comparison) for tree in trees_of(row))
    return first, others[0] if others else None


def scores(settings: ModelSettings, method: Method) -> bool:
    """Return whether the judge is asked to read one response at a time, which gives each a score."""
    return settings.judge is not None and settings.judge.changed(**method.asking).reads == "one"


KIND = Kind(
    name=BRANCHING,
    forms=Forms(
        evaluate=f"{', '.join(TARGETS)}, a judge's directory (./NAME)",
        unlabelled=f"{', '.join(TARGETS)}, a judge's directory (./NAME) or its id on the Hub",
        python="a judge's directory, its id on the Hub (OWNER/NAME), external (whatever engine= is)",
    ),
    model=True,
    trained=True,
    criteria=True,
    settings=("judge", "criteria", "rubric", "prompts"),
    check=check,
    options=options,
    arguments=arguments,
    prompts=prompts,
    build=build,
    identity=identity,
    ask=Ask(rows="trees", process=grow_branches, read=read_trees, progress=", both orders, up to {branches} branches"),
    scores=scores,
)
"""Judges that branch, by the model that they ask."""
