"""A score for every response to a prompt, by any method: what best of n chooses by, and what it is measured by."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.data.world.language import load_language
from judgetrain.engines.once import loaded_once
from judgetrain.judges.base import Judge, Prediction
from judgetrain.judges.factory import Models
from judgetrain.judges.kinds.branching import BranchingJudge
from judgetrain.judges.method import BASELINE, Method
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.schema import Comparison, Dialogue
from judgetrain.scorers.encode import sample_of
from judgetrain.serving.rewards.groups import Group, scalars
from judgetrain.serving.stress.stages import StressSettings, shown

Score = float | None
"""Higher is better; None: nothing readable was said of the response."""


@dataclass(frozen=True)
class Case:
    """A prompt and the responses to it."""

    dialogue: Dialogue
    responses: Sequence[str]


@dataclass
class Scored:
    """The scores of every case's responses, by the name of the proxy, and what they cost.

    ``cost``: ``prompt_tokens``, ``generated_tokens`` and ``calls``.
    """

    scores: dict[str, list[list[Score]]]
    cost: Counter[str] = field(default_factory=Counter)


Scores = Callable[[Sequence[Case]], Scored]


def truth(cases: Sequence[Case]) -> list[list[Score]]:
    """The quality by the generated world's hidden rule, 0 to 6."""
    quality = load_language().quality
    return [[float(quality(case.dialogue.query, text)) for text in case.responses] for case in cases]


def length(cases: Sequence[Case]) -> list[list[Score]]:
    """The number of characters, as the baseline ``longer`` compares them."""
    return [[float(len(text)) for text in case.responses] for case in cases]


def chance(cases: Sequence[Case], seed: int) -> list[list[Score]]:
    """Chance alone: its gold curve is flat."""
    rngs = [random.Random(derive_seed(seed, "random", case.dialogue.id)) for case in cases]
    return [[rng.random() for _ in case.responses] for rng, case in zip(rngs, cases, strict=True)]


@contextmanager
def scores_of(methods: Sequence[Method], models: Models, settings: StressSettings) -> Iterator[Scores]:
    """A function that scores cases by methods that differ in nothing but their number of branches.

    Their model is loaded at the first call, and freed at the end.
    """
    method = max(methods, key=lambda m: m.most or 1)
    if method.kind == BASELINE:
        seed = settings.seed
        yield lambda cases: Scored({method.name: length(cases) if method.target == "longer" else chance(cases, seed)})
    elif method.kind == "scorer":
        with _scorer(method, models, settings) as scores:
            yield scores
    else:
        with loaded_once(lambda: models.judge(method, method.most or 1)) as judge:
            yield lambda cases: _compared(cases, judge(), methods, settings)


class Asked:
    """A judge that is asked about a comparison once, with its most branches; fewer are read off the same trees."""

    def __init__(self, judge: Judge, seed: int) -> None:
        self._judge, self._seed = judge, seed
        self._trees: dict[str, tuple[EvaluationTree, EvaluationTree | None]] = {}
        self.cost: Counter[str] = Counter()

    def __call__(self, pairs: Sequence[Comparison], branches: int) -> list[Prediction]:
        """A prediction each."""
        judge = self._judge
        if not isinstance(judge, BranchingJudge):
            return self._counted(judge.compare_all(pairs, self._seed))
        if new := [c for c in pairs if c.id not in self._trees]:
            grown, others = judge.ask(new, self._seed, numbers=[c.number for c in new])
            self._counted(judge.predictions(grown, judge.options.branches, others))
            second: Sequence[EvaluationTree | None] = others or [None] * len(new)
            self._trees |= {c.id: (first, other) for c, first, other in zip(new, grown, second, strict=True)}
        found = [self._trees[c.id] for c in pairs]
        others = [other for _, other in found if other is not None]
        return judge.predictions([tree for tree, _ in found], branches, others)

    def _counted(self, found: list[Prediction]) -> list[Prediction]:
        for prediction in found:
            self.cost.update(asdict(prediction.whole_cost))
        return found


def _compared(cases: Sequence[Case], judge: Judge, methods: Sequence[Method], settings: StressSettings) -> Scored:
    """The scalars that a mode makes of comparisons within each case (:mod:`judgetrain.serving.rewards.modes`).

    Responses that hold nothing are not shown to the judge and have no score.
    """
    asked, scores = Asked(judge, settings.seed), dict[str, list[list[Score]]]()
    groups = [Group(case.dialogue.messages, [t for t in case.responses if t.strip()]) for case in cases]
    for method in methods:
        ask = partial(asked, branches=method.most or 1)
        found = [iter(row) for row in scalars(groups, ask, settings.stress.mode)]
        rows = zip(cases, found, strict=True)
        scores[shown(method)] = [[next(row) if t.strip() else None for t in case.responses] for case, row in rows]
    return Scored(scores, asked.cost)


@contextmanager
def _scorer(method: Method, models: Models, settings: StressSettings) -> Iterator[Scores]:
    from judgetrain.scorers.lazy import lazy_scorer
    from judgetrain.scorers.methods import score
    from judgetrain.scorers.stages import scored_model

    config = settings.scorer
    assert config is not None
    model = scored_model(config, settings.base)
    with lazy_scorer(config, model, settings.seed, models.out, models.budget) as scorer:

        def scored(cases: Sequence[Case]) -> Scored:
            samples = [sample_of(case.dialogue, text) for case in cases for text in case.responses]
            before = scorer().usage
            found = iter(score(scorer(), samples, [method.target], config, settings.seed)[method.target].oriented)
            usage = scorer().usage - before
            cost = Counter({n: getattr(usage, n) for n in ("prompt_tokens", "generated_tokens", "calls")})
            return Scored({method.name: [[next(found) for _ in case.responses] for case in cases]}, cost)

        yield scored
