"""Every shipped recipe runs to its end on tiny models and data: what it names exists and fits together.

Stages and settings are the recipe's. Sources and benchmarks are files of the generated world in their place, models the
shipped base, trained for a step; judges that generate are scripted, and endpoints are a server on this machine.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from judgetrain.artifacts.files import write_rows_atomic
from judgetrain.artifacts.shards import read_rows
from judgetrain.data import world
from judgetrain.data.config import BenchmarkConfig, ClusterConfig, SourceConfig, WorldConfig, WorldEngineConfig
from judgetrain.engines import config as engines
from judgetrain.engines.base import Request, Sampling
from judgetrain.extras.correlate.config import ColumnConfig
from judgetrain.extras.probdiff_studies import stage as studies_stage
from judgetrain.judges.config import JudgeConfig
from judgetrain.judges.trees.config import TreeConfig
from judgetrain.label import labels
from judgetrain.pipeline import recipes
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.schema import Comparison
from judgetrain.train.config import TrainConfig, TrainerConfig
from tests.builders.evaluate import world_judge
from tests.builders.faulty_server import serving
from tests.builders.pipeline import configured
from tests.builders.scripted import ScriptedEngine, judged, noisy, number

WORLD = WorldConfig(train_dialogues=24, eval_comparisons=16)
TOKENS = 24


@dataclasses.dataclass(frozen=True)
class Tiny:
    """What recipes are shrunk to: a directory for files, and the address of a server."""

    home: Path
    url: str

    def shrink(self, config: Config) -> Config:
        """Make everything in a configuration tiny, in place, and return it."""
        config.dialogues.world = WORLD
        every = config.teacher.comparisons >= config.cluster.sample
        config.teacher.comparisons = 1000 if every else 10
        config.teacher.branches = 2
        config.teacher.both_orders = True
        if config.teacher.judged is not None:
            config.teacher.judged = 10
        if config.teacher.evaluations:
            config.teacher.evaluations = str(self.home / "evaluations.jsonl")
        # The annotator knows the world's criteria, and none of a file.
        if not getattr(config.teacher.engine, "by_criteria", False):
            config.teacher.engine = WorldEngineConfig(name="annotator")
            config.criteria = None
        for place, model in enumerate(config.responses.models):
            model.engine = WorldEngineConfig(skill=0.3 + 0.1 * place)
        evaluate = config.evaluate
        gone = {f"stored:{s.name}" for s in config.stored.verdicts if s.source.path}  # votes, of which no world has any
        config.stored.verdicts = [s for s in config.stored.verdicts if not s.source.path]
        evaluate.methods = [method for method in evaluate.methods if method not in gone]
        self._walk(config)
        config.train.distributed = "none"
        config.train.base = engines.ModelConfig(path="world")
        config.prompts = "compact"
        config.label.holdout = 0.3  # some of so few comparisons
        config.rl.labels = "label"  # a judge trained for a step says nothing of its own
        config.rl.comparisons_per_step = config.rl.num_generations = 2
        config.label.min_evidence = 0.5
        config.evaluate.branches = [1, 2]
        config.evaluate.bootstrap = 20
        config.evaluate.benchmarks = config.evaluate.benchmarks[:2]
        config.dialogues.decontaminate = []
        config.robustness.sample = min(2, config.robustness.sample)
        config.selfeval.limit = 3
        config.scorer.max_new_tokens = TOKENS
        studies = config.studies
        studies.prompts = min(2, studies.prompts)
        studies.spread_prompts = min(1, studies.spread_prompts)
        config.verdicts.judge = config.verdicts.judge.partition("@")[0] + "@2"
        return config

    def _walk(self, node: Any) -> None:
        for field in dataclasses.fields(node):
            value = getattr(node, field.name)
            if isinstance(value, list):
                setattr(node, field.name, [self._small(entry) for entry in value])
            elif dataclasses.is_dataclass(value):
                setattr(node, field.name, self._small(value))

    def _small(self, value: Any) -> Any:
        """Return a part of the configuration, made small; parts of it too."""
        if isinstance(value, ColumnConfig):
            return replace(value, source=replace(value.source, path=str(self._column(value))))
        if isinstance(value, BenchmarkConfig):
            return self._benchmark(value)
        if isinstance(value, SourceConfig):
            return self._source(value)
        if isinstance(value, engines.LocalEngineConfig):
            return engines.TransformersEngineConfig(model=engines.ModelConfig(path="world"), batch_size=16)
        if isinstance(value, engines.OpenAIEngineConfig):
            return replace(value, base_url=self.url, api_key_env="")
        if isinstance(value, engines.ModelConfig):
            return engines.ModelConfig(path="world") if value.path else value
        if isinstance(value, engines.SamplingConfig):
            return replace(value, max_new_tokens=TOKENS)
        if isinstance(value, JudgeConfig):
            return replace(value, criteria_tokens=TOKENS, guideline_tokens=TOKENS, judgment_tokens=TOKENS)
        if isinstance(value, ClusterConfig):
            return replace(value, encoder="static:world", backend="sklearn", n_clusters=3, sample=20)
        if isinstance(value, TreeConfig):
            value.criteria = 3
            value.guidelines = 2
            value.max_comparisons = None
            value.shard_size = 32
        if isinstance(value, TrainerConfig):
            value.max_steps = 1
            value.per_device_train_batch_size = 2
            if isinstance(value, TrainConfig):
                value.global_accumulation_steps = 1
            value.max_length = 512
            value.bf16 = False
            value.gradient_checkpointing = False
        if dataclasses.is_dataclass(value):
            self._walk(value)
        return value

    def _source(self, source: SourceConfig) -> SourceConfig:
        """Return the world's dialogues or comparisons in the place of a source, under its name."""
        if source.type == "world" or not (source.path or getattr(source, "dataset", None) or source.adapter):
            return source
        compared = source.format == "comparison" or bool(source.adapter)
        path = self.home / f"{'comparisons' if compared else 'dialogues'}.jsonl"
        kind = "comparisons" if compared else "jsonl"
        columns = source.fields
        single = compared and "response_a" in columns and columns["response_a"] == columns.get("response_b")
        fields = {"response_a": "response_a", "response_b": "response_a"} if single else {}
        shape = "comparison" if compared else "auto"
        return type(source)(name=source.name, type=kind, path=str(path), format=shape, fields=fields)

    def _benchmark(self, benchmark: BenchmarkConfig) -> BenchmarkConfig:
        """Eval-P's published shape for what reads it so, else comparisons with their labels."""
        if benchmark.source.type == "world":
            return benchmark
        if benchmark.source.adapter == "eval_p":
            path = str(self.home / "eval_p" / "test.jsonl")
            return replace(benchmark, source=SourceConfig(type="jsonl", path=path, adapter="eval_p"))
        source = SourceConfig(type="comparisons", path=str(self.home / "comparisons.jsonl"), format="comparison")
        return BenchmarkConfig(name=benchmark.name, source=source)

    def _column(self, column: ColumnConfig) -> Path:
        """Numbers of three questions, of the columns' names."""
        path = self.home / "columns" / f"{column.name}-{column.benchmark}-{column.model}.jsonl"
        rows = [
            {column.id: i, "benchmark": "b", "model": "m", **column.where, column.value: (i * 7 + len(path.name)) % 5}
            for i in range(5)
        ]
        write_rows_atomic(path, rows)
        return path


