"""Fail a run whose judge is not better than the methods that it must be better than, by the paired test."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from judgetrain.artifacts.files import read_json
from judgetrain.artifacts.integrity import MANIFEST
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.benchmarks.responses import labels_of
from judgetrain.data.intervals import Interval, Resampling
from judgetrain.data.labelled import OVERALL
from judgetrain.engines.hub import hub_id
from judgetrain.errors import ConfigError, JudgetrainError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.hooks import Rated
from judgetrain.evaluate.metrics.intervals import paired_difference
from judgetrain.evaluate.metrics.rating_rows import ALWAYS, judged_by, scores_by
from judgetrain.evaluate.metrics.ratings import Scored, commonest
from judgetrain.evaluate.metrics.rows import MethodKey
from judgetrain.evaluate.metrics.verdicts import Bools, agreement
from judgetrain.evaluate.report.table import signed, within
from judgetrain.extras.guarantees.config import GuaranteesConfig
from judgetrain.judges.kinds.baselines import BASELINES
from judgetrain.judges.kinds.kind import kind_of
from judgetrain.judges.method import JUDGE_STAGES, Method
from judgetrain.judges.predictions import Prediction
from judgetrain.judges.saved import SETTINGS
from judgetrain.schema import Comparison

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from judgetrain.evaluate.stages import EvaluateSettings

FLOORS = "floors"
"""Stands for all baselines in a rule."""
UNTRAINED = "untrained"
"""Stands in a rule for the best method that needs no training."""
COMMONEST = "commonest"
"""Stands in a rule for always giving the commonest label, the floor of single responses."""
FILE = "gate.json"
"""The file of an artifact with its gate's checks; there is none without a gate."""
BETTER = "beats"
NOT_WORSE = "matches"
_RULE = re.compile(rf"\s*(\S+)\s+({BETTER}|{NOT_WORSE})\s+(\S+)\s*")
P = 0.05
"""The p of the paired bootstrap up to which a difference counts."""
Verdicts = dict[MethodKey, dict[str, tuple[Any, Any]]]
"""Verdicts in both orders by method and comparison id."""


class GateError(JudgetrainError):
    """A judge does not pass its gate; the evaluation's artifact is there all the same."""


