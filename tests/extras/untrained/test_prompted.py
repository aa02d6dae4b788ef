"""A model asked by one criterion, without training."""

import json
from pathlib import Path

import pytest

from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons, true_rubric, world_of
from tests.builders.evaluate import check, run
from tests.builders.pipeline import configured


def test_a_model_is_asked_by_one_sentence_and_the_mean_of_eight_judgments_decides(tmp_path: Path) -> None:
    """Recounted from what was written; the annotator errs now and then, so that eight of its judgments differ."""
    world = world_of(WorldConfig(), 1)
    query = eval_comparisons(WorldConfig(), 1)[0].dialogue.query
    text = true_rubric(world, query).criteria[0].text
    (tmp_path / "rubric.yaml").write_text(json.dumps([text]))
    config = configured(
        "recipe=debug",
        "evaluate.methods=[prompted:external,first]",
        "evaluate.external={type: world, error_rate: 0.3}",
        f"criteria={tmp_path}/rubric.yaml",
        "dialogues.world.eval_comparisons=12",
        "robustness.sample=0",
        "judge.tie=0",
    )
    check(config, "evaluate")
    out = run("evaluate", config, {}, tmp_path / "out")
    row, _ = json.loads(out.path("metrics.json").read_text())
    trees = [json.loads(line) for line in out.path("trees-world-prompted.external-00000-of-00001.jsonl").open()]
    right = []
    apart = set()
    for tree in trees:
        (criterion,) = tree["criteria"]
        assert criterion["text"] == text
        scores = {"A": [], "B": []}
        for judgment in criterion["guidelines"][0]["judgments"]:
            scores[judgment["order"]].append(judgment[f"score_{judgment['order'].lower()}"])
        assert [len(response_scores) for response_scores in scores.values()] == [8, 8]
        apart |= {len(set(response_scores)) for response_scores in scores.values()}
        a, b = (sum(response_scores) / 8 for response_scores in scores.values())
        right.append(("tie" if a == b else "A" if a > b else "B") == tree["comparison"]["label"])
    assert max(apart) > 1, "judgments are sampled"
    assert row["agreement"] == pytest.approx(sum(right) / len(right), abs=1e-6)
    assert (row["method"], row["branches"], row["judgments"], row["consistency"]) == ("prompted:external", 0, 192, 1)
