"""The correlation script on made-up features: items by turn, signs, missing values, what counts as reproduced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from tests.benchmarks import glassbox_correlations as script


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_every_turn_is_an_item_and_the_sign_makes_it_positive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [[-0.1, -0.9], [-0.3, float("nan")], [-0.7, -0.2]]
    scores = {(1, 1): 9, (1, 2): 1, (2, 1): 7, (2, 2): 5, (3, 1): -1, (3, 2): 8}
    features = [{"question_id": i + 1, "evaluations": row} for i, row in enumerate(values)]
    write(tmp_path / "mt_bench" / "features" / "vicuna-7b-logprobs.jsonl", features)
    flipped = [{"question_id": r["question_id"], "evaluations": [-v for v in r["evaluations"]]} for r in features]
    write(tmp_path / "mt_bench" / "features" / "vicuna-7b-logprobs-entropy.jsonl", flipped)
    rows = [{"question_id": q, "model": "vicuna-7b", "turn": t, "score": s} for (q, t), s in scores.items()]
    write(tmp_path / "mt_bench" / "gpt4_scores.jsonl", rows)
    two, one = script.lines(tmp_path)
    x, y = [-0.1, -0.9, -0.3, -0.7, -0.2], [9, 1, 7, -1, 8]
    expected = tuple(f(x, y).statistic for f in (stats.pearsonr, stats.kendalltau, stats.spearmanr))
    assert (one.feature, one.n, one.missing, one.sign) == ("logprobs", 5, 1, 1)
    assert one.found == pytest.approx(expected)
    assert (two.feature, two.sign) == ("logprobs-entropy", -1)
    assert two.found == pytest.approx(expected)
    assert not one.reproduced
    monkeypatch.setitem(script.PUBLISHED, ("mt_bench", "vicuna-7b", "SentProb"), tuple(round(v, 4) for v in expected))
    assert one.reproduced