@dataclass(frozen=True)
class GateRule:
    """A rule of ``guarantees.required``: a judge beats another method, or matches it.

    Args:
        text: as it is written.
        judge: a method's name.
        branches: of the judge; None: the most that it is asked with.
        strict: True where it has to be better, False where it has to be as good, within a margin.
        than: another method's name, :data:`FLOORS`, :data:`UNTRAINED` or :data:`COMMONEST`.
        than_branches: of the other method, likewise.
    """

    text: str
    judge: str
    branches: int | None
    strict: bool
    than: str
    than_branches: int | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the rule that a text such as ``dpo@10 beats floors`` writes.

        Raises:
            ConfigError: it is no rule.
        """
        match = _RULE.fullmatch(text)
        if match is None:
            raise ConfigError(
                f"guarantees.required: {text!r} is no rule; expected JUDGE {BETTER} METHOD or JUDGE {NOT_WORSE} METHOD "
                f"(as good, within guarantees.margin), with a method of evaluate.methods, {FLOORS}, {UNTRAINED} or "
                f"{COMMONEST} (of single responses)"
            )
        judge, branches = _numbered(match[1])
        than, than_branches = _numbered(match[3])
        return cls(text, judge, branches, match[2] == BETTER, than, than_branches)


@dataclass(frozen=True, kw_only=True)
class Check:
    """The test of a rule on a benchmark.

    Args:
        benchmark: its name.
        rule: its text.
        first: the judge, with its number of branches.
        second: the method that it is compared with, likewise.
        n: comparisons, or single responses, that both judged.
        difference: the first's agreement less the second's.
        difference_ci: its 95% paired interval.
        p: of the paired bootstrap.
        passed: whether the rule holds.
        told: the result in a sentence.
    """

    benchmark: str
    rule: str
    first: str
    second: str
    n: int
    difference: float
    difference_ci: Interval | None
    p: float
    passed: bool
    told: str


def check_gate(config: GuaranteesConfig, evaluate: EvaluateConfig) -> None:
    """Check before anything runs that every rule can be tested.

    Raises:
        ConfigError: names the rule and what it lacks.
    """
    methods = {method.name: method for method in map(Method.parse, evaluate.methods)}
    # A rule about a judge that was left out would be tested on nothing, and the gate fail for want of it.
    if evaluate.partial and config.required:
        raise ConfigError("evaluate.partial=true: leaves out judges that guarantees.required asks for; set it to false")
    for rule in map(GateRule.parse, config.required):
        where = f"guarantees.required: {rule.text}:"
        # COMMONEST stands in no list of methods: whether there are labels for it, check_gate_here reads.
        if rule.than == FLOORS and not set(methods) & set(BASELINES):
            raise ConfigError(f"{where} evaluate.methods has no baseline ({', '.join(BASELINES)})")
        if rule.than == UNTRAINED and not any(untrained(method, brought=False) for method in methods.values()):
            raise ConfigError(f"{where} evaluate.methods has nothing that needs no training, such as rubric:70")
        # The judge always names a method; what it is compared with may be a word for several.
        named = [(rule.judge, rule.branches)]
        if rule.than not in (FLOORS, UNTRAINED, COMMONEST):
            named.append((rule.than, rule.than_branches))
        for name, branches in named:
            if name not in methods:
                raise ConfigError(f"{where} {name} is not evaluated; evaluate.methods has {', '.join(methods)}")
            evaluated_with = methods[name].branches(evaluate.branches)
            if branches is None or branches in evaluated_with:
                continue
            how = "without branches"
            if evaluated_with:
                how = f"with {', '.join(map(str, evaluated_with))}"
            raise ConfigError(f"{where} {name} is asked {how}, not with {branches}")


def check_gate_here(config: GuaranteesConfig, settings: EvaluateSettings) -> None:
    """Check that rules about the commonest label have single responses with labels to be tested on.

    Raises:
        ConfigError: names the rule, and what to write in its place.
    """
    rules = [rule for rule in map(GateRule.parse, config.required) if rule.than == COMMONEST]
    # Whether rows hold one response each is read off them, so nothing is read without such a rule.
    if not rules:
        return
    scoring = {method.name for method in settings.scoring}
    for rule in rules:
        where = f"guarantees.required: {rule.text}:"
        if not settings.responses:
            names = ", ".join(benchmark.name for benchmark in settings.benchmarks)
            raise ConfigError(
                f"{where} the commonest label is the floor of single responses, and the rows of {names} "
                f"(evaluate.benchmarks) are pairs; expected {FLOORS} ({', '.join(BASELINES)}) in its place"
            )
        if rule.judge not in scoring:
            raise ConfigError(
                f"{where} {rule.judge} gives a single response no score; expected a branching judge that reads one, "
                "as dpo+one, or judge.reads=one"
            )


def gate_checks(
    benchmark: Benchmark,
    methods: Sequence[Method],
    results: Sequence[Sequence[Prediction]],
    config: GuaranteesConfig,
    resampling: Resampling,
) -> list[Check]:
    """Return the tests of the rules on one benchmark.

    Rules about a method that is not evaluated on it (stored verdicts) are left out.

    Args:
        benchmark: with the labels.
        methods: all that are evaluated.
        results: the predictions of a method with one number of branches each, in the benchmark's order.
        config: the rules, and the margin of ``matches``.
        resampling: how intervals are drawn.
    """
    verdicts = verdicts_of(results)
    test = PairedTest(benchmark, verdicts, config.margin, resampling)
    checks = []
    for rule in map(GateRule.parse, config.required):
        judge = key_of(verdicts, rule.judge, rule.branches)
        if judge is None:
            continue
        for other in _opponents(rule, methods, verdicts, benchmark):
            check = test.of(rule, judge, other)
            if check is not None:
                checks.append(check)
    return checks


def verdicts_of(results: Iterable[Sequence[Prediction]]) -> Verdicts:
    """Return the verdicts of predictions, each sequence of which is of one method and number of branches."""
    verdicts: Verdicts = {}
    for predictions in results:
        key = MethodKey(predictions[0].method, predictions[0].branches)
        # By id: the tests below go through the benchmark's own comparisons.
        verdicts[key] = {prediction.comparison_id: prediction.decided for prediction in predictions}
    return verdicts


def _opponents(
    rule: GateRule, methods: Sequence[Method], verdicts: Verdicts, benchmark: Benchmark
) -> Iterable[MethodKey]:
    """Return the methods that a rule's judge is compared with; empty where none is evaluated on the benchmark."""
    if rule.than == FLOORS:
        return [key for key in verdicts if key.method in BASELINES]
    # The best one alone: it is what a user would take instead of training.
    if rule.than == UNTRAINED:
        return best_untrained(methods, verdicts, benchmark)[:1]
    key = key_of(verdicts, rule.than, rule.than_branches)
    if key is None:
        return []
    return [key]


