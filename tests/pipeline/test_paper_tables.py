"""The recipes of the branching paper's tables: valid configurations that name the paper's rows, without network."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from judgetrain.engines import config as config_of_engines
from judgetrain.engines import lazy_model
from judgetrain.judges.config import LEVELS, JudgeConfig
from judgetrain.judges.method import Method
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline
from tests.builders import pipeline
from tests.builders.pipeline import check_stage, composed
from tests.builders.scripted import ScriptedEngine, noisy


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory as the recipes expect it: Eval-P's rows in their published shape, and judges."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    scenarios = ("post_summarization", "code_generation", "others", "chitchat")
    rows = [
        {
            "prompt": f"query {i}",
            "response 1": f"one {i}",
            "response 2": f"two {i}",
            "label": i % 3,
            "scenario": scenarios[i % 4],
            "autoj_output": i % 3,
            "autoj_output_swapped": {0: 1, 1: 0, 2: 2}[i % 3] if i % 4 else 2,
        }
        for i in range(24)
    ]
    (tmp_path / "eval_p").mkdir()
    (tmp_path / "eval_p" / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = ("id-initial", "id-sft", "id-dpo", "ood-initial", "ood-sft", "ood-dpo", "ood-dpo-gpt4", "fennec")
    for name in (*names, "transfer-sft", "transfer-dpo"):
        judge = tmp_path / "judges" / name
        shutil.copytree(config_of_engines.WORLD_BASE, judge, copy_function=os.symlink)
        load_prompt_set("compact").save(judge)
        JudgeConfig().save(judge, 10)
    (tmp_path / "convai2").mkdir()
    (tmp_path / "convai2" / "train.txt").write_text("1 hello\\thi\\n")
    return tmp_path


def configured(table: str, data: Path, *overrides: str) -> Config:
    where = (f"data_dir={data}", f"output_dir={data / 'out'}", "track.tracker=none")
    short = (f"judge.{step}_tokens=64" for step in LEVELS)  # the judges are the world's base, which reads 512
    return pipeline.configured(f"recipe=tables/{table}", "stage=evaluate", *where, *short, *overrides)


@pytest.fixture(autouse=True)
def no_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not installed where there is no GPU."""
    monkeypatch.setattr(config_of_engines, "check_package", lambda module, because: None)


def test_table_1_has_the_papers_rows(data: Path) -> None:
    config = configured("table1", data)
    check_stage("evaluate", config)
    names = [Method.parse(method).name for method in config.evaluate.methods]
    paper = ["stored:auto-j", "fennec", "id-sft", "id-dpo", "pairwise:external", "ood-initial", "ood-sft", "ood-dpo"]
    assert [n for n in names if n not in ("random", "first", "longer")] == [*paper, "transfer-sft", "transfer-dpo"]
    assert {1, 3, 5, 10} <= set(config.evaluate.branches), "the numbers of branches that the table shows"
    assert [b.name for b in config.evaluate.benchmarks] == ["eval_p", "mt_bench"]
    assert list(Pipeline(config).needed("evaluate")) == ["evaluate"], "given the models, nothing is trained"


def test_table_2_is_filled_by_a_run(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_model, "make_engine", lambda *args, **options: ScriptedEngine(noisy))
    config = configured("table2", data, "evaluate.bootstrap=20")
    directory = Pipeline(config).run("evaluate")
    text = (directory / "report.md").read_text(encoding="utf-8")
    table = text[text.index("### Agreement by domain") :].splitlines()
    columns = [c.strip() for c in table[2].strip("|").split("|")]
    assert columns == [
        "method",
        "branches",
        "Code (6)",
        "General Communication (6)",
        "Others (6)",
        "Summarization (6)",
        "all",
    ]
    cells = {
        tuple(c.strip() for c in line.strip("|").split("|")[:2]): line for line in table[4:] if line.startswith("| ")
    }
    wanted = {("id-initial", "5"), ("id-sft", "5"), ("id-dpo", "5"), ("ood-initial", "10"), ("ood-sft", "10")}
    wanted |= {("ood-dpo", "3"), ("ood-dpo-gpt4", "5"), ("transfer-sft", "10"), ("transfer-dpo", "5")}
    assert wanted <= set(cells)
    # Auto-J's stored verdicts are the label in one order, and in the other but for every fourth item: of the scenario
    # that comes first, only those whose label is a tie anyway agree.
    agreed = [i % 4 != 0 or i % 3 == 2 for i in range(24)]
    shares = [sum(agreed[i] for i in range(24) if i % 4 == k) / 6 for k in (1, 3, 2, 0)]
    expected = [f"{100 * share:.1f}" for share in (*shares, sum(agreed) / 24)]
    assert [c.strip() for c in cells["stored:auto-j", "–"].strip("|").split("|")[2:]] == expected


def marks_of(data: Path, recipe: str, stages: Iterable[str]) -> dict[str, str]:
    """The fingerprints of stages of a recipe."""
    pipe = Pipeline(pipeline.configured(f"recipe={recipe}", f"data_dir={data}", f"output_dir={data / 'out'}"))
    return {name: pipe.plan(name).fingerprint for name in stages}


def test_the_judge_whose_pairs_gpt4_labels_starts_from_the_same_sft_judge(data: Path) -> None:
    """Preferences between critiques make pairs alone: no SFT example changes, and the SFT judge is found."""
    stages = list(Pipeline(pipeline.configured("recipe=paper_ood", f"data_dir={data}")).needed("dpo"))
    ours, gpt4 = marks_of(data, "paper_ood", stages), marks_of(data, "paper_ood_gpt4", stages)
    assert [name for name in stages if ours[name] != gpt4[name]] == ["label", "reference", "dpo"]


def test_table_4_is_a_sweep_over_the_teachers_evaluations(data: Path) -> None:
    whole: Any = composed("recipe=tables/table4", hydra=True)
    assert dict(whole.hydra.sweeper.params) == {"teacher.comparisons": "1000,2000,3000"}
    config = configured("table4", data)
    needed = list(Pipeline(config).needed("evaluate"))
    assert needed == ["dialogues", "cluster", "responses", "teacher", "initial", "evaluate"]
    marks = [
        {n: Pipeline(configured("table4", data, f"teacher.comparisons={k}")).plan(n).fingerprint for n in needed}
        for k in (1000, 2000)
    ]
    assert [n for n in needed if marks[0][n] == marks[1][n]] == ["dialogues", "cluster", "responses"], "made once"
    ood = marks_of(data, "paper_ood", needed)
    assert all(marks_of(data, "tables/table4", needed)[n] == ood[n] for n in needed[:-1]), "3k is table 1's Initial"
    assert (config.evaluate.methods, config.evaluate.branches) == (["initial"], [10])
    for name in ("dialogues", "teacher", "evaluate"):
        check_stage(name, config)
