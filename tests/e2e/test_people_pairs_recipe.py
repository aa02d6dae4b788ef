"""``recipe=people_pairs`` as shipped, through every stage, on files in the published shapes with the world's rows."""

import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from judgetrain import load_judge
from judgetrain.artifacts.shards import read_rows
from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.pipeline.run import Pipeline
from judgetrain.schema import Comparison
from tests.builders.data import write_lines
from tests.builders.pipeline import configured

CRITERIA = ["Helpfulness", "Correctness", "Appropriateness"]


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of JSON to a file of a directory that is made for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        with gzip.open(path, "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    else:
        write_lines(path, list(rows))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Decided comparisons of the world as the six publications write theirs, twelve queries or more each."""
    root = tmp_path_factory.mktemp("published")
    decided = [row for row in eval_comparisons(WorldConfig(eval_comparisons=240), seed=6) if row.label != "tie"]
    rows = iter(decided)

    def some(number: int) -> list[Comparison]:
        return [next(rows) for _ in range(number)]

    pandalm = []
    for number, row in enumerate(some(40)):
        vote = "1" if row.label == "A" else "2"
        people = {"annotator1": vote, "annotator2": vote, "annotator3": vote}
        texts = {"instruction": row.dialogue.query, "response1": row.response_a, "response2": row.response_b}
        pandalm.append({"idx": number, "input": "", **texts, **people})
    write(root / "pandalm/testset-v1.jsonl", pandalm)

    bar = []
    for row in some(20):
        vote = "1" if row.label == "A" else "2"
        texts = {"input": row.dialogue.query, "output_1": row.response_a, "output_2": row.response_b}
        bar.append({**texts, "label": vote})
    write(root / "processed_pairs/some.jsonl", bar)

    answers = []
    votes = []
    for number, row in enumerate(some(20)):
        for model, text in (("ann", row.response_a), ("ben", row.response_b)):
            answers.append(
                {"question_id": number, "model": model, "questions": [row.dialogue.query], "answers": [text]}
            )
        winner = "model_a" if row.label == "A" else "model_b"
        votes += 2 * [{"question_id": number, "turn": 1, "model_a": "ann", "model_b": "ben", "winner": winner}]
    write(root / "mt_bench_human/human_votes.jsonl", votes)
    write(root / "mt_bench_human/model_answers.jsonl", answers)

    harmless = []
    for row in some(60):
        better, worse = (row.response_a, row.response_b) if row.label == "A" else (row.response_b, row.response_a)
        asked = f"\n\nHuman: {row.dialogue.query}\n\nAssistant:"
        harmless.append({"chosen": f"{asked} {better}", "rejected": f"{asked} {worse}"})
    write(root / "hh_harmless/pairs.jsonl.gz", harmless)

    hhh = []
    criterion = {"criterion": "Is it harmless?", "levels": {str(level): "so" for level in range(1, 6)}}
    for number, row in enumerate(some(12)):
        texts = {"query": row.dialogue.query, "response_a": row.response_a, "response_b": row.response_b}
        hhh.append({"id": number, **texts, "label": row.label, **criterion})
    write(root / "hhh_alignment/pairs.jsonl", hhh)

    eval_p = []
    for number, row in enumerate(some(12)):
        label = "0" if row.label == "A" else "1"
        texts = {"prompt": row.dialogue.query, "response_1": row.response_a, "response_2": row.response_b}
        eval_p.append({"id": number, "scenario": "planning", **texts, "label": label})
    write(root / "eval_p/dev.jsonl", eval_p)
    return root


def made(root: Path, stage: str) -> Path:
    return next((root / "outputs/artifacts" / stage).iterdir())


def test_people_s_labels_reach_every_judge(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = ["train.base.path=world", "cluster.encoder=static:world", "cluster.n_clusters=4"]
    few = ["teacher.comparisons=12", "tree.max_comparisons=16", "train.initial.min_steps=0", "train.sft.min_steps=0"]
    # So many that the base, which writes whole judgments, learns to say a score alone.
    steps = ["train.initial.max_steps=30", "train.initial.learning_rate=1e-3"]
    steps += ["train.initial.global_accumulation_steps=1", "train.sft.max_steps=2", "train.dpo.max_steps=2"]
    monkeypatch.chdir(tmp_path)
    # The shipped file names queries of PandaLM; here those of its first five rows were measured on.
    hashes = []
    for line in (data / "pandalm/testset-v1.jsonl").read_text().splitlines()[:5]:
        hashes.append(hashlib.sha256(json.loads(line)["instruction"].lower().encode()).hexdigest()[:16])
    (tmp_path / "measured.txt").write_text("\n".join(hashes))
    config = configured("recipe=people_pairs", f"data_dir={data}", "track.tracker=none", *world, *few, *steps)
    for benchmark in (config.dialogues.decontaminate[1], config.evaluate.benchmarks[1]):
        assert benchmark.name == "pandalm_measured"
        benchmark.only = str(tmp_path / "measured.txt")
    Pipeline(config).run("evaluate")

    compared = [Comparison.from_row(row) for row in read_rows(made(tmp_path, "responses"), "comparisons")]
    assert {row.dialogue.source for row in compared} == {"pandalm", "pairs", "mt_bench", "hh_harmless"}
    taught = [row for row in read_rows(made(tmp_path, "teacher"), "examples") if row["level"] == "judgment"]
    said = {row["comparison_id"]: [] for row in taught}
    for row in taught:
        criterion = row["prompt"][-1]["content"].rpartition("Criterion: ")[2].partition(":")[0]
        said[row["comparison_id"]].append((criterion, row["completion"][0]["content"]))
    assert len(said) == 12
    for comparison, judgments in said.items():
        # What people were asked of these is another thing, and often speaks against what they like.
        criteria = {"Harmlessness"} if comparison.startswith("hh_harmless") else set(CRITERIA)
        expected = [(name, score) for name in criteria for score in ("Score: 2", "Score: 4")]
        assert sorted(judgments) == sorted(expected), "each criterion, two responses"
    assert any(comparison.startswith("hh_harmless") for comparison in said)
    yields = json.loads((made(tmp_path, "label") / "yield.json").read_text())
    assert "ensemble_vs_given" in yields and not any(reason.startswith("no_") for reason in yields["trees"])
    rows = {row["method"]: row for row in json.loads((made(tmp_path, "evaluate") / "metrics.json").read_text())}
    assert {"initial+given", "longer", "surface"} <= set(rows)

    # The judge carries the criteria that it was taught by, through all trainings.
    with load_judge(made(tmp_path, "dpo") / "model") as judge:
        prediction = judge("Which of them is it?", compared[0].response_a, compared[0].response_b)
    assert {reason.name for reason in prediction.reasons} == set(CRITERIA)
