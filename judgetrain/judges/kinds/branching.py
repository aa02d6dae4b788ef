"""The branching judge: k criteria, one branch each, in both orders (branching paper, section 4.5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.amounts import amount
from judgetrain.artifacts.stage_run import ShardResult, derive_seed
from judgetrain.data.rubrics import given_rubric, read_rubric
from judgetrain.engines.base import Engine, no_beginnings
from judgetrain.errors import ConfigError
from judgetrain.judges.base import Judge
from judgetrain.judges.kinds.aggregation import Rule, next_wave
from judgetrain.judges.kinds.kind import Arguments, Ask, Forms, Kind, KindResults, Parts, Setup, Target, Use
from judgetrain.judges.kinds.tree_predictions import predict
from judgetrain.judges.kinds.tree_scores import items_of, rubric_of, scores_of
from judgetrain.judges.method import BRANCHING, TARGETS, Method
from judgetrain.judges.options import JudgeOptions, model_mark
from judgetrain.judges.parts import parts_of
from judgetrain.judges.predictions import Prediction, Score
from judgetrain.judges.prompting.prompts import FILE, PromptSet, check_reads, load_prompt_set, prompt_path
from judgetrain.judges.saved import criteria_of
from judgetrain.judges.settings import ModelSettings, check_criteria, check_model, no_judge, unread_hint
from judgetrain.judges.trees.grow import Shape, Steer, TreeModel, beginning_of, grow
from judgetrain.judges.trees.schema import OTHER, EvaluationTree, Wave, shard_of, trees_of
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
        self.engine = engine
        self.prompts = prompts
        self.options = options or JudgeOptions()
        self.name = name
        # Before anything is asked: the prompt set may have no step for single responses.
        check_reads(prompts, self.options.orders, f"{self.options.prefix}reads=one")

    @classmethod
    def from_pretrained(cls, path: str | Path, branches: int = 1, **how: Any) -> BranchingJudge:
        """Return the judge of a directory that training wrote, with its prompt set and its settings.

        Args:
            path: the directory.
            branches: how many branches the judge has.
            how: the other arguments of :func:`~judgetrain.judges.factory.load_judge`.

        Raises:
            ConfigError: the directory holds no judge, no such setting, a value out of range, or more branches than the
                judge names criteria.
        """
        # An absolute path, since a name without a slash would be taken for a kind of judge.
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

    def __repr__(self) -> str:
        options = self.options
        criteria = f"{options.branches} of its criteria"
        if options.rubric is not None:
            criteria = f"given {amount(len(options.rubric.criteria), 'criterion')}"
        answers = "writes reasons" if options.reasons else "gives scores alone"
        return f"<{type(self).__name__} {self.name}: {criteria}, reads {options.reads} at a time, {answers}>"

    @property
    def scores_alone(self) -> bool:
        """Return whether the judge reads one response, in a form and by a model that allow it."""
        try:
            self.writing(False)
        except ConfigError:
            return False
        return True

    def writing(self, reasons: bool) -> Judge:
        """Return a judge with the same model, criteria and settings that writes its reasons or gives scores alone.

        Raises:
            ConfigError: it reads two responses, its scores are parsed or stand behind the reasons, or its model cannot
                go on from the beginning of a reply.
        """
        options = replace(self.options, reasons=reasons)
        if not reasons:
            # Read for its errors alone.
            beginning_of(self.prompts, "score")
            if not self.engine.continues:
                raise ConfigError(f"reasons=false: {no_beginnings(self.engine.name)}")
        return BranchingJudge(self.engine, self.prompts, options, self.name)

    def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        """Return a prediction for each comparison."""
        trees, others = self.ask(comparisons, seed, numbers=[c.number for c in comparisons])
        return self.predictions(trees, self.options.branches, others)

    def ask(
        self,
        comparisons: Sequence[Comparison],
        seed: int,
        branches: int | None = None,
        numbers: Sequence[int] | None = None,
    ) -> tuple[list[EvaluationTree], list[EvaluationTree]]:
        """Return the trees of both orders and an empty list, or those of order AB and those of order BA.

        The latter is so where each order has a plan of its own.

        Args:
            comparisons: what to judge.
            seed: of what is sampled.
            branches: how many to grow; None: the judge's own number.
            numbers: what decides each tree's random numbers, by comparison; None: its place in the call.
        """
        options = self.options
        if branches is not None:
            options = replace(options, branches=branches)
        # Responses that are judged by themselves have no order that could have a plan of its own.
        if options.plan == "shared" or options.reads == "one":
            return self.sample(comparisons, seed, options.orders, numbers, options), []

        # Each order has a seed of its own: with one seed sampled plans would be the same list twice.
        first, second = ORDERS
        return (
            self.sample(comparisons, derive_seed(seed, first), (first,), numbers, options),
            self.sample(comparisons, derive_seed(seed, second), (second,), numbers, options),
        )

    def sample(
        self,
        comparisons: Sequence[Comparison],
        seed: int,
        orders: tuple[Order, ...] = ORDERS,
        numbers: Sequence[int] | None = None,
        options: JudgeOptions | None = None,
    ) -> list[EvaluationTree]:
        """Return a tree per comparison, with a branch for each of the judge's first criteria and each given one.

        The list of criteria is written only as far as it is used, so that the first k < ``branches`` branches are and
        cost what a run with k branches would have made of them. With ``early_stop`` only what the verdict needs is
        grown; that is also enough for every smaller number of branches.

        Args:
            comparisons: what to judge.
            seed: of what is sampled.
            orders: the orders in which each criterion is judged.
            numbers: what decides each tree's random numbers, by comparison; None: its place in the call.
            options: how to ask, and how many criteria of the judge's own list to grow; None: the judge's own options.
        """
        options = options or self.options
        if numbers is None:
            numbers = range(len(comparisons))
        steer = None
        if options.stops_early:
            steer = _until_settled(options.branches, options.rule, orders)
        shape = Shape(count=options.steps.criteria, criteria=options.branches, orders=orders, steer=steer)
        judged = [comparison.with_rubric(options.rubric) for comparison in comparisons]
        model = TreeModel(self.engine, self.prompts, options.steps, options.reasons)
        trees = grow(judged, model, shape, seed, numbers)

        # Sampled even where the judge is greedy, which would repeat the unreadable text.
        sampled = replace(model, asking=options.steps.sampled)
        for attempt in range(1, options.retries + 1):
            unreadable = [place for place, tree in enumerate(trees) if not tree.can_be_read(orders)]
            if not unreadable:
                break
            regrown = grow(
                [judged[place] for place in unreadable],
                replace(sampled, unreadable_before=attempt),
                shape,
                derive_seed(seed, "again", attempt),
                # A tree keeps its number, so that it does not matter how many others were unreadable.
                [numbers[place] for place in unreadable],
            )
            for place, tree in zip(unreadable, regrown, strict=True):
                # What was discarded was paid for: it stays with the tree for its cost.
                discarded = trees[place]
                earlier = (*discarded.earlier, replace(discarded, earlier=()))
                trees[place] = replace(tree, earlier=earlier)
        # Trees carry the comparisons as they came, without a rubric that is the judge's own.
        return [replace(tree, comparison=c) for tree, c in zip(trees, comparisons, strict=True)]

    def predictions(
        self, trees: Sequence[EvaluationTree], branches: int, others: Sequence[EvaluationTree] = ()
    ) -> list[Prediction]:
        """Return the predictions of the first ``branches`` criteria of trees, both as :meth:`ask` returned them."""
        of_order_ba = others or repeat(None, len(trees))
        pairs = zip(trees, of_order_ba, strict=True)
        return [predict(tree, branches, self.options, self.name, other) for tree, other in pairs]

    def score_batch(self, groups: Sequence[Candidates], seed: int = 0) -> list[list[Score]]:
        """Return the score of each response of each group (ConfigError: the judge reads two responses at a time).

        The responses of a group share a list of criteria and its guidelines, written for the first of them, or the
        group's rubric; each costs one judgment a criterion. One without text is worth 0, and is not asked about.
        """
        if self.options.reads != "one":
            raise ConfigError(f"{self.name} reads two responses at a time: ask it with reads='one' (judge.reads=one)")
        # A score is over all criteria, whatever would settle a comparison.
        options = replace(self.options, early_stop=False)
        # The plan of a group's first response is all that the others are judged by.
        planned = replace(options, steps=replace(options.steps, rubric="only"))

        # Two batches: the first responses of all groups, and then all others by the criteria of the first ones.
        items_by_group = [items_of(group) for group in groups]
        first_items = [items[0] for items in items_by_group if items]
        # The first response with a text makes the plan of its group.
        first_trees = iter(self.grow_alone(first_items, seed, options))
        trees_by_group: list[list[EvaluationTree]] = []
        for items in items_by_group:
            trees: list[EvaluationTree] = []
            # A group without any text has nothing to grow.
            if items:
                trees.append(next(first_trees))
            trees_by_group.append(trees)

        # All further responses of all groups are one batch, of which each tree goes to its group's list.
        later_items: list[Comparison] = []
        destinations: list[list[EvaluationTree]] = []
        for items, trees in zip(items_by_group, trees_by_group, strict=True):
            if not trees:
                continue
            rubric = rubric_of(trees[0], options.branches)
            # Where the first response got no criteria, there is nothing to judge the others by.
            if rubric is None:
                continue
            for item in items[1:]:
                later_items.append(replace(item, rubric=rubric))
                destinations.append(trees)
        later_trees = self.grow_alone(later_items, seed, planned)
        for trees, tree in zip(destinations, later_trees, strict=True):
            trees.append(tree)

        pairs = zip(groups, trees_by_group, strict=True)
        return [list(scores_of(group, trees, options)) for group, trees in pairs]

    def grow_alone(self, items: Sequence[Comparison], seed: int, options: JudgeOptions) -> list[EvaluationTree]:
        """Return the trees of comparisons whose response A is judged by itself."""
        return self.sample(items, seed, RESPONSES[:1], [item.number for item in items], options)

    def close(self) -> None:
        """Free the model."""
        self.engine.close()


def _until_settled(branches: int, rule: Rule, orders: Sequence[Order]) -> Steer:
    """Return what steers a tree's growth until the verdict of ``branches`` branches can no longer change."""

    def steer(tree: EvaluationTree) -> Wave:
        return next_wave(tree, branches, rule, orders)

    return steer


