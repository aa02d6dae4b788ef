"""The recipes of the paper: they compose without network, and hold the numbers that it prints."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from judgetrain.engines import config as config_of_engines
from judgetrain.errors import ConfigError
from judgetrain.extras.probdiff_studies import stage as studies
from judgetrain.judges.method import Method
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.config import LEVELS
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.scorers import glassbox, probdiff
from judgetrain.train.distributed import check_distributed
from judgetrain.train.stages import check_shared
from tests.builders import pipeline
from tests.builders.evaluate import world_judge
from tests.builders.pipeline import check_stage, composed, configured

SETTINGS = ("paper_ood", "paper_id", "paper_transfer")


def recipe(name: str, *overrides: str) -> Config:
    return configured(f"recipe={name}", *overrides)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_papers_numbers(name: str) -> None:
    """Appendix A.2: learning rates, one epoch, accumulation 32 on each of 8 GPUs, beta, ZeRO-3, bfloat16."""
    config = recipe(name, "train.processes=8")
    stages = (config.train.initial, config.train.sft, config.train.dpo)
    assert [s.learning_rate for s in stages] == [1e-5, 1e-5, 5e-7]
    assert {(s.num_train_epochs, s.global_accumulation_steps / 8, s.bf16) for s in stages} == {(1.0, 32, True)}
    assert config.train.dpo.beta == 0.1
    assert (config.train.distributed, config.train.base.path) == ("zero3", "HuggingFaceH4/zephyr-7b-beta")
    assert (config.tree.criteria, config.tree.guidelines, config.tree.judgments) == (10, 2, 2)
    assert config.teacher.comparisons == 3000
    seven = recipe(name, "train.processes=7")
    for stage in ("initial", "sft", "dpo"):
        check_shared(f"train.{stage}", getattr(config.train, stage), check_distributed(config.train))
        with pytest.raises(ConfigError, match=f"train.{stage}.per_device_train_batch_size=1 .* over 7 .*=7"):
            check_shared(f"train.{stage}", getattr(seven.train, stage), check_distributed(seven.train))


def test_out_of_distribution_draws_from_clusters_and_in_distribution_uses_the_same_in_every_stage() -> None:
    config = recipe("paper_ood")
    assert (config.cluster.n_clusters, config.cluster.sample) == (1000, 7000)
    assert config.cluster.backend == "cuml"
    assert len(config.responses.models) == 5
    assert sum(s.name == "ultrachat" for s in config.dialogues.sources) == 1
    config = recipe("paper_id")
    assert config.teacher.comparisons >= config.cluster.sample == 3000
    assert config.responses.models == []
    assert config.train.dpo.keep_best


def test_transfer_takes_written_evaluations_and_grows_over_auto_js_own_pairs() -> None:
    config = recipe("paper_transfer", "data_dir=DIR")
    assert config.teacher.evaluations == "DIR/ood_evaluations/*.jsonl"
    assert [(s.name, s.format, s.sample, s.limit) for s in config.dialogues.sources] == [
        ("auto_j", "comparison", 2000, None)
    ]
    assert config.responses.models == []
    assert config.cluster.sample >= 2000, "every dialogue is kept"


def test_the_numbers_of_probdiff_and_of_the_glass_box_scores() -> None:
    """ProbDiff 3.1, 4.1, 4.2, table 7 and appendix D; glass-box 4 (ten passes)."""
    assert (probdiff.DELTA, probdiff.SWEEP) == (-0.05, (0.0, -0.05, -0.1))
    assert (studies.TIMES, studies.SAMPLES, studies.SAMPLING.temperature) == (3, 100, 0.7)
    assert glassbox.PASSES == 10
    mt_bench = {"writing": 0.7, "roleplay": 0.7, "extraction": 0.0, "math": 0.0, "coding": 0.0, "reasoning": 0.0}
    mt_bench |= {"stem": 0.1, "humanities": 0.1}
    for name in ("selfeval", *(f"tables/probdiff_{what}" for what in ("leaderboard", "tuned", "hypothesis"))):
        config = recipe(name)
        assert (config.selfeval.sampling.temperature, config.scorer.revision_temperature) == (0.7, 0.1), name
        assert (config.selfeval.temperatures, config.selfeval.sampling.top_p) == (mt_bench, 1.0), name
    align = recipe("tables/probdiff_align")
    assert (align.selfeval.sampling.temperature, align.scorer.revision_temperature) == (0.1, 0.1)
    assert recipe("tables/probdiff_hypothesis").studies.spread_prompts == 10


def test_table_6() -> None:
    """Dialogues of the Initial judge, SFT and DPO: 3k 2k 2k, 3k 1k 1k (of their own), and 3k of the same."""
    ood, transfer, same = (recipe(name, "data_dir=DIR") for name in ("paper_ood", "paper_transfer", "paper_id"))
    remaining = ood.cluster.sample - ood.teacher.comparisons
    assert (ood.teacher.comparisons, remaining * ood.label.sft_share, remaining * (1 - ood.label.sft_share)) == (
        3000,
        2000,
        2000,
    )
    assert (transfer.cluster.sample * transfer.label.sft_share) == 1000
    assert same.label.sft_share is None


def test_table_5s_gpteacher_has_four_modules_and_flan_is_drawn() -> None:
    sources = {s.name: s for s in recipe("paper_dialogues").dialogues.sources}
    modules = {s.dataset for s in sources.values() if s.name.startswith("gpteacher")}
    assert modules == {"gpteacher", "gpteacher_roleplay", "gpteacher_code", "gpteacher_toolformer"}
    assert (sources["flan_v2"].sample, sources["flan_v2"].limit) == (74_000, None)


def test_the_pairs_of_gpt4_are_labelled_one_by_one() -> None:
    """Table 2's row: the same stages as paper_ood but for the labels of the pairs."""
    ours = recipe("paper_ood", "data_dir=DIR")
    gpt4 = recipe("paper_ood_gpt4", "data_dir=DIR")
    external = gpt4.label.external
    assert (gpt4.label.source, external.prompts) == ("external", "preference")
    assert (external.engine.type, external.engine.model) == ("openai", ours.teacher.engine.model)
    for part in ("dialogues", "cluster", "responses", "teacher", "tree", "train", "judge", "engine"):
        assert getattr(gpt4, part) == getattr(ours, part)
    check_stage("label", gpt4)


