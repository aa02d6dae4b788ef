"""The attack suite: a benchmark's sample under every attack, as a further benchmark that methods are run on."""

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
class Case:
    """One comparison under one attack: ``plain``, with the worse response as A, and ``attacked``.

    ``swapped``: the benchmark has the responses in the other order.
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
    cases: Sequence[Case]

    @property
    def benchmark(self) -> Benchmark:
        """The attacked comparisons, which are called as the benchmark with ``-attacks``."""
        comparisons = [case.attacked for case in self.cases if case.attack.how != "swap"]
        return Benchmark(name=f"{self.of.name}-attacks", split=self.of.split, comparisons=comparisons)


def attack_suite(test: Benchmark, settings: RobustnessConfig, seed: int) -> AttackSuite | None:
    """The attacks on a sample of a benchmark; None where none are asked for, or no label says A or B (ConfigError: an
    unknown attack)."""
    decided = [c for c in test.comparisons if c.label in ("A", "B")]
    attacks = load_attacks(settings.wording, settings.attacks) if settings.sample else []
    if not decided or not attacks:
        return None
    rng = random.Random(derive_seed(seed, "robustness", test.name))
    chosen = rng.sample(decided, min(settings.sample, len(decided)))
    cases = [case for attack in attacks for c in chosen if (case := _case(attack, c, test)) is not None]
    return AttackSuite(of=test, cases=cases) if cases else None


def attacked_benchmarks(
    settings: EvaluateSettings, benchmarks: Sequence[Benchmark], methods: Sequence[Method]
) -> list[Further]:
    """The attack suite of every benchmark that has one, over its test split, and the methods that are attacked.

    They are those named; else the last judge that was trained, as it is first asked; where none was, whatever reads
    responses and costs nothing.
    """
    config: RobustnessConfig = settings.robustness  # type: ignore[attr-defined]  # a field of the extra's (hooks.py)
    free = [m for m in methods if _attackable(m) and not (m.target in EXTERNAL and getattr(settings, m.target).paid)]
    last = [m for stage in reversed(JUDGE_STAGES) for m in free if m.goes_by_criteria and m.target == stage][:1]
    attacked = [method for method in methods if method.name in config.methods] or last or free
    found = []
    for benchmark in benchmarks:
        if suite := attack_suite(split(benchmark, settings.evaluate.dev_share)[1], config, settings.seed):
            of = suite.benchmark
            found.append(Further(benchmark=of, of=benchmark.name, methods=attacked, made=suite))
    return found


def check(settings: RobustnessConfig, evaluate: EvaluateConfig) -> None:
    """Check the attacks, and the methods that are to stand up to them (ConfigError: the key, and what is allowed)."""
    load_attacks(settings.wording, settings.attacks)
    allowed = [method.name for method in map(Method.parse, evaluate.methods) if _attackable(method)]
    if wrong := [name for name in settings.methods if name not in (*allowed, *TARGETS)]:
        told = ", ".join(allowed) or "none: stored verdicts, scorers and most baselines cannot be attacked"
        raise ConfigError(f"robustness.methods: {wrong[0]!r} cannot be attacked; of evaluate.methods these can: {told}")


def _attackable(method: Method) -> bool:
    """Whether it reads the responses: no stored verdict, no coin, none fitted to the benchmark's own labels."""
    return method.names_model or method.text == LongerJudge.name


def _case(attack: Attack, comparison: Comparison, test: Benchmark) -> Case | None:
    plain = worse_first(comparison)
    attacked = attack.into(plain)
    if attacked is None:
        return None
    swapped = plain is not comparison
    return Case(attack=attack, plain=plain, attacked=attacked, swapped=swapped, prompt=test.prompt_of(comparison))