def check(settings: ModelSettings, method: Method, use: Use) -> None:
    """Refuse a model that cannot be asked, and more branches than the judge names criteria, or none."""
    check_model(settings, method, use.key)
    criteria = settings.criteria or 0
    if use.branches is not None:
        # Stage evaluate asks with several numbers of branches, of which the method takes those up to its own.
        if method.most == 0:
            raise ConfigError(f"{use.key}: {method.text!r}: a judge has at least 1 branch")
        check_criteria(criteria, method, max(method.branches(use.branches)), "evaluate.branches")
        return
    most = method.most
    if most is None:
        most = 1
    # A trained judge says itself how many criteria it names, which check_criteria reads.
    if most < 1 or (most > criteria and not method.is_directory):
        raise ConfigError(
            f"{use.key}={method.text!r}: {amount(most, 'branch')}; allowed are 1 to tree.criteria={criteria}"
        )
    check_criteria(criteria, method, most, use.key)


def options(models: Models, method: Method, branches: int) -> JudgeOptions:
    """Return how the judge is asked in a run: as ``judge.*`` and the options behind its name say.

    A trained judge is asked for as many criteria as it was trained on.
    """
    settings = models.settings
    assert settings.criteria is not None
    directory = models.directory(method)
    criteria = settings.criteria
    if directory is not None:
        criteria = criteria_of(directory)
    model = model_mark(directory, models.external(method.target))
    more: dict[str, Any] = {"plan": method.changes.get("plan", "shared"), "model": model}
    if settings.whole_trees:
        # What reads the trees later may need branches that the verdict did not.
        more["early_stop"] = False
    if settings.rubric and not settings.own_criteria:
        more["rubric"] = read_rubric(settings.rubric)
    return JudgeOptions.of(models.asking(method), criteria, directory, branches=branches, **more)