JUDGED = [*SETTINGS, "paper_ood_gpt4", *(f"tables/{name}" for name in ("table1", "table2", "table3", "table4"))]


@pytest.mark.parametrize("name", [*JUDGED, "tables/scenarios"])
def test_every_row_of_a_table_is_asked_alike_and_in_the_papers_form(name: str) -> None:
    """Tables 1 and 10: two responses in both orders, scores as written, votes; a reply is asked for once."""
    config = recipe(name, "data_dir=DIR")
    judge = config.judge
    tree = config.tree
    ask = config.evaluate.pairwise.sampling
    tokens = {judge.criteria_tokens, judge.guideline_tokens, judge.judgment_tokens, ask.max_new_tokens}
    assert (tokens, judge.temperature, ask.temperature) == ({512}, 0.0, 0.0)
    assert (judge.reads, judge.score, judge.reference) == (tree.reads, tree.score, tree.reference)
    assert (judge.reads, judge.score, judge.reference) == ("two", "parsed", False)
    assert (judge.retries, judge.aggregation, judge.early_stop) == (0, "vote", False)
    assert (config.prompts, config.evaluate.pairwise.prompts) == ("paper", "pairwise")


def test_criteria_and_guidelines_are_written_of_the_query_alone() -> None:
    """Table 10: the dialogue's context is shown to judgments; the words are those of multi_step."""
    paper = load_prompt_set("paper")
    ours = load_prompt_set("multi_step")
    for step in ("criteria", "guideline"):
        assert paper.steps[step]["user"] == ours.steps[step]["user"].replace("{context_block}", "")
    assert paper.steps["judgment"] == ours.steps["judgment"]


@pytest.mark.parametrize("name", [*SETTINGS, "pairs"])
def test_what_is_evaluated_on_is_taken_out_of_training(name: str) -> None:
    config = recipe(name, "data_dir=DIR")
    assert config.dialogues.decontaminate == config.evaluate.benchmarks != []
    other = "evaluate.benchmarks=[{name: mine, source: {path: mine.jsonl, format: comparison}}]"
    mine = recipe(name, "data_dir=DIR", other)
    assert [b.name for b in mine.dialogues.decontaminate] == ["mine"], "one's own benchmark leaks into no training"
    assert recipe(name, "data_dir=DIR", "dialogues.decontaminate=[]").evaluate == config.evaluate


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory as the recipes expect it: Eval-P's rows in their published shape, and judges."""
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
        world_judge(tmp_path / "judges" / name)
    (tmp_path / "convai2").mkdir()
    (tmp_path / "convai2" / "train.txt").write_text("1 hello\\thi\\n")
    return tmp_path


