"""Make the attack suite: a benchmark's sample under every attack, as a further benchmark that methods are run on."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.errors import ConfigError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.hooks import Further
from judgetrain.evaluate.metrics.paired import split
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.extras.robustness.attacks.attack import Attack, load_attacks, worse_first
from judgetrain.extras.robustness.config import RobustnessConfig
from judgetrain.judges.kinds.baselines import LongerJudge
from judgetrain.judges.method import JUDGE_STAGES, TARGETS, Method
from judgetrain.judges.settings import EXTERNAL
from judgetrain.schema import Comparison


@dataclass(frozen=True, kw_only=True)
class AttackedCase:
    """One comparison under one attack.

    Args:
        attack: the attack.
        plain: the comparison with the worse response as A.
        attacked: the same under attack.
        swapped: whether the benchmark has the responses in the other order.
        prompt: of the comparison.
    """

    attack: Attack
    plain: Comparison
    attacked: Comparison
    swapped: bool
    prompt: str


@dataclass(frozen=True, kw_only=True)
class AttackSuite:
    """The cases of a benchmark; those that must be asked about make ``benchmark``.

    What a judge says of exchanged responses is known without: it is asked in both orders.
    """

    of: Benchmark
    cases: Sequence[AttackedCase]

    @property
    def benchmark(self) -> Benchmark:
        """Return the attacked comparisons, which are called as the benchmark with ``-attacks``."""
        comparisons = [case.attacked for case in self.cases if case.attack.how != "swap"]
        return Benchmark(name=f"{self.of.name}-attacks", split=self.of.split, comparisons=comparisons)


def attack_suite(test: Benchmark, settings: RobustnessConfig, seed: int) -> AttackSuite | None:
    """Return the attacks on a sample of a benchmark; None where none are asked for, or no label says A or B.

    Raises:
        ConfigError: an unknown attack.
    """
    if not settings.sample:
        return None
    attacks = load_attacks(settings.wording, settings.attacks)
    # An attack is on the worse response, of which a tie has none.
    decided = [comparison for comparison in test.comparisons if comparison.label in ("A", "B")]
    if not decided or not attacks:
        return None
    # By the benchmark's name: another benchmark in the configuration changes no sample of this one.
    rng = random.Random(derive_seed(seed, "robustness", test.name))
    chosen = rng.sample(decided, min(settings.sample, len(decided)))
    cases = []
    # All attacks on the same comparisons, so that their figures can be set side by side.
    for attack in attacks:
        for comparison in chosen:
            case = _case(attack, comparison, test)
            if case is not None:
                cases.append(case)
    if not cases:
        return None
    return AttackSuite(of=test, cases=cases)


def attacked_benchmarks(
    settings: EvaluateSettings, benchmarks: Sequence[Benchmark], methods: Sequence[Method]
) -> list[Further]:
    """Return the attack suite of every benchmark that has one, over its test split, and the methods that are attacked.

    They are those named; else the last judge that was trained, as it is first asked; where none was, all that read
    responses and cost nothing.
    """
    # A field of the extra's own (hooks.py).
    config: RobustnessConfig = settings.robustness  # type: ignore[attr-defined]
    further = []
    for benchmark in benchmarks:
        _, test = split(benchmark, settings.evaluate.dev_share)
        suite = attack_suite(test, config, settings.seed)
        if suite is not None:
            attacked = _attacked_methods(config, settings, methods)
            further.append(Further(benchmark=suite.benchmark, of=benchmark.name, methods=attacked, made=suite))
    return further


def _attacked_methods(
    config: RobustnessConfig, settings: EvaluateSettings, methods: Sequence[Method]
) -> Sequence[Method]:
    """Return the methods that are attacked; see :func:`attacked_benchmarks`."""
    named = [method for method in methods if method.name in config.methods]
    if named:
        return named
    free = []
    for method in methods:
        is_paid = method.target in EXTERNAL and getattr(settings, method.target).paid
        if _attackable(method) and not is_paid:
            free.append(method)
    # The last stage's judge is what a run is for; each further method would take as long again.
    for stage in reversed(JUDGE_STAGES):
        for method in free:
            if method.goes_by_criteria and method.target == stage:
                return [method]
    return free


def check(settings: RobustnessConfig, evaluate: EvaluateConfig) -> None:
    """Check the attacks, and the methods that are to stand up to them.

    Raises:
        ConfigError: names the key, and what is allowed.
    """
    load_attacks(settings.wording, settings.attacks)
    allowed = [method.name for method in map(Method.parse, evaluate.methods) if _attackable(method)]
    for name in settings.methods:
        # A target that is not evaluated in this run is no mistake: recipes name judges that a sweep may leave out.
        if name not in allowed and name not in TARGETS:
            choices = ", ".join(allowed) or "none: stored verdicts, scorers and most baselines cannot be attacked"
            raise ConfigError(
                f"robustness.methods: {name!r} cannot be attacked; of evaluate.methods these can: {choices}"
            )


def _attackable(method: Method) -> bool:
    """Return True if a method reads responses: no stored verdict, no coin, none fitted to the benchmark's labels."""
    return method.names_model or method.text == LongerJudge.name


def _case(attack: Attack, comparison: Comparison, test: Benchmark) -> AttackedCase | None:
    """Return a comparison of a benchmark under an attack; None where the attack does nothing to it."""
    plain = worse_first(comparison)
    attacked = attack.into(plain)
    if attacked is None:
        return None
    # worse_first returns the comparison itself where it stands the right way round.
    swapped = plain is not comparison
    return AttackedCase(
        attack=attack, plain=plain, attacked=attacked, swapped=swapped, prompt=test.prompt_of(comparison)
    )
