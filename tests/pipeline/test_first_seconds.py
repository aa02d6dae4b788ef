"""What cannot finish does not start: all that missing stages will read is looked at before the first one runs."""

import json
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import constants

from judgetrain.artifacts.shards import counted
from judgetrain.data.config import ClusterConfig
from judgetrain.engines.config import WORLD_BASE, ModelConfig, OpenAIEngineConfig
from judgetrain.engines.hub import commit_of
from judgetrain.errors import ConfigError, JudgetrainError
from judgetrain.pipeline.run import Pipeline
from tests.builders.data import write_lines
from tests.builders.evaluate import world_judge
from tests.builders.fake_hub import FakeHub, in_place
from tests.builders.pipeline import configured

GOOD = {"query": "q", "response_a": "x", "response_b": "y", "label": "A"}


def refused(tmp_path: Path, stage: str, *overrides: str) -> str:
    """Return the message with which a stage is refused before any is made."""
    home = tmp_path / "out"
    with pytest.raises(JudgetrainError) as refusal:
        Pipeline(configured("recipe=debug", f"output_dir={home}", *overrides)).run(stage)
    assert not (home / "artifacts").exists()
    return str(refusal.value)


def rows(tmp_path: Path, *values: object) -> str:
    """Return a file of rows that are as they should be, but for those given at its end."""
    return write_lines(tmp_path / "rows.jsonl", [GOOD, GOOD | {"label": "tie"}, *values])  # type: ignore[list-item]


def benchmark(path: str, **more: str) -> str:
    extra = "".join(f", {key}: {value}" for key, value in more.items())
    return f"evaluate.benchmarks=[{{name: b, source: {{path: {path}, format: comparison}}{extra}}}]"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (GOOD | {"label": "C"}, r"rows.jsonl:3: .*'C'"),
        ({"query": "q", "response_a": "x", "label": "A"}, r"rows.jsonl:3: .*response_b"),
    ],
)
def test_every_row_and_label_of_a_benchmark(wrong: object, said: str, tmp_path: Path) -> None:
    message = refused(tmp_path, "evaluate", benchmark(rows(tmp_path, wrong)))
    assert re.search(said, message), message


def test_stored_verdicts_and_scenarios(tmp_path: Path) -> None:
    stored = "stored.verdicts=[{name: s, benchmark: b, verdict_ab: said}]", "evaluate.methods=['stored:s']"
    path = write_lines(tmp_path / "rows.jsonl", [GOOD | {"said": "A"}, GOOD | {"said": "both"}])
    assert "rows.jsonl:2: said 'both' is not one of" in refused(tmp_path, "evaluate", benchmark(path), *stored)
    scenarios = "scenarios.queries.path=" + write_lines(tmp_path / "s.jsonl", [{"query": "q", "category": "c"}])
    assert "fewer than two categories" in refused(tmp_path, "scenarios", scenarios)


def test_files_that_other_stages_read_late(tmp_path: Path) -> None:
    written = write_lines(tmp_path / "e.jsonl", [{"query": "q", "response_a": "x", "response_b": "y", "criteria": 3}])
    assert "e.jsonl:1: " in refused(tmp_path, "dpo", f"teacher.evaluations={written}")
    corrected = f"correct.source={{type: jsonl, path: {rows(tmp_path, {'query': 'q'})}, format: comparison}}"
    assert "rows.jsonl:3: " in refused(tmp_path, "correct", corrected)
    verdicts = write_lines(tmp_path / "v.jsonl", [{"id": "1", "verdict": 7}])
    probdiff = "selfeval.methods=[probdiff]"
    assert "v.jsonl:1: " in refused(tmp_path, "studies", probdiff, f"studies.verdicts={verdicts}")


def in_parts(directory: Path) -> None:
    # As many weights as a model of four layers may have; what is missing is the second file.
    weight_map = {f"weight.{number}": f"model-0000{1 + number % 2}-of-00002.safetensors" for number in range(40)}
    index = {"weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    (directory / "model.safetensors").rename(directory / "model-00001-of-00002.safetensors")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda base: (base / "config.json").unlink(), "cannot load a model"),
        (in_parts, "model-00002-of-00002.safetensors, which"),
        (lambda base: (base / "tokenizer.json").write_text("{not json"), "cannot load a model"),
        (
            lambda base: (base / "config.json").write_text('{"model_type": "t5", "vocab_size": 546, "d_model": 32}'),
            "no causal language model",
        ),
        (lambda base: (base / "chat_template.jinja").write_text("{% for m in messages %}"), "chat template refuses"),
    ],
)
def test_the_base_model(damage: Callable[[Path], object], said: str, tmp_path: Path) -> None:
    shutil.copytree(WORLD_BASE, tmp_path / "base")
    damage(tmp_path / "base")
    message = refused(tmp_path, "dpo", f"train.base.path={tmp_path / 'base'}")
    assert message.startswith(f"train.base.path={tmp_path / 'base'}: ") and said in message


def test_a_model_that_is_finished_with_is_not_looked_at(tmp_path: Path) -> None:
    # The trees are there, so that neither the teacher's key nor its answers are wanted any more.
    config = configured("recipe=debug", f"output_dir={tmp_path}", "teacher=openai", "prompts=compact")
    config.teacher.engine = OpenAIEngineConfig(model="gpt", base_url="https://api.openai.com/v1")
    pipeline = Pipeline(config)
    with pytest.raises(ConfigError, match=r"teacher\.engine\.api_key_env=OPENAI_API_KEY: .*api\.openai\.com: set it"):
        pipeline.run("teacher")
    for name in ("dialogues", "cluster", "responses", "teacher"):
        directory = pipeline.plan(name).directory
        directory.mkdir(parents=True)
        (directory / "manifest.json").write_text(json.dumps({"stage": name, **counted(in_=1, out=1), "seconds": 1.0}))
    assert list(pipeline.missing("initial")) == ["initial"]
    assert pipeline.run("teacher") == pipeline.plan("teacher").directory


