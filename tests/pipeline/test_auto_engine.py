"""engine.type=auto: chosen once by what the machine has, written down, and kept when a run goes on elsewhere."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from judgetrain.artifacts.fingerprint import plain
from judgetrain.engines import auto
from judgetrain.engines.auto import AutoEngineConfig, type_here
from judgetrain.engines.config import (
    WORLD_BASE,
    GenerateEngineConfig,
    ModelConfig,
    TransformersEngineConfig,
    VllmEngineConfig,
)
from judgetrain.engines.lazy_model import make_engine
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.errors import ConfigError
from judgetrain.pipeline.auto_engine import AutoEngine
from judgetrain.pipeline.config import STAGES, Config
from judgetrain.pipeline.run import Pipeline
from tests.builders.pipeline import configured, modules_after

TINY = ["recipe=debug", "track.tracker=none"]
MACHINES = {
    # A GPU, vLLM and a compiler: what auto is there.
    (False, False, True): "transformers",
    (False, True, True): "transformers",
    (True, True, True): "vllm",
    (True, True, False): "vllm",
    (True, False, True): "generate",
    (True, False, False): "transformers",
}


def this_is(monkeypatch: pytest.MonkeyPatch, gpu: bool, vllm: bool, compiler: bool) -> None:
    """Have the machine look as if it had these, or not."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(auto, "DRIVERS", ("/dev/null",) if gpu else ())
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    find_spec = auto.importlib.util.find_spec

    def found(name: str, package: str | None = None) -> object:
        if name == "vllm":
            return object() if vllm else None
        return find_spec(name, package)

    monkeypatch.setattr(auto.importlib.util, "find_spec", found)
    monkeypatch.setattr(auto.shutil, "which", lambda name: "/usr/bin/cc" if compiler and name == "cc" else None)


