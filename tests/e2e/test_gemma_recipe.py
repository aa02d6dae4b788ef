"""``recipe=gemma_small`` as shipped, on files in the published shapes: with the world, and if asked with Gemma."""

import gzip
import json
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from judgetrain.artifacts.shards import read_rows
from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.schema import Comparison
from tests.builders.pipeline import here

SHORT = ["teacher.comparisons=12", "tree.max_comparisons=16", "responses.max_chars=2000", "cluster.n_clusters=4"]
STEPS = ["train.initial.num_train_epochs=0.02", *(f"train.{stage}.max_steps=2" for stage in ("sft", "dpo"))]


def lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Comparisons of the world as PandaLM, LLMBar, the dialogues and Eval-P write theirs."""
    comparisons = eval_comparisons(WorldConfig(eval_comparisons=72), seed=6)
    root = tmp_path_factory.mktemp("published")
    number = {"A": "1", "B": "2", "tie": "0"}
    votes = [
        {"idx": str(i), "motivation_app": "x", "instruction": c.dialogue.query, "input": "", "response1": c.response_a}
        | {"response2": c.response_b}
        | {f"annotator{k}": number[str(c.label)] for k in (1, 2, 3)}
        for i, c in enumerate(comparisons[:30])
    ]
    lines(root / "pandalm/testset-v1.jsonl", votes)
    pairs = [
        {"id": f"P-{i}", "input": c.dialogue.query, "output_1": c.response_a, "output_2": c.response_b}
        | {"label": int(number[str(c.label)])}
        for i, c in enumerate(c for c in comparisons[30:46] if c.label != "tie")
    ]
    lines(root / "processed_pairs/some.jsonl", pairs)
    dialogues = [
        {"id": f"d{i}", "source": "x", "messages": [{"role": "user", "content": c.dialogue.query}]}
        | {"reference": c.response_a}
        for i, c in enumerate(comparisons[46:60])
    ]
    lines(root / "dialogues/dialogues.jsonl.gz", dialogues)
    measured = [
        {"id": f"e{i}", "scenario": "planning", "prompt": c.dialogue.query, "response_1": c.response_a}
        | {"response_2": c.response_b, "label": {"A": "0", "B": "1", "tie": "2"}[str(c.label)]}
        for i, c in enumerate(comparisons[60:])
    ]
    lines(root / "eval_p/dev.jsonl", measured)
    return root


def made(root: Path, stage: str) -> Path:
    return next((root / "outputs/artifacts" / stage).iterdir())


def test_people_s_labels_and_constructed_pairs_reach_every_judge(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = ["train.base.path=world", "cluster.encoder=static:world", "prompts=compact", *SHORT]
    rates = ["train.initial.max_length=400", "train.sft.max_length=400", "train.dpo.max_length=400"]
    words = ["evaluate.benchmarks.0.max_chars=null", "evaluate.methods=[base,initial,sft,dpo,random,longer,surface]"]
    limits = [f"tree.{step}_sampling.max_new_tokens=64" for step in ("criteria", "guideline", "judgment")]
    overrides = ["recipe=gemma_small", "stage=evaluate", f"data_dir={data}", *world, *rates, *words, *limits, *STEPS]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nn.Module, "compile", partialmethod(nn.Module.compile, backend="eager"))  # traced, no C++
    done = here(*overrides)
    assert done.returncode == 0, done.stderr + done.stdout
    compared = [Comparison.from_row(row) for row in read_rows(made(tmp_path, "responses"), "comparisons")]
    assert {c.dialogue.source for c in compared} == {"pandalm", "pairs", "references"}
    kinds = {(c.made or "").partition(":")[0] for c in compared}
    assert kinds == {"", "nearby", "errors"} and all(c.label for c in compared)
    taught = [row for row in read_rows(made(tmp_path, "teacher"), "examples") if row["level"] == "judgment"]
    assert len(taught) == 24, "twelve comparisons, both orders"
    yields = json.loads((made(tmp_path, "label") / "yield.json").read_text())
    assert "ensemble_vs_given" in yields and not any(reason.startswith("no_") for reason in yields["trees"])
    rows = {row["method"]: row for row in json.loads((made(tmp_path, "evaluate") / "metrics.json").read_text())}
    assert {"base", "initial", "random", "longer", "surface"} <= set(rows)
