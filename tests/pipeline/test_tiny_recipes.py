"""Every shipped recipe runs to its end on tiny models and data: what it names exists and fits together."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace

import pytest

from judgetrain.artifacts.shards import read_rows
from judgetrain.data.config import SourceConfig
from judgetrain.engines.config import WORLD_BASE, TransformersEngineConfig
from judgetrain.judges.config import JudgeConfig
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.label import labels
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.options import recipes
from judgetrain.pipeline.run import Pipeline
from tests.builders.faulty_server import serving
from tests.builders.pipeline import configured
from tests.builders.scripted import ScriptedEngine
from tests.builders.tiny import Tiny, answer, judge, write_files

STAGE = {
    "corpus": "cluster",
    "paper_dialogues": "cluster",
    "selfeval": "studies",
    "stress": "stress",
    "pairs": "correct",
    "tables/table3": "correct",
    "tables/scenarios": "scenarios",
    "tables/glassbox": "correlate",
    "tables/glassbox_references": "correlate",
    "tables/glassbox_stored": "correlate",
    "tables/probdiff_align": "studies",
    "tables/probdiff_hypothesis": "studies",
    "tables/probdiff_leaderboard": "studies",
    "tables/probdiff_tuned": "studies",
    "sweeps/probdiff_temperature": "selfeval",
    "label_queue": "label_queue",
}
"""What the recipe is for; of the others stage evaluate."""
JUDGES = (
    *("id-initial", "id-sft", "id-dpo", "ood-initial", "ood-sft", "ood-dpo", "ood-dpo-gpt4"),
    *("transfer-sft", "transfer-dpo", "fennec"),
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    """One directory for all recipes: what two of them shrink to alike is made once."""
    home = tmp_path_factory.mktemp("tiny")
    write_files(home)
    for name in JUDGES:
        shutil.copytree(WORLD_BASE, home / "judges" / name, copy_function=os.symlink)
        load_prompt_set("compact").save(home / "judges" / name)
        JudgeConfig().save(home / "judges" / name, 10)
    with serving() as server:
        server.reply = answer
        yield Tiny(home, f"http://127.0.0.1:{server.server_port}/v1")


def scripted_engine(config: TransformersEngineConfig) -> ScriptedEngine:
    return ScriptedEngine(judge)


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Local models that judge are scripted: a base trained for one step writes nothing that can be read."""
    monkeypatch.setattr(TransformersEngineConfig, "makes", f"{__name__}:scripted_engine")
    monkeypatch.setattr(labels, "MIN_READABLE", 0.0)
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def shrunk(name: str, tiny: Tiny, *overrides: str) -> Config:
    where = (f"data_dir={tiny.home}", f"output_dir={tiny.home / 'out'}", "track.tracker=none")
    return tiny.shrink(configured(f"recipe={name}", *where, *overrides))


@pytest.mark.parametrize("name", list(recipes()))
def test_the_recipe_runs(name: str, tiny: Tiny) -> None:
    config = shrunk(name, tiny)
    if name == "paper_transfer":  # the evaluations that the out-of-distribution setting's teacher wrote
        written = Pipeline(shrunk("paper_ood", tiny)).run("teacher")
        config.teacher.evaluations = f"{written}/evaluations-*.jsonl"
    stage = STAGE.get(name, "evaluate")
    directory = Pipeline(config).run(stage)
    assert (directory / "manifest.json").is_file()
    if stage in ("evaluate", "studies", "correlate", "scenarios", "stress"):
        assert (directory / "report.html").stat().st_size > 1000


def test_the_in_distribution_setting_grows_trees_over_the_comparisons_that_the_teacher_saw(tiny: Tiny) -> None:
    """Table 6: the same dialogues in every stage."""
    pipeline = Pipeline(shrunk("paper_id", tiny))
    seen = {
        stage: {row["comparison_id"] for row in read_rows(pipeline.run(stage), name)}
        for stage, name in (("teacher", "examples"), ("label", "labels"))
    }
    assert len(seen["label"]) > 10 and seen["teacher"] <= seen["label"]


def test_correction_pairs_are_among_what_the_sft_judge_learns(tiny: Tiny) -> None:
    """Table 3: what stage correct wrote, as recipe=paper_ood's label.corrections."""
    written = Pipeline(shrunk("tables/table3", tiny)).run("correct")
    corrected = sum(row["corrected"] is not None for row in read_rows(written, "corrections"))
    plain, config = (shrunk("paper_ood", tiny) for _ in range(2))
    config.label.corrections = SourceConfig(path=f"{written}/corrections-*.jsonl")
    without, taught = (
        json.loads((Pipeline(each).run("sft") / "manifest.json").read_text())["counts"] for each in (plain, config)
    )
    labelled = Pipeline(config).run("label")
    held = sum(row["level"] == "correction" for row in read_rows(labelled, "sft-heldout"))
    assert corrected > held
    assert taught["in"] - without["in"] == corrected - held


def test_models_side_by_side_and_judged_against_each_other(tiny: Tiny) -> None:
    """The fine-tuned model against its base (ProbDiff, tables 2 and 3, figure 4): here the base at two temperatures."""
    base = shrunk("tables/probdiff_align", tiny)
    other = shrunk("tables/probdiff_align", tiny, "scorer.revision_temperature=null")
    Pipeline(other).run("selfeval")
    config = replace(base)
    config.studies.against = [f"{tiny.home}/out/artifacts/selfeval/*"]
    config.studies.duels = "pairwise:external"
    page = (Pipeline(config).run("studies") / "report.md").read_text(encoding="utf-8")
    assert "revision_temperature=0.1" in page and "revision_temperature=None" in page
    assert "### Confidence by group" in page and "### Answers judged against each other" in page