@pytest.fixture
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "MY_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_key")
@pytest.mark.parametrize(
    ("url", "variable", "is_needed"),
    [
        ("https://api.openai.com/v1", "OPENAI_API_KEY", True),
        *((f"http://{host}:8000/v1", "OPENAI_API_KEY", False) for host in ("localhost", "10.0.0.3", "gpu7")),
        ("http://localhost:8000/v1", "MY_KEY", True),
        ("https://judge.example.org/v1", "", False),
    ],
)
def test_the_key_of_a_paid_service(url: str, variable: str, is_needed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = OpenAIEngineConfig(model="m", base_url=url, api_key_env=variable)
    if not is_needed:
        engine.check_here("k")
        return
    with pytest.raises(ConfigError, match=f"k.api_key_env={variable}"):
        engine.check_here("k")
    monkeypatch.setenv(variable, "sk-1")
    engine.check_here("k")


@pytest.mark.usefixtures("no_key")
def test_the_key_of_an_external_judge_is_wanted_where_a_method_asks_it(tmp_path: Path) -> None:
    external = "external=openai", "evaluate.methods=['pairwise:external']"
    assert "evaluate.external.api_key_env" in refused(tmp_path, "evaluate", *external)
    assert "label.external.engine.api_key_env" in refused(tmp_path, "dpo", *external, "label.source=external")
    listed = "external=openai", "evaluate.methods=[random]"
    assert Pipeline(configured("recipe=debug", f"output_dir={tmp_path}", *listed)).run("evaluate").is_dir()


def test_the_encoder_and_what_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuml", None)
    assert "no sentence-transformers model lies there" in refused(tmp_path, "dpo", "cluster.encoder=./nowhere")
    assert "pip install no-such" in refused(tmp_path, "dpo", "cluster.encoder=package:no-such")
    with pytest.raises(ConfigError, match=r"cluster\.backend=cuml: .*pip install 'judgetrain\[cuml\]'"):
        ClusterConfig(encoder="static:world", backend="cuml").check_here("cluster")
    ClusterConfig(encoder="static:world").check_here("cluster")
    assert "HF_HUB_OFFLINE" in refused(tmp_path, "dpo", "cluster.encoder=nobody/no-encoder")
    assert "as sentence-transformers/short" in refused(tmp_path, "dpo", "cluster.encoder=short")


def test_a_judge_in_a_directory(tmp_path: Path) -> None:
    model = world_judge(tmp_path / "judge" / "model", 3)

    def said(directory: Path, *more: str) -> str:
        return refused(tmp_path, "evaluate", f"evaluate.methods=[{directory}]", *more)

    assert "no such directory" in said(tmp_path / "nowhere")
    assert f"did you mean {model}?" in said(model.parent)
    assert "evaluate.branches=4: at most 3" in said(model, "evaluate.branches=[1,4]")
    (model / "model.safetensors").unlink()
    assert "holds no weights" in said(model, "evaluate.branches=[1,3]")


hub = pytest.fixture(in_place)


@pytest.mark.parametrize("recipe", ["published", "people_pairs"])
def test_a_missing_file_of_a_recipe_is_named_with_where_it_is_published(recipe: str, tmp_path: Path) -> None:
    config = configured(f"recipe={recipe}", f"data_dir={tmp_path}", f"output_dir={tmp_path / 'out'}")
    with pytest.raises(ConfigError) as refusal:
        Pipeline(config).plan("evaluate")
    lines = str(refusal.value).splitlines()
    for file, place in config.data_files.items():
        assert any(f"{tmp_path / file}'" in line and f"published as {place}" in line for line in lines), file


NO_OTHERS = ("track.tracker=none", "evaluate.benchmarks=[]")


def test_all_columns_that_training_data_lack_are_named_at_once(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "mine.jsonl", [{"ask": "q", "left": "x", "right": "y", "better": "A"}])  # type: ignore[list-item]
    source = f"dialogues.sources=[{{name: own, path: {path}, type: comparisons, format: comparison}}]"
    config = configured("recipe=pairs", source, f"output_dir={tmp_path / 'out'}", "teacher=given")
    needs_labels = "dialogues.sources[0].fields={query: COLUMN, response_a: COLUMN, response_b: COLUMN, label: COLUMN}"
    with pytest.raises(ConfigError, match=re.escape(needs_labels)):
        Pipeline(config).check_all("teacher")
    needs_pairs = "dialogues.sources[0].fields={query: COLUMN, response_a: COLUMN, response_b: COLUMN}"
    with pytest.raises(JudgetrainError, match=re.escape(needs_pairs)):
        Pipeline(configured("recipe=pairs", source, f"output_dir={tmp_path / 'out'}", *NO_OTHERS)).run("dialogues")


def test_a_model_on_the_hub(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    def said() -> str:
        with pytest.raises(ConfigError) as refusal:
            ModelConfig(path="nobody/no-model").check_here("train.base")
        return str(refusal.value)

    hub.known = set()
    assert "train.base.path=nobody/no-model: the Hugging Face Hub does not give it" in said()
    hub.known = {"nobody/no-model"}
    hub.heads["nobody/no-model"] = "0" * 40
    assert "holds no weights" in said(), "the fake one has no files"
    assert hub.looked_up.count("nobody/no-model") == 2, "one request each"
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    commit_of.cache_clear()
    began = time.monotonic()
    assert "cannot be reached" in said()
    # The Hub's client alone would try five times, for the better part of a minute.
    assert time.monotonic() - began < 20
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set, and the cache lacks it" in said()