def by_criteria_brought(method: Method, brought: bool) -> bool:
    """Return True if a method goes by criteria that come with the comparisons: nothing that its user would have.

    Args:
        method: the method.
        brought: comparisons bring criteria; else those given are of the command's own file (``criteria``).
    """
    if method.criteria == "given":
        return brought
    return method.criteria != "own"


def brings_criteria(benchmark: Benchmark) -> bool:
    """Return True if comparisons of a benchmark bring criteria."""
    return any(comparison.rubric is not None for comparison in benchmark.comparisons)


def untrained(method: Method, brought: bool) -> bool:
    """Return True if one could use a method without training.

    It asks no trained judge, goes by no criteria that come with the comparisons, and is nobody's published verdicts.

    Args:
        method: the method.
        brought: comparisons bring criteria (:func:`brings_criteria`).
    """
    # A judge of this run's stages.
    if method.target in JUDGE_STAGES:
        return False
    # A judge that somebody trained before.
    if method.is_directory and _holds_judge(method):
        return False
    return not by_criteria_brought(method, brought) and not kind_of(method).published


def _holds_judge(method: Method) -> bool:
    """Return True if a method's directory, or the local copy of its id on the Hub, holds a trained judge.

    It then has the settings of one, or lies in the artifact of a stage that trains. Branching judges of directories all
    are trained.
    """
    if kind_of(method).target.trained:
        return True
    # Looked up in the local cache alone: the model was fetched when it was asked, and no network is needed twice.
    if method.on_hub:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError

        try:
            name, revision = hub_id(method.target)
            return isinstance(try_to_load_from_cache(name, SETTINGS, revision=revision), str)
        except HFValidationError:
            # It is no id, which is refused where the model is looked at.
            return False
    directory = Path(method.target).expanduser().resolve()
    if (directory / SETTINGS).is_file():
        return True
    # A file of this name may be somebody else's, of any form.
    manifest = read_json(directory.parent / MANIFEST)
    return isinstance(manifest, dict) and manifest.get("stage") in JUDGE_STAGES


def best_untrained(methods: Sequence[Method], verdicts: Verdicts, benchmark: Benchmark) -> list[MethodKey]:
    """Return all methods that need no training, the one that agrees most with the labels first."""
    brought = brings_criteria(benchmark)
    names = {method.name for method in methods if untrained(method, brought)}
    labels = {comparison.id: comparison.label for comparison in benchmark.comparisons if comparison.label is not None}

    def agreeing(key: MethodKey) -> int:
        # In both orders, as agreement counts.
        return sum(verdicts[key][identifier] == (label, label) for identifier, label in labels.items())

    # Sorting is stable: of equally good ones the first of evaluate.methods stands first.
    return sorted((key for key in verdicts if key.method in names), key=agreeing, reverse=True)


@dataclass(frozen=True)
class PairedTest:
    """Tests rules on the labelled comparisons of one benchmark.

    A rule passes on evidence alone: where little was measured, a judge is shown neither to be better than another
    method nor to be as good.

    Args:
        benchmark: with the labels.
        verdicts: of all methods.
        margin: how far below the other method a judge may be that is as good, as a share of comparisons.
        resampling: how intervals are drawn.
    """

    benchmark: Benchmark
    verdicts: Verdicts
    margin: float
    resampling: Resampling

    def of(self, rule: GateRule, first: MethodKey, second: MethodKey) -> Check | None:
        """Return the test of a rule; None where no comparison has a label.

        Args:
            rule: to test.
            first: the judge.
            second: the method that it is compared with.
        """
        comparisons = [comparison for comparison in self.benchmark.comparisons if comparison.label is not None]
        # Comparisons of one prompt are no independent evidence, so that prompts are resampled whole.
        prompts = [self.benchmark.prompt_of(comparison) for comparison in comparisons]
        test = AgreementTest(self.benchmark.name, prompts, self.margin, self.resampling)
        first_agrees = self._agreement(first, comparisons)
        return test.of(rule, str(first), str(second), first_agrees, self._agreement(second, comparisons))

    def _agreement(self, method: MethodKey, comparisons: Sequence[Comparison]) -> NDArray[np.bool_]:
        """Return which labels a method gave in both orders [comparison]."""
        orders = [self.verdicts[method][comparison.id] for comparison in comparisons]
        verdicts_ab = [ab for ab, _ in orders]
        verdicts_ba = [ba for _, ba in orders]
        return agreement(verdicts_ab, verdicts_ba, [str(comparison.label) for comparison in comparisons])