@pytest.mark.parametrize("machine", MACHINES)
def test_it_is_what_measurements_name(machine: tuple[bool, bool, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    this_is(monkeypatch, *machine)
    assert type_here() == MACHINES[machine]
    assert configured("recipe=pairs").engine.type == MACHINES[machine]


def test_a_driver_without_a_gpu_that_pytorch_can_use_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    this_is(monkeypatch, gpu=True, vllm=True, compiler=True)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert type_here() == "transformers"


def test_where_there_is_no_driver_pytorch_is_not_imported_to_look() -> None:
    if any(Path(driver).exists() for driver in auto.DRIVERS):
        pytest.skip("there is a driver")
    modules, _ = modules_after("--cfg", "job", "recipe=pairs")
    assert "judgetrain.engines.auto" in modules and "torch" not in modules


def test_recipes_that_name_an_engine_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    this_is(monkeypatch, gpu=True, vllm=False, compiler=True)
    assert configured("recipe=quickstart").engine.type == "transformers"
    assert configured("recipe=paper_ood").engine.type == "vllm"
    assert configured("recipe=pairs", "engine=transformers").engine.type == "transformers"
    assert configured("recipe=quickstart", "engine=auto").engine.type == "generate"


def test_it_takes_the_keys_of_every_engine_that_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["recipe=pairs", "engine.batch_size=7", "engine.tensor_parallel_size=2", "engine.vllm={max_model_len: 9}"]
    this_is(monkeypatch, gpu=True, vllm=True, compiler=True)
    vllm = configured(*words).engine
    assert vllm == auto.ChosenVllmConfig(tensor_parallel_size=2, vllm={"max_model_len": 9})
    named = VllmEngineConfig(tensor_parallel_size=2, vllm={"max_model_len": 9})
    assert plain(vllm) == plain(named), "one fingerprint, chosen or named"
    assert configured("recipe=pairs", "engine.model.gpus=4").engine.tensor_parallel_size == 4

    this_is(monkeypatch, gpu=True, vllm=False, compiler=True)
    assert configured(*words).engine == GenerateEngineConfig(batch_size=7, model=ModelConfig(gpus=2))
    with pytest.raises(ConfigError, match=r"engine\.concurrency: type auto has no such key; it has type, name, model"):
        configured("recipe=pairs", "engine.concurrency=3")


def test_it_is_part_of_fingerprints(monkeypatch: pytest.MonkeyPatch) -> None:
    this_is(monkeypatch, gpu=True, vllm=False, compiler=True)
    chosen = plain(settings_of(configured("recipe=debug", "engine=auto")))
    named = plain(settings_of(configured("recipe=debug", "engine=generate")))
    other = plain(settings_of(configured("recipe=debug", "engine=transformers")))
    assert chosen == named != other


def settings_of(config: Config) -> object:
    """Return what stage tree reads."""
    return STAGES["tree"].settings.of(config)


def test_the_same_command_goes_on_with_it_on_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*TINY, "engine=auto", f"output_dir={tmp_path}"]
    this_is(monkeypatch, gpu=False, vllm=False, compiler=True)
    Pipeline(configured(*words)).plan("tree")
    assert not (tmp_path / "engines.json").exists(), "what only looks writes nothing"
    Pipeline(configured(*words)).run("dialogues")
    assert json.loads((tmp_path / "engines.json").read_text()) == {"debug": "transformers"}
    assert "engine.type=auto" not in capsys.readouterr().out, "as ever"

    mark = Pipeline(configured(*words)).plan("tree").fingerprint
    this_is(monkeypatch, gpu=True, vllm=False, compiler=True)
    assert Pipeline(configured(*words)).plan("tree").fingerprint == mark
    # Another seed, so that there is something to make, of a stage that has no use for the GPU.
    Pipeline(configured(*words, "seed=18")).run("dialogues")
    told = f"engine.type=auto is transformers, with which runs of recipe debug were begun ({tmp_path}/engines.json)"
    assert f"dialogues: {told}; engine.type=generate begins anew" in capsys.readouterr().out

    assert configured(*words, "recipe_name=mine").engine.type == "generate", "other recipes choose for themselves"
    assert configured(*words, f"output_dir={tmp_path / 'other'}").engine.type == "generate"
    (tmp_path / "engines.json").write_text('{"debug": "gpt"}')
    message = r"engines\.json: debug: 'gpt' is no engine that type auto stands for: expected one of transformers, gen"
    with pytest.raises(ConfigError, match=message):
        configured(*words)


def test_a_run_without_it_writes_nothing_down(tmp_path: Path) -> None:
    Pipeline(configured(*TINY, f"output_dir={tmp_path}")).run("dialogues")
    assert not (tmp_path / "engines.json").exists()


def test_rl_samples_by_vllm_only_where_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    this_is(monkeypatch, gpu=True, vllm=True, compiler=True)
    assert STAGES["rl"].settings.of(configured("recipe=debug", "engine=auto")).engine is None
    assert STAGES["rl"].settings.of(configured("recipe=debug", "engine=vllm")).engine.type == "vllm"


def test_a_caller_in_python_gets_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    this_is(monkeypatch, gpu=False, vllm=False, compiler=True)
    engine = make_engine(AutoEngineConfig(model=ModelConfig(path=str(WORLD_BASE))))
    assert type(engine) is TransformersEngine
    assert AutoEngineConfig(batch_size=5).as_type("transformers") == TransformersEngineConfig(batch_size=5)


def test_recipes_that_begin_at_once_each_keep_theirs(tmp_path: Path) -> None:
    recipes = [f"r{number}" for number in range(8)]
    read = threading.Barrier(len(recipes))

    def keep(recipe: str) -> None:
        engine = AutoEngine(str(tmp_path), recipe)
        engine()
        read.wait()
        engine.keep()

    with ThreadPoolExecutor(len(recipes)) as runs:
        list(runs.map(keep, recipes))
    assert json.loads((tmp_path / "engines.json").read_text()) == dict.fromkeys(recipes, type_here())
