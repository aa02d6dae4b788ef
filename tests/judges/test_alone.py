"""A judge that samples says the same of a row alone, among others, and in another order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.data.world.engine import WorldEngine
from judgetrain.engines.base import Completion, Request, places
from judgetrain.engines.config import SamplingConfig
from judgetrain.judges import BranchingJudge, Judge, PairwiseJudge, PointwiseJudge
from judgetrain.judges.base import Plan
from judgetrain.judges.config import JudgeOptions
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.schema import Comparison
from tests.builders.judges import SAMPLING
from tests.builders.scripted import ScriptedEngine, comparison, noisy, number

ROWS = eval_comparisons(WorldConfig(eval_comparisons=30), seed=5)
AT_ONE = SamplingConfig(temperature=1.0)


class Drawing(ScriptedEngine):
    """Answers by seed and place alone, as the random numbers of a real engine do."""

    def __init__(self) -> None:
        super().__init__(noisy)

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        drawn = [number(seed, place) for place in places(requests)]
        asked = zip(drawn, requests, strict=True)
        texts = [f"[[{'ABC'[n % 3] if r.step == 'pairwise' else 1 + n % 10}]]" for n, r in asked]
        return [Completion(text=text, finish_reason="stop") for text in texts]


def branching(plan: Plan, early_stop: bool = False) -> Judge:
    engine = WorldEngine(WorldEngineConfig(error_rate=0.4))
    return BranchingJudge(
        engine, load_prompt_set("compact"), JudgeOptions(branches=3, steps=SAMPLING, early_stop=early_stop, plan=plan)
    )


@pytest.mark.parametrize(
    "judge",
    [
        branching("shared"),
        branching("independent"),
        branching("shared", early_stop=True),
        PairwiseJudge(Drawing(), sampling=AT_ONE),
        PointwiseJudge(Drawing(), sampling=AT_ONE),
    ],
    ids=["shared", "independent", "early_stop", "pairwise", "pointwise"],
)
def test_what_is_sampled_for_a_row_depends_on_the_row_alone(judge: Judge) -> None:
    together = judge.compare_all(ROWS, 3)
    assert [judge.compare_all([row], 3)[0] for row in ROWS] == together
    assert judge.compare_all(ROWS[::-1], 3) == together[::-1]
    assert judge.compare_all(ROWS, 4) != together, "another seed samples anew"
    assert len({(p.verdict, p.margin) for p in together}) > 2, "rows do not share random numbers"


def test_a_row_s_number_follows_from_its_texts() -> None:
    one = Comparison.of("Why?", "a", "b")
    same = replace(one, id="other", model_a="m", label="A")
    assert one.number == same.number < 2**40
    different = [one, one.swapped(), Comparison.of("Why", "a", "b"), Comparison.of("Why?", "ab", ""), comparison(1)]
    assert len({each.number for each in different}) == len(different)
