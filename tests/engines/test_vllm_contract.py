"""The interface of engines, held by real vLLM on a CPU beside the Transformers engine: where vLLM is installed.

It has an environment of its own (docs/scale.md); elsewhere these tests are skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.engines.base import Engine, Request, Sampling
from judgetrain.engines.config import WORLD_BASE, ModelConfig, TransformersEngineConfig, VllmEngineConfig
from judgetrain.engines.lazy_model import make_engine
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.engines.vllm_engine import VllmEngine
from judgetrain.errors import EngineError, EngineLostError
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.label.examples import Prompter
from tests.builders.vllm_on_cpu import VLLM, children, quiet

pytest.importorskip("vllm")
__all__ = ["quiet"]

CRITERIA = Sampling(temperature=0.0, max_new_tokens=32)


def of_vllm(path: str, **further: Any) -> VllmEngine:
    engine = make_engine(VllmEngineConfig(model=ModelConfig(path=path), vllm=VLLM | further))
    assert isinstance(engine, VllmEngine)
    return engine


@pytest.fixture(scope="module")
def vllm(quiet: None) -> Iterator[VllmEngine]:
    engine = of_vllm("world")
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def here() -> TransformersEngine:
    return TransformersEngine(TransformersEngineConfig(model=ModelConfig(path="world")))


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    """Return what a judge is asked first about comparisons of the world: their criteria."""
    prompter = Prompter(load_prompt_set("multi_step"), 3)
    comparisons = eval_comparisons(WorldConfig(eval_comparisons=40), 17)
    return [Request(messages=tuple(prompter.criteria(c)), sampling=CRITERIA) for c in comparisons]


def same(requests: list[Request], first: Engine, second: Engine) -> float:
    pairs = zip(first.generate(requests, 1), second.generate(requests, 1), strict=True)
    equal = [
        (a.text, a.generated_tokens, a.finish_reason) == (b.text, b.generated_tokens, b.finish_reason) for a, b in pairs
    ]
    return sum(equal) / len(equal)


def test_greedy_answers_are_those_of_transformers(
    vllm: VllmEngine, here: TransformersEngine, requests: list[Request]
) -> None:
    assert same(requests, vllm, here) >= 0.95, "kernels differ in rounding, which decides near ties alone"


def test_stop_strings_and_limits(vllm: VllmEngine, here: TransformersEngine, requests: list[Request]) -> None:
    # Each second request may say half of its answer; the others have a word from the middle of theirs to stop at.
    requests_made = []
    ends = []
    for place, (request, whole) in enumerate(zip(requests[:12], here.generate(requests[:12], 1), strict=True)):
        words = re.findall(r"\w+", whole.text)
        assert whole.generated_tokens > 3 and words
        if place % 2:
            sampling = replace(CRITERIA, max_new_tokens=whole.generated_tokens // 2)
            ends.append("length")
        else:
            sampling = replace(CRITERIA, stop=(words[len(words) // 2],))
            ends.append("stop")
        requests_made.append(replace(request, sampling=sampling))
    assert same(requests_made, vllm, here) >= 0.9
    assert [completion.finish_reason for completion in here.generate(requests_made, 1)] == ends
    assert {completion.finish_reason for completion in vllm.generate(requests_made, 1)} == {"stop", "length"}


def test_many_requests_with_seeds_of_their_own(vllm: VllmEngine, requests: list[Request]) -> None:
    """256 at once: vLLM on a CPU dies over them where it reads prompts in parts."""
    hot = Sampling(temperature=1.0, top_p=0.9, max_new_tokens=24)
    many = [replace(requests[i % 40], sampling=hot) for i in range(256)]
    first, again, other = (vllm.generate(many, seed) for seed in (5, 5, 6))
    assert sum(a == b for a, b in zip(first, again, strict=True)) >= 250
    assert sum(a.text == b.text for a, b in zip(first, other, strict=True)) <= 64
    alone = vllm.generate([replace(many[i], place=i) for i in range(100, 140)], 5)
    assert sum(a.text == b.text for a, b in zip(first[100:140], alone, strict=True)) >= 36


def test_probabilities_of_candidates(vllm: VllmEngine, here: TransformersEngine, requests: list[Request]) -> None:
    """Equal to the model's own but for what another spelling beyond the likeliest tokens adds."""
    word = re.findall(r"\w+", here.generate(requests[:1], 1)[0].text)[0]
    with_candidates = [replace(r, sampling=replace(CRITERIA, candidates=(word, "the"))) for r in requests[:20]]
    equal = [
        (a, b)
        for a, b in zip(vllm.generate(with_candidates, 1), here.generate(with_candidates, 1), strict=True)
        if a.text == b.text
    ]
    assert sum(len(b.choices) for _, b in equal) >= 10
    for a, b in equal:
        assert [c.at for c in a.choices] == [c.at for c in b.choices]
        for ours, whole in zip(a.choices, b.choices, strict=True):
            assert ours.probabilities == pytest.approx(whole.probabilities, abs=0.02)


def test_enforced_forms(vllm: VllmEngine, requests: list[Request]) -> None:
    form = r"Score: (1|2|3|4|5)"
    for c in vllm.generate([replace(r, sampling=replace(CRITERIA, pattern=form)) for r in requests[:4]], 1):
        assert re.fullmatch(form, c.text) and c.finish_reason == "stop"


def test_prompts_beyond_the_context_are_not_asked(vllm: VllmEngine, requests: list[Request]) -> None:
    long = Request(messages=({"role": "user", "content": "clear and short " * 4000},), sampling=CRITERIA)
    done = vllm.generate([requests[0], long], 1)
    assert [c.finish_reason == "too_long" for c in done] == [False, True] and done[1].generated_tokens == 0


def test_what_vllm_cannot_load_is_said(tmp_path: Path, quiet: None) -> None:
    with pytest.raises(EngineError, match=r"^vLLM cannot load world: .*(nosuch|root cause).*engine\.vllm\.gpu_memory"):
        of_vllm("world", quantization="nosuch")
    shutil.copytree(WORLD_BASE, tmp_path / "model")
    (tmp_path / "model" / "adapter_config.json").write_text("{}")
    with pytest.raises(EngineError, match="merge them into their base"):
        of_vllm(str(tmp_path / "model"))


def test_the_end_of_vllms_process_is_told(vllm: VllmEngine, requests: list[Request]) -> None:
    # The last test of the module, whose engine it ends. vLLM itself sees it between requests alone, soon after.
    for pid in children():
        os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 60
    while not vllm._llm.llm_engine.engine_core.resources.engine_dead and time.monotonic() < until:
        time.sleep(0.1)
    with pytest.raises(EngineLostError, match="vLLM's process has ended"):
        vllm.generate(requests, 1)