def write_files(home: Path) -> None:
    """Write the files that shrunk recipes read."""
    dialogues = world.train_dialogues(WORLD, 5)
    write_rows_atomic(home / "dialogues.jsonl", map(_dialogue, range(len(dialogues)), dialogues))
    pairs = world.eval_comparisons(WORLD, 5)
    write_rows_atomic(home / "comparisons.jsonl", map(_comparison, pairs))
    write_rows_atomic(home / "eval_p" / "test.jsonl", map(_eval_p, range(len(pairs)), pairs))


def _dialogue(number: int, dialogue: Any) -> Mapping[str, Any]:
    return {"id": number, "query": dialogue.query, "category": f"c{number % 2}", "reference": "the answer is here ."}


def _comparison(item: Comparison) -> Mapping[str, Any]:
    return {
        "id": item.id,
        "query": item.dialogue.query,
        "response_a": item.response_a,
        "response_b": item.response_b,
        "label": item.label,
        "category": item.group,
    }


def _eval_p(number: int, item: Comparison) -> Mapping[str, Any]:
    """Return a row as Auto-J publishes it."""
    return {
        "prompt": item.dialogue.query,
        "response 1": item.response_a,
        "response 2": item.response_b,
        "label": ("A", "B", "tie").index(item.label or "tie"),
        "scenario": ("post_summarization", "code_generation", "others", "chitchat")[number % 4],
        "autoj_output": number % 3,
        "autoj_output_swapped": number % 2,
    }


