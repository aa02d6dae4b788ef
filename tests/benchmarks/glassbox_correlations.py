"""Correlate the glass-box paper's stored features with its GPT-4 scores, beside the published rows.

    python -m tests.benchmarks.glassbox_correlations ../shared/data/glassbox

The folder has ``mt_bench`` and ``vicuna_bench``, each with ``gpt4_scores*.jsonl`` and ``features/MODEL-FEATURE.jsonl``.
Every answered turn is one item; a GPT-4 score of -1 (unreadable) is kept as a number, as the paper's script does.

Sign convention: a printed correlation is that of the feature as stored, times the sign in its column, so that it is
positive. The published rows are absolute: SentProb is stored as a mean log-probability, falls as the GPT-4 score rises
and so has sign -1 in every row, against the paper's own argument that probable responses are better.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from judgetrain.evaluate.metrics import correlations

Triple = tuple[float, float, float]
MODELS = ("llama2-7b-chat", "vicuna-7b")
METRICS = ("pearson", "kendall", "spearman")

METHODS = {
    "logprobs": "SentProb",
    "logprobs-entropy": "Softmax-Ent",
    "logprobs-variance": "Softmax-Var",
    "ensemble-prompt-logprobs-entropy": "PrmEnsem-Exp",
    "ensemble-prompt-logprobs-variance": "PrmEnsem-Var",
    "ensemble-temper-logprobs-entropy": "DecEnsem-Exp",
    "ensemble-temper-logprobs-variance": "DecEnsem-Var",
}
"""The row of the paper that a stored feature is most likely to stand for."""

PUBLISHED: dict[tuple[str, str, str], Triple] = {
    ("mt_bench", "llama2-7b-chat", "SentProb"): (0.2034, 0.2099, 0.3067),
    ("mt_bench", "llama2-7b-chat", "Softmax-Ent"): (0.4666, 0.4395, 0.5978),
    ("mt_bench", "llama2-7b-chat", "Softmax-Var"): (0.5612, 0.4695, 0.6239),
    ("mt_bench", "llama2-7b-chat", "PrmEnsem-Exp"): (0.4242, 0.3054, 0.3692),
    ("mt_bench", "llama2-7b-chat", "PrmEnsem-Var"): (0.1695, 0.1692, 0.2441),
    ("vicuna_bench", "llama2-7b-chat", "SentProb"): (0.4970, 0.2304, 0.3192),
    ("vicuna_bench", "llama2-7b-chat", "Softmax-Ent"): (0.3730, 0.2441, 0.3223),
    ("vicuna_bench", "llama2-7b-chat", "Softmax-Var"): (0.6506, 0.4534, 0.5894),
    ("vicuna_bench", "llama2-7b-chat", "PrmEnsem-Exp"): (0.5381, 0.3359, 0.4675),
    ("vicuna_bench", "llama2-7b-chat", "PrmEnsem-Var"): (0.1321, 0.0895, 0.1250),
    ("mt_bench", "vicuna-7b", "SentProb"): (0.2350, 0.1706, 0.2547),
    ("mt_bench", "vicuna-7b", "Softmax-Ent"): (0.4690, 0.3003, 0.4291),
    ("mt_bench", "vicuna-7b", "Softmax-Var"): (0.4632, 0.3171, 0.4403),
    ("mt_bench", "vicuna-7b", "PrmEnsem-Exp"): (0.4414, 0.2677, 0.2229),
    ("mt_bench", "vicuna-7b", "PrmEnsem-Var"): (0.2353, 0.0875, 0.1239),
    ("vicuna_bench", "vicuna-7b", "SentProb"): (0.4606, 0.2545, 0.3051),
    ("vicuna_bench", "vicuna-7b", "Softmax-Ent"): (0.6379, 0.2851, 0.3855),
    ("vicuna_bench", "vicuna-7b", "Softmax-Var"): (0.6146, 0.2879, 0.3772),
    ("vicuna_bench", "vicuna-7b", "DecEnsem-Exp"): (0.5099, 0.5137, 0.6548),
    ("vicuna_bench", "vicuna-7b", "DecEnsem-Var"): (0.3246, 0.2931, 0.3014),
}
"""Pearson, Kendall and Spearman of the paper's table 1."""


@dataclass(frozen=True)
class Line:
    """One stored feature against one file of GPT-4 scores."""

    benchmark: str
    model: str
    feature: str
    scores: str
    n: int
    missing: int
    sign: int
    found: Triple | None

    @property
    def published(self) -> Triple | None:
        """The paper's row for it, if it has one."""
        return PUBLISHED.get((self.benchmark, self.model, METHODS[self.feature]))

    @property
    def reproduced(self) -> bool:
        """Whether all three correlations equal the published ones to four digits."""
        if self.found is None or self.published is None:
            return False
        return all(round(x, 4) == y for x, y in zip(self.found, self.published, strict=True))


def lines(root: Path) -> Iterator[Line]:
    """Every stored feature against every file of scores of its model."""
    for benchmark in ("mt_bench", "vicuna_bench"):
        turns = 2 if benchmark == "mt_bench" else 1
        for path in sorted((root / benchmark / "features").glob("*.jsonl")):
            model = next(m for m in MODELS if path.stem.startswith(m))
            features = {row["question_id"]: row["evaluations"][:turns] for row in _rows(path)}
            for file in sorted((root / benchmark).glob("gpt4_scores*.jsonl")):
                scores = {(r["question_id"], r["turn"]): r["score"] for r in _rows(file) if r["model"] == model}
                if scores:
                    yield _line(benchmark, model, path.stem.removeprefix(f"{model}-"), file.stem, features, scores)


def _line(
    benchmark: str,
    model: str,
    feature: str,
    file: str,
    features: Mapping[int, Sequence[float]],
    scores: Mapping[tuple[int, int], float],
) -> Line:
    pairs = [(v, scores[question, i + 1]) for question, values in features.items() for i, v in enumerate(values)]
    kept = [(v, s) for v, s in pairs if math.isfinite(v)]
    found = correlations([v for v, _ in kept], [s for _, s in kept])
    triple = [found[name] for name in METRICS]
    if any(value is None for value in triple):
        return Line(benchmark, model, feature, file, len(kept), len(pairs) - len(kept), 1, None)
    sign = 1 if (triple[0] or 0.0) >= 0 else -1
    signed: Any = tuple(sign * (value or 0.0) for value in triple)
    return Line(benchmark, model, feature, file, len(kept), len(pairs) - len(kept), sign, signed)


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    """Print a Markdown table: Pearson, Kendall, Spearman as computed and as published."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the glass-box data")
    print("| benchmark | model | stored feature | GPT-4 scores | n | NaN | sign | computed | published | same |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for line in lines(parser.parse_args().folder):
        row = "–" if line.published is None else f"{METHODS[line.feature]} {_triple(line.published)}"
        cells = (line.benchmark, line.model, line.feature, line.scores, line.n, line.missing, f"{line.sign:+d}")
        print("|", *(f"{c} |" for c in (*cells, _triple(line.found), row, "yes" if line.reproduced else "no")))


def _triple(values: Triple | None) -> str:
    return "–" if values is None else " / ".join(f"{value:.4f}" for value in values)


if __name__ == "__main__":
    main()
