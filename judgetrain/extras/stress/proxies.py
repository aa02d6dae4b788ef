"""A score for every response to a prompt, by any method: what best of n chooses by, and what it is measured by."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.data.world.language import load_language
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.extras.judge_reward.groups import Group, scalars
from judgetrain.extras.stress.config import MODE
from judgetrain.extras.stress.stages import StressSettings
from judgetrain.judges.base import Judge, Prediction
from judgetrain.judges.factory import Models
from judgetrain.judges.method import BASELINE, Method
from judgetrain.schema import Comparison, Dialogue
from judgetrain.scorers.encode import sample_of

Rows = Sequence[Sequence[float | None]]
"""The score of every response of every case; higher is better, None: nothing readable was said of it."""


@dataclass(frozen=True)
class Case:
    """A prompt and the responses to it."""

    dialogue: Dialogue
    responses: Sequence[str]


Scores = Callable[[Sequence[Case]], tuple[Rows, Counter[str]]]
"""The scores of cases, and what they cost: ``prompt_tokens``, ``generated_tokens`` and ``calls``."""


def truth(cases: Sequence[Case]) -> Rows:
    """The quality by the generated world's hidden rule, 0 to 6."""
    quality = load_language().quality
    return [[float(quality(case.dialogue.query, text)) for text in case.responses] for case in cases]


def length(cases: Sequence[Case], seed: int) -> Rows:
    """The number of characters, as the baseline ``longer`` compares them."""
    return [[float(len(text)) for text in case.responses] for case in cases]


def chance(cases: Sequence[Case], seed: int) -> Rows:
    """Chance alone: its gold curve is flat."""
    rngs = [random.Random(derive_seed(seed, "random", case.dialogue.id)) for case in cases]
    return [[rng.random() for _ in case.responses] for rng, case in zip(rngs, cases, strict=True)]


@contextmanager
def scores_of(method: Method, models: Models, settings: StressSettings) -> Iterator[Scores]:
    """A function that scores cases; its model is loaded at the first call, and freed at the end."""
    if method.kind == BASELINE:
        of = length if method.target == "longer" else chance
        yield lambda cases: (of(cases, settings.seed), Counter())
    elif method.kind == "scorer":
        with _scorer(method, models, settings) as scores:
            yield scores
    else:
        with loaded_once(lambda: models.judge(method, method.most or 1)) as judge:
            yield lambda cases: _compared(cases, judge(), settings.seed)


def _compared(cases: Sequence[Case], judge: Judge, seed: int) -> tuple[Rows, Counter[str]]:
    """The scalars that :data:`MODE` makes of comparisons within each case (``judge_reward/groups.py``).

    Responses that hold nothing are not shown to the judge and have no score.
    """
    cost = Counter[str]()

    def ask(pairs: Sequence[Comparison]) -> list[Prediction]:
        found = judge.compare_all(pairs, seed)
        for prediction in found:
            cost.update(asdict(prediction.whole_cost))
        return found

    groups = [Group(case.dialogue.messages, [t for t in case.responses if t.strip()]) for case in cases]
    rows = zip(cases, map(iter, scalars(groups, ask, MODE)), strict=True)
    return [[next(row) if t.strip() else None for t in case.responses] for case, row in rows], cost


@contextmanager
def _scorer(method: Method, models: Models, settings: StressSettings) -> Iterator[Scores]:
    from judgetrain.scorers.methods import score
    from judgetrain.scorers.stages import load_scorer, scored_model

    config = settings.scorer
    assert config is not None
    model = scored_model(config, settings.base)
    with loaded_once(lambda: load_scorer(model)) as scorer:

        def scored(cases: Sequence[Case]) -> tuple[Rows, Counter[str]]:
            samples = [sample_of(case.dialogue, text) for case in cases for text in case.responses]
            before = scorer().usage
            found = iter(score(scorer(), samples, [method.target], config, settings.seed)[method.target].oriented)
            usage = scorer().usage - before
            cost = Counter({n: getattr(usage, n) for n in ("prompt_tokens", "generated_tokens", "calls")})
            return [[next(found) for _ in case.responses] for case in cases], cost

        yield scored