@dataclass(frozen=True)
class AgreementTest:
    """Tests rules by which of the same labels two methods agree with.

    Args:
        benchmark: its name.
        prompts: that the labels count under [n].
        margin: how far below the other method a judge may be that is as good, as a share of labels.
        resampling: how intervals are drawn.
    """

    benchmark: str
    prompts: Sequence[str]
    margin: float
    resampling: Resampling

    def of(self, rule: GateRule, first: str, second: str, first_agrees: Bools, second_agrees: Bools) -> Check | None:
        """Return the test of a rule; None without labels.

        Args:
            rule: to test.
            first: the judge.
            second: the method that it is compared with.
            first_agrees: which labels the judge agrees with [n].
            second_agrees: which labels the other method agrees with [n].
        """
        difference = paired_difference(first_agrees, second_agrees, self.resampling, self.prompts)
        if difference is None:
            return None
        p = difference.p
        if p is None:
            # Too few prompts differ to show anything.
            p = 1.0
        interval = ""
        if difference.interval:
            low, high = difference.interval
            interval = within(signed(low), signed(high))
        result = f"{signed(difference.mean)}{interval} points, p {p:.3f}"
        if rule.strict:
            # The test has two sides: a judge that is clearly worse has a small p, too.
            passed = p <= P and difference.mean > 0
            relation = "is not better than"
            if passed:
                relation = "is better than"
        else:
            # Without an interval there are too few prompts to rule out that all agreement is lost.
            least = -1.0
            if difference.interval:
                least = difference.interval[0]
            passed = least > -self.margin
            relation = "is not shown to be as good as"
            if passed:
                relation = "is as good as"
            result += f", {signed(least)} at least, where {signed(-self.margin)} is allowed"
        if len(set(self.prompts)) == 1:
            result += "; one prompt shows nothing"
        return Check(
            benchmark=self.benchmark,
            rule=rule.text,
            first=first,
            second=second,
            n=len(self.prompts),
            difference=round(difference.mean, 6),
            difference_ci=difference.interval,
            p=p,
            passed=passed,
            told=f"{first} {relation} {second} on {self.benchmark}: {result}",
        )


def checks_of_responses(rated: Rated) -> list[Check]:
    """Return the tests of the rules on a benchmark of single responses: whether scores are at the labels' levels.

    Methods that give single responses no score are in no test. The floor is always giving the commonest label. Where
    no response has a label as a whole, each criterion's labels are tested by themselves.
    """
    checks = _checks_by(rated, OVERALL)
    if checks is not None:
        return checks
    by_criteria = []
    for name in rated.benchmark.scales:
        if name != OVERALL:
            by_criteria += _checks_by(rated, name) or []
    return by_criteria