def arguments(method: Method, directory: Path | None, call: Arguments) -> JudgeOptions:
    """Return how the judge is asked by a caller in Python: as its ``judge.json`` says, but for what the caller sets."""
    branches = call.branches
    if method.most is not None:
        # What stands behind the name is closer to it than an argument.
        branches = method.most
    changes = {**method.changes, **call.changes}
    more = {"branches": branches, "rubric": given_rubric(call.criteria), "model": model_mark(directory, call.engine)}
    return JudgeOptions.of_directory(directory, changes, **more)


def prompts(method: Method, options: JudgeOptions, directory: Path | None, others: str | Path) -> PromptSet:
    """Return the prompts that the judge was trained with, or of a model that is no trained judge ``others``."""
    if directory is None:
        return load_prompt_set(others)
    # Said here too: a caller in Python passes no check before a run.
    if not (directory / FILE).is_file():
        raise ConfigError(f"{method.text}: {no_judge(directory)}")
    return load_prompt_set(directory / FILE)


def build(method: Method, options: JudgeOptions, parts: Parts) -> Judge:
    """Return the judge."""
    prompt_set = parts.prompts()
    return BranchingJudge(parts.engine(), prompt_set, options, method.name)


def identity(models: Models, method: Method, hashes: ContentHashes, branches: int) -> dict[str, Any]:
    """Return what the judge's trees depend on besides the model."""
    # Settings that only decide how trees are read are left out, so that kept trees can be read in another way.
    asking = models.asking(method).changed(least_read=1.0, decided=None)
    if not asking.early_stop:
        # Aggregation and tie decide what is asked only where branches stop early.
        asking = asking.changed(aggregation="vote", tie=0.0)
    prompt_hashes = None
    if method.target not in models.inputs and not method.is_directory:
        # A trained judge brings its own prompts; any other model is asked by the run's.
        prompt_hashes = hashes.of(prompt_path(models.settings.prompts or ""))
    name = method.name
    if method.is_directory:
        # A directory may be moved: its model's content is part of the fingerprint, its path is not.
        name = "+".join(method.options)
    return {
        "method": name,
        "branches": branches,
        "asking": asking,
        "criteria": models.settings.criteria,
        "prompts": prompt_hashes,
    }