def judge(request: Request, occurrence: int) -> str:
    """Return what a local judge says: scores of what it reads, whatever the order; exchanged for some second prompts.

    So trees have branches that survive, and pairs of judgments that disagree.
    """
    if request.step in ("criteria", "guideline"):
        return noisy(request, occurrence)
    if request.step != "judgment":
        return "a better text ." if request.step == "correction" else answer(request.messages[-1]["content"])
    slots = request.slots
    if "response" in slots:
        score = 1 + number(slots["criterion"], slots["response"]) % 5
        # Some second judgments differ, as of two responses.
        return f"Score: {1 + score % 5 if occurrence and number(slots['response']) % 2 else score}"
    a, b = (1 + number(slots["criterion"], slots[f"response_{side}"]) % 5 for side in "ab")
    if occurrence and number(slots["guideline"]) % 2:
        a, b = b, a
    return judged(a, b, f" {'abcdefgh'[occurrence % 8]}")


def answer(text: str) -> str:
    """Return what the server says: a verdict, preference or rating in the form that the prompt asks for."""
    draw = sum(map(ord, text))
    if "[[X]]" in text:
        return "[[X]]" if text.find(": x a") < text.find(": x b") else "[[Y]]"  # the first sample, in either order
    if "[[A]]" in text:
        return "[[A]]"
    return f"Rating: [[{1 + draw % 10}]]"


STAGE = {
    **dict.fromkeys(("corpus", "paper_dialogues"), "cluster"),
    **dict.fromkeys(("pairs", "tables/table3"), "correct"),
    **{f"tables/glassbox{kind}": "correlate" for kind in ("", "_references", "_stored")},
    **{f"tables/probdiff_{kind}": "studies" for kind in ("align", "hypothesis", "leaderboard", "tuned")},
    "selfeval": "studies",
    "sweeps/probdiff_temperature": "selfeval",
    "tables/scenarios": "scenarios",
}
"""What the recipe is for; of the others stage evaluate."""
JUDGES = (
    *("id-initial", "id-sft", "id-dpo", "ood-initial", "ood-sft", "ood-dpo", "ood-dpo-gpt4"),
    *("transfer-sft", "transfer-dpo", "fennec"),
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    """Yield one directory for all recipes: what two of them shrink to alike is made once."""
    home = tmp_path_factory.mktemp("tiny")
    write_files(home)
    for name in JUDGES:
        world_judge(home / "judges" / name)
    with serving() as server:
        server.reply = answer
        yield Tiny(home, f"http://127.0.0.1:{server.server_port}/v1")


def scripted_engine(config: engines.TransformersEngineConfig) -> ScriptedEngine:
    return ScriptedEngine(judge)


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Local models that judge are scripted: a base trained for one step writes nothing that can be read."""
    monkeypatch.setattr(engines.TransformersEngineConfig, "makes", f"{__name__}:scripted_engine")
    monkeypatch.setattr(labels, "MIN_READABLE", 0.0)
    monkeypatch.setattr(nn.Module, "compile", partialmethod(nn.Module.compile, backend="eager"))  # traced, no C++
    monkeypatch.setattr(studies_stage, "SAMPLES", 2)
    monkeypatch.setattr(studies_stage, "SAMPLING", Sampling(temperature=0.7, max_new_tokens=TOKENS))
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
    if stage in ("evaluate", "studies", "correlate", "scenarios"):
        assert (directory / "report.html").stat().st_size > 1000


def test_the_in_distribution_setting_grows_trees_over_the_comparisons_that_the_teacher_saw(tiny: Tiny) -> None:
    """Table 6: the same dialogues in every stage."""
    pipeline = Pipeline(shrunk("paper_id", tiny))
    seen = {
        stage: {row["comparison_id"] for row in read_rows(pipeline.run(stage), name)}
        for stage, name in (("teacher", "examples"), ("label", "labels"))
    }
    assert len(seen["label"]) > 10 and seen["teacher"] <= seen["label"]


def test_models_side_by_side_and_judged_against_each_other(tiny: Tiny) -> None:
    # The fine-tuned model against its base (ProbDiff, tables 2 and 3, figure 4): here the base at two temperatures.
    base = shrunk("tables/probdiff_align", tiny)
    other = shrunk("tables/probdiff_align", tiny, "scorer.revision_temperature=null")
    Pipeline(other).run("selfeval")
    config = replace(base)
    config.studies.against = [f"{tiny.home}/out/artifacts/selfeval/*"]
    config.studies.duels = "pairwise:external"
    page = (Pipeline(config).run("studies") / "report.md").read_text(encoding="utf-8")
    assert "revision_temperature=0.1" in page and "revision_temperature=None" in page
    assert "### Confidence by group" in page and "### Answers judged against each other" in page