def of_table(table: str, data: Path, *overrides: str) -> Config:
    where = (f"data_dir={data}", f"output_dir={data / 'out'}", "track.tracker=none")
    short = (f"judge.{step}_tokens=64" for step in LEVELS)  # the judges are the world's base, which reads 512
    return pipeline.configured(f"recipe=tables/{table}", "stage=evaluate", *where, *short, *overrides)


@pytest.fixture(autouse=True)
def no_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every package pass for installed: vLLM is not where there is no GPU."""
    monkeypatch.setattr(config_of_engines, "check_package", lambda module, because: None)


def test_table_1_has_the_papers_rows(data: Path) -> None:
    config = of_table("table1", data)
    check_stage("evaluate", config)
    names = [Method.parse(method).name for method in config.evaluate.methods]
    paper = ["stored:auto-j", "fennec", "id-sft", "id-dpo", "pairwise:external", "ood-initial", "ood-sft", "ood-dpo"]
    assert [n for n in names if n not in ("random", "first", "longer")] == [*paper, "transfer-sft", "transfer-dpo"]
    assert {1, 3, 5, 10} <= set(config.evaluate.branches), "the numbers of branches that the table shows"
    assert [b.name for b in config.evaluate.benchmarks] == ["eval_p", "mt_bench"]
    assert list(Pipeline(config).needed("evaluate")) == ["evaluate"], "given the models, nothing is trained"


def test_table_2_has_the_papers_rows(data: Path) -> None:
    config = of_table("table2", data)
    check_stage("evaluate", config)
    judges = {"id-initial", "id-sft", "id-dpo", "ood-initial", "ood-sft", "ood-dpo", "ood-dpo-gpt4", "transfer-sft"}
    names = {Method.parse(method).name for method in config.evaluate.methods}
    assert judges | {"transfer-dpo", "stored:auto-j"} <= names and {3, 5, 10} <= set(config.evaluate.branches)


def marks_of(data: Path, recipe: str, stages: Iterable[str]) -> dict[str, str]:
    """Return the fingerprints of stages of a recipe."""
    pipe = Pipeline(pipeline.configured(f"recipe={recipe}", f"data_dir={data}", f"output_dir={data / 'out'}"))
    return {name: pipe.plan(name).fingerprint for name in stages}


def test_the_judge_whose_pairs_gpt4_labels_starts_from_the_same_sft_judge(data: Path) -> None:
    """Preferences between critiques make pairs alone: no SFT example changes, and the SFT judge is found."""
    stages = list(Pipeline(pipeline.configured("recipe=paper_ood", f"data_dir={data}")).needed("dpo"))
    ours = marks_of(data, "paper_ood", stages)
    gpt4 = marks_of(data, "paper_ood_gpt4", stages)
    assert [name for name in stages if ours[name] != gpt4[name]] == ["label", "reference", "dpo"]


def test_table_4_is_a_sweep_over_the_teachers_evaluations(data: Path) -> None:
    whole: Any = composed("recipe=tables/table4", hydra=True)
    assert dict(whole.hydra.sweeper.params) == {"teacher.comparisons": "1000,2000,3000"}
    config = of_table("table4", data)
    needed = list(Pipeline(config).needed("evaluate"))
    assert needed == ["dialogues", "cluster", "responses", "teacher", "initial", "evaluate"]
    marks = [
        {n: Pipeline(of_table("table4", data, f"teacher.comparisons={k}")).plan(n).fingerprint for n in needed}
        for k in (1000, 2000)
    ]
    assert [n for n in needed if marks[0][n] == marks[1][n]] == ["dialogues", "cluster", "responses"], "made once"
    ood = marks_of(data, "paper_ood", needed)
    assert all(marks_of(data, "tables/table4", needed)[n] == ood[n] for n in needed[:-1]), "3k is table 1's Initial"
    assert (config.evaluate.methods, config.evaluate.branches) == (["initial"], [10])
    for name in ("dialogues", "teacher", "evaluate"):
        check_stage(name, config)