def grow_branches(judge: Any, comparisons: Sequence[Comparison], seed: int, branches: int) -> ShardResult:
    """Return the trees of comparisons as a finished shard, grown with so many branches."""
    trees, others = judge.ask(comparisons, seed, branches)
    shard = shard_of([*trees, *others])
    # shard_of has counted tokens and failures of both orders' trees.
    rows = list(shard.rows[: len(trees)])
    # Where plans are independent, a comparison's row holds both of its trees.
    if others:
        for row, other in zip(rows, shard.rows[len(trees) :], strict=True):
            row[OTHER] = other
    return replace(shard, rows=rows, counts_in=len(rows))


def read_trees(
    rows: Sequence[Mapping[str, Any]],
    comparisons: Sequence[Comparison],
    options: JudgeOptions,
    name: str,
    branches: Sequence[int],
) -> KindResults:
    """Return the predictions for each number of branches, read off trees that were grown with the most."""
    trees = [trees_on(row, comparison) for row, comparison in zip(rows, comparisons, strict=True)]
    predictions: dict[int, list[Prediction]] = {}
    for k in branches:
        predictions[k] = [predict(tree, k, options, name, other) for tree, other in trees]
    # The most branches hold the failures of all smaller numbers.
    failures: Counter[str] = Counter()
    for prediction in predictions[max(predictions)]:
        failures.update(prediction.failures)
    return KindResults(predictions=predictions, trees=trees, message=unread_hint(failures) or "", lasting=True)


def trees_on(row: Mapping[str, Any], comparison: Comparison) -> tuple[EvaluationTree, EvaluationTree | None]:
    """Return the tree of both orders and None, or the trees of order AB and of order BA, of a shard's row.

    Both are about the benchmark's ``comparison``: trees of an earlier evaluation may carry a label that has been
    corrected since.
    """
    trees = [replace(tree, comparison=comparison) for tree in trees_of(row)]
    if len(trees) == 1:
        return trees[0], None
    order_ab, order_ba = trees
    return order_ab, order_ba


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
    target=Target(model=True, trained=True),
    check=check,
    build=build,
    setup=Setup(
        settings=("judge", "criteria", "rubric", "prompts"),
        options=options,
        arguments=arguments,
        prompts=prompts,
        identity=identity,
    ),
    ask=Ask(rows="trees", process=grow_branches, read=read_trees, progress=", both orders, up to {branches} branches"),
    scores=scores,
    criteria=True,
)
"""Judges that branch, by the model that they ask."""
