"""The stage graph: what each stage needs, which configuration it reads, and which local files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from judgetrain.config import Config, EngineConfig, ModelConfig, SourceConfig

JUDGE_STAGES = ("initial", "sft", "dpo")
PACKAGE = "package:"
_ROOM = Path(__file__).parent
_WORLD = _ROOM / "dialogues" / "world"

File = tuple[str, str]
"""A configuration key, and the file, glob, directory or ``package:NAME`` whose content counts."""
Files = Callable[[Config], Iterable[File]]


@dataclass(frozen=True)
class Stage:
    """One stage: where its code is, which stages it needs, which configuration keys and files it reads.

    ``format`` is raised when the stage's code changes what it writes.
    """

    name: str
    function: str
    inputs: Callable[[Config], Sequence[str]]
    keys: tuple[str, ...]
    files: Files = lambda config: ()
    format: int = 1


def is_local(source: SourceConfig) -> bool:
    """Whether a source is read from files of this machine."""
    return source.type in ("jsonl", "parquet", "comparisons")


def _needs(*names: str) -> Callable[[Config], Sequence[str]]:
    return lambda config: names


def _judges(config: Config) -> Sequence[str]:
    return [name for name in JUDGE_STAGES if name in config.evaluate.methods]


def _source(key: str, source: SourceConfig) -> Iterator[File]:
    if is_local(source):
        yield f"{key}.path", source.path
    elif source.type == "world":
        yield from _world()


def _world() -> Iterator[File]:
    yield "world", str(_WORLD / "vocabulary.yaml")


def _model(key: str, model: ModelConfig) -> Iterator[File]:
    if model.path == "world":
        yield f"{key}.path", str(_WORLD / "base")
    elif model.path.startswith(PACKAGE) or (model.path and Path(model.path).expanduser().exists()):
        yield f"{key}.path", model.path
    if model.chat_template:
        yield f"{key}.chat_template", model.chat_template


def _engine(key: str, engine: EngineConfig) -> Iterator[File]:
    if engine.type == "world":
        yield from _world()
    elif engine.type in ("transformers", "vllm"):
        yield from _model(f"{key}.model", engine.model)


def _prompts(config: Config) -> Iterator[File]:
    packaged = _ROOM / "tree" / "prompt_sets" / f"{config.prompts}.yaml"
    yield "prompts", str(packaged) if packaged.exists() else config.prompts


def _sources(config: Config) -> Iterator[File]:
    for i, source in enumerate(config.dialogues.sources):
        yield from _source(f"dialogues.sources[{i}]", source)


def _encoder(config: Config) -> Iterator[File]:
    for _, path in _model("", ModelConfig(path=config.cluster.encoder.removeprefix("static:"))):
        yield "cluster.encoder", path


def _writers(config: Config) -> Iterator[File]:
    for i, model in enumerate(config.responses.models):
        yield from _engine(f"responses.models[{i}]", model)


def _teacher(config: Config) -> Iterator[File]:
    yield from _prompts(config)
    yield from _engine("teacher.engine", config.teacher.engine)


def _initial(config: Config) -> Iterator[File]:
    yield from _prompts(config)
    yield from _model("train.base", config.train.base)
    yield from _deepspeed("initial")(config)


def _deepspeed(stage: str) -> Files:
    def files(config: Config) -> Iterator[File]:
        path = getattr(config.train, stage).deepspeed
        if path:
            yield f"train.{stage}.deepspeed", path

    return files


def _scorer(config: Config) -> Iterator[File]:
    packaged = _ROOM / "scorers" / "prompt_sets" / f"{config.scorer.prompts}.yaml"
    yield "scorer.prompts", str(packaged) if packaged.exists() else config.scorer.prompts
    if config.scorer.model.path:
        yield from _model("scorer.model", config.scorer.model)
    else:
        yield from _model("train.base", config.train.base)


def _evaluate(config: Config) -> Iterator[File]:
    yield from _prompts(config)
    for i, benchmark in enumerate(config.evaluate.benchmarks):
        yield from _source(f"evaluate.benchmarks[{i}].source", benchmark.source)
    methods = config.evaluate.methods
    for i, method in enumerate(methods):
        if "/" in method:
            yield f"evaluate.methods[{i}]", method
    if "base" in methods:
        yield from _model("train.base", config.train.base)
    if any(method.startswith("scorer:") for method in methods):
        yield from _scorer(config)
    if "teacher" in methods:
        yield from _engine("teacher.engine", config.teacher.engine)


# What judge.json in a trained judge's directory says; the number of trees grown is not part of it.
_JUDGE = tuple(
    f"tree.{name}"
    for name in (
        *("criteria", "guidelines", "judgments"),
        *("criteria_sampling", "guideline_sampling", "judgment_sampling"),
    )
)

STAGES: dict[str, Stage] = {
    stage.name: stage
    for stage in (
        Stage("dialogues", "judgetrain.dialogues.stage:run", _needs(), ("dialogues",), _sources),
        Stage("cluster", "judgetrain.cluster.stage:run", _needs("dialogues"), ("cluster",), _encoder),
        Stage(
            "responses", "judgetrain.dialogues.respond:run", _needs("dialogues", "cluster"), ("responses",), _writers
        ),
        Stage(
            "teacher",
            "judgetrain.tree.teach:run",
            _needs("responses"),
            ("teacher", "tree.criteria", "tree.shard_size", "prompts"),
            _teacher,
        ),
        Stage(
            "initial",
            "judgetrain.train.stage:run_initial",
            _needs("teacher"),
            ("train.base", "train.initial", "prompts", *_JUDGE),
            _initial,
        ),
        Stage(
            "tree",
            "judgetrain.tree.grow_stage:run",
            _needs("teacher", "initial"),
            ("tree", "engine", "prompts"),
            _prompts,
        ),
        Stage("label", "judgetrain.tree.label_stage:run", _needs("tree"), ("label", "prompts"), _prompts),
        Stage("sft", "judgetrain.train.stage:run_sft", _needs("initial", "label"), ("train.sft",), _deepspeed("sft")),
        Stage("dpo", "judgetrain.train.stage:run_dpo", _needs("sft", "label"), ("train.dpo",), _deepspeed("dpo")),
        Stage(
            "evaluate",
            "judgetrain.evaluate.stage:run",
            _judges,
            (
                *("evaluate", "tree", "engine", "prompts", "train.base", "teacher.engine", "scorer"),
                *("dialogues.world", "dialogues.world.eval_comparisons"),
            ),
            _evaluate,
        ),
        Stage(
            "selfeval",
            "judgetrain.scorers.stage:run",
            _needs("dialogues"),
            ("selfeval", "scorer", "train.base"),
            _scorer,
        ),
    )
}
"""Every stage by name, inputs before what needs them."""