def _checks_by(rated: Rated, name: str) -> list[Check] | None:
    """Return the tests of the rules on the labels of responses as a whole, or by a criterion; None without labels."""
    settings = rated.settings
    config: GuaranteesConfig = settings.guarantees
    # Thresholds and learned methods may have seen the development split.
    prompts_of_split = [prompt not in rated.development for prompt in rated.benchmark.prompts]
    labels = labels_of(rated.benchmark, name)
    places = [place for place, label in enumerate(labels) if label is not None and prompts_of_split[place]]
    if not places:
        return None

    scale = rated.benchmark.scales[name]
    prompts = [rated.benchmark.prompts[place] for place in places]
    counted_labels = [labels[place] for place in places]

    def agreeing(values: Sequence[float | None]) -> Bools:
        scored = Scored.of(counted_labels, values, scale, prompts)
        return scored.levels == scored.truth

    agreed: dict[MethodKey, Bools] = {}
    for result in rated.results:
        # A method that went by other criteria has nothing to be tested by these labels.
        if not judged_by(result.scores, name):
            continue
        values = scores_by(result.scores, name)
        agreed[MethodKey(result.method, result.branches)] = agreeing([values[place] for place in places])

    # The commonest label needs no scores, and its floor gets the one score that stands for its level.
    level = commonest(Scored.of(counted_labels, [None] * len(places), scale, prompts))
    floor = MethodKey(f"{ALWAYS} {scale.names[level]}", 0)
    agreed[floor] = agreeing([scale.scores[level]] * len(places))

    of_what = rated.benchmark.name
    if name != OVERALL:
        of_what = f"{rated.benchmark.name}: {name}"
    test = AgreementTest(of_what, prompts, config.margin, settings.resampling)
    brought = brings_criteria(rated.benchmark.asked)
    free = {method.name for method in settings.evaluated if untrained(method, brought)}
    checks = []
    for rule in map(GateRule.parse, config.required):
        judge = key_of(agreed, rule.judge, rule.branches)
        if rule.than in (FLOORS, COMMONEST):
            other: MethodKey | None = floor
        elif rule.than == UNTRAINED:
            others = [key for key in agreed if key.method in free]
            other = max(others, key=lambda key: agreed[key].sum(), default=None)
        else:
            other = key_of(agreed, rule.than, rule.than_branches)
        if judge is None or other is None:
            continue
        check = test.of(rule, str(judge), str(other), agreed[judge], agreed[other])
        if check is not None:
            checks.append(check)
    return checks


def write_gate(checks: Sequence[Check], config: GuaranteesConfig, out: StageRun) -> None:
    """Write the gate's checks, and raise an alert if it did not pass; the run fails once the artifact is there."""
    if not config.required:
        return
    row = gate_row(checks, config.required)
    out.write_json(FILE.removesuffix(".json"), row)
    out.track.summary({"gate/passed": row["passed"]})

    # All checks are told, those that passed among them: what the gate rests on is part of the result.
    for check in checks:
        result = "FAILED"
        if check.passed:
            result = "passed"
        out.log(f"evaluate: gate: {check.told}: {result}")
    # An alert and no error: the artifact must be finished first, or what was paid for would be lost.
    failed = failures(row)
    if failed:
        out.track.alert(f"{out.recipe}: the judge did not pass its gate", failed)


def gate_row(checks: Sequence[Check], required: Sequence[str]) -> dict[str, Any]:
    """Return the content of ``gate.json``: whether every rule was tested and passed, and the checks."""
    # A rule that no benchmark could test is not passed: a gate opens on evidence alone.
    tested = {check.rule for check in checks}
    untested = [rule for rule in required if rule not in tested]
    passed = not untested and all(check.passed for check in checks)
    return {"passed": passed, "untested": untested, "checks": [asdict(check) for check in checks]}


def failures(row: Mapping[str, Any]) -> str:
    """Return a sentence on the rules that did not pass, by ``gate.json``; empty where all did."""
    sentences = [check["told"] for check in row["checks"] if not check["passed"]]
    sentences += [f"{rule} was tested on no benchmark" for rule in row["untested"]]
    return "; ".join(sentences)


def require_passed(directory: Path) -> None:
    """Check that an evaluation passed its gate, if it has one.

    Raises:
        GateError: it did not; says which rules failed.
    """
    # Read from the artifact and not from memory: a run that finds a finished evaluation must fail as well.
    path = directory / FILE
    if not path.is_file():
        return
    failed = failures(json.loads(path.read_bytes()))
    if failed:
        raise GateError(f"guarantees.required: {failed}. The evaluation is finished all the same: {directory}")


def _numbered(name: str) -> tuple[str, int | None]:
    """Return a method's name and its number of branches, as ``dpo@10`` writes them; None without a number."""
    # A directory's name may hold an "@" of its own; only digits behind the last one are a number.
    method, at, branches = name.rpartition("@")
    if at and branches.isdigit():
        return method, int(branches)
    return name, None


def key_of(keys: Iterable[MethodKey], method: str, branches: int | None) -> MethodKey | None:
    """Return a method's key; None if it is not there.

    Args:
        keys: of the methods that were evaluated.
        method: its name.
        branches: its number of branches; None: the most.
    """
    same_method = [key for key in keys if key.method == method]
    if branches is None:
        return max(same_method, key=lambda key: key.branches, default=None)
    return next((key for key in same_method if key.branches == branches), None)
