"""What each stage reads: configuration keys and local files, whose content its fingerprint covers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from judgetrain.artifacts.fingerprint import ContentHashes
from judgetrain.artifacts.installed import version_of
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.engines.config import EngineConfig, ModelConfig
from judgetrain.judges.names import ASKED_WAYS, base_method, is_directory, split_method
from judgetrain.judges.prompting import prompts
from judgetrain.pipeline.config import Config
from judgetrain.scorers import prompts as scorer_prompts
from judgetrain.scorers.config import SCORE_KEYS
from judgetrain.train.config import DpoConfig

PACKAGE = "package:"
_ROOM = Path(__file__).parents[1]
_WORLD = _ROOM / "data" / "world"

OF_BRANCHES = tuple(key for key in SCORE_KEYS if key not in ("scorer.illustration", "scorer.calibration"))
"""How branches are scored, which have no references."""

File = tuple[str, str]
"""A configuration key, and the file, glob, directory or ``package:NAME`` whose content counts."""
Files = Callable[[Config], Iterable[File]]


def content_of(path: str, hashes: ContentHashes) -> dict[str, str]:
    """What of a file, glob or directory counts: its files' hashes by name; of a package its version."""
    if path.startswith(PACKAGE):
        return {"version": version_of(path.removeprefix(PACKAGE)) or "not installed"}
    return hashes.of(path)


def is_local(source: SourceConfig) -> bool:
    """Whether a source is read from files of this machine."""
    return source.type in ("jsonl", "parquet", "comparisons")


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


def prompts_of(config: Config) -> Iterator[File]:
    """The judge's prompt set."""
    yield prompt_set("prompts", config.prompts)


def prompt_set(key: str, name: str) -> File:
    """A prompt set's file, by the configuration key that names the set."""
    return key, str(prompts.prompt_file(name))


def sources(config: Config) -> Iterator[File]:
    """The dialogues' files, and those of the benchmarks that are taken out of them."""
    for i, source in enumerate(config.dialogues.sources):
        yield from _source(f"dialogues.sources[{i}]", source)
    if config.dialogues.decontaminate != "off":
        for i, benchmark in enumerate(config.evaluate.benchmarks):
            if is_local(benchmark.source):
                yield from _source(f"evaluate.benchmarks[{i}].source", benchmark.source)
            yield from _adapter(f"evaluate.benchmarks[{i}]", benchmark)


def decontaminated(config: Config) -> tuple[str, ...]:
    """The keys of the benchmarks whose queries stage dialogues takes out; of the world, which it leaves, the type."""
    if config.dialogues.decontaminate == "off":
        return ()
    keys = []
    for i, benchmark in enumerate(config.evaluate.benchmarks):
        key = f"evaluate.benchmarks[{i}]"
        if benchmark.source.type == "world":
            keys.append(f"{key}.source.type")
        else:
            keys += [f"{key}.{name}" for name in ("name", "source", "adapter", "where", "labels")]
    return tuple(keys)


def encoder(config: Config) -> Iterator[File]:
    """The sentence encoder's files."""
    for _, path in _model("", ModelConfig(path=config.cluster.encoder.removeprefix("static:"))):
        yield "cluster.encoder", path


def writers(config: Config) -> Iterator[File]:
    """The files of the models that respond."""
    for i, model in enumerate(config.responses.models):
        yield from _engine(f"responses.models[{i}]", model)


def teacher(config: Config) -> Iterator[File]:
    """The teacher's prompts, and its model's files or its written evaluations."""
    yield from prompts_of(config)
    if config.teacher.evaluations:
        yield "teacher.evaluations", config.teacher.evaluations
    else:
        yield from _engine("teacher.engine", config.teacher.engine)


def initial(config: Config) -> Iterator[File]:
    """The files of the base model."""
    yield from prompts_of(config)
    yield from _model("train.base", config.train.base)
    yield from deepspeed(config)


def deepspeed(config: Config) -> Iterator[File]:
    """DeepSpeed's own configuration, if there is one."""
    if config.train.deepspeed:
        yield "train.deepspeed", config.train.deepspeed


def processes(stage: str) -> Callable[[Config], tuple[str, ...]]:
    """What of the processes decides a result: in float32 nothing, when whole micro-batches are shared out.

    In bfloat16 DeepSpeed keeps weights in it where others keep float32 ones, and sums gradients in it over processes.
    Packed sequences are made while training, and those left over at the end of an epoch go round the processes; so do
    held-out pairs, which a stop-loss watches; and every process draws its own dropout of adapters.
    """

    def also(config: Config) -> tuple[str, ...]:
        settings, mode = getattr(config.train, stage), config.train.distributed
        watched = isinstance(settings, DpoConfig) and settings.stop.watched
        dropped = settings.lora.enabled and settings.lora.dropout > 0
        half = mode.startswith("zero") and settings.bf16 is not False
        if mode != "none" and (settings.packing or watched or dropped or half):
            return ("train.distributed", "train.processes")
        return ()

    return also


def _adapter(key: str, benchmark: BenchmarkConfig) -> Iterator[File]:
    if benchmark.adapter:
        packaged = _ROOM / "data" / "benchmarks" / "adapters" / f"{benchmark.adapter}.yaml"
        yield f"{key}.adapter", str(packaged) if packaged.exists() else benchmark.adapter
    if benchmark.answers:
        yield f"{key}.answers", benchmark.answers


def label(config: Config) -> Iterator[File]:
    """The prompts and models that label: the external judge's, and those of scores."""
    yield from prompts_of(config)
    if config.label.reward.signals:
        yield _scorer_prompts(config)
    if config.label.source == "external":
        yield prompt_set("label.external.prompts", config.label.external.prompts)
        yield from _engine("label.external.engine", config.label.external.engine)


def label_keys(config: Config) -> tuple[str, ...]:
    """The keys that labels depend on: of the external judge and of signals only where they are on."""
    labels, reward = config.label, config.label.reward
    counts = [f.name for f in dataclasses.fields(labels) if not f.metadata["neutral"]]
    keys = [f"label.{name}" for name in counts if name not in ("external", "reward")]
    if labels.source == "external":
        keys.append("label.external")
    keys += ["label.reward.signals", "label.reward.choose", "label.reward.min_margin"]
    if reward.signals:
        keys += ["label.reward.break_ties", "label.reward.shard_size", "label.reward.ensemble_weight"]
        keys += [f"label.reward.{signal}_weight" for signal in reward.signals]
        keys += ["label.reward.glassbox"] if "glassbox" in reward.signals else []
        keys += OF_BRANCHES
    return tuple(keys)


def _scorer_prompts(config: Config) -> File:
    return "scorer.prompts", str(scorer_prompts.prompt_file(config.scorer.prompts))


def scorer(config: Config) -> Iterator[File]:
    """The scorers' prompts and model."""
    yield _scorer_prompts(config)
    if config.scorer.model.path:
        yield from _model("scorer.model", config.scorer.model)
    else:
        yield from _model("train.base", config.train.base)


def has_scorers(config: Config) -> bool:
    """Whether a scorer is among the methods that are evaluated."""
    return any(method.startswith("scorer:") for method in config.evaluate.methods)


def evaluate(config: Config) -> Iterator[File]:
    """Benchmarks, stored verdicts, and the prompts and models of every method."""
    yield from prompts_of(config)
    for i, benchmark in enumerate(config.evaluate.benchmarks):
        yield from _source(f"evaluate.benchmarks[{i}].source", benchmark.source)
        yield from _adapter(f"evaluate.benchmarks[{i}]", benchmark)
    for i, stored in enumerate(config.evaluate.stored):
        if stored.source.path:
            yield from _source(f"evaluate.stored[{i}].source", stored.source)
    if config.evaluate.scenarios.path:
        yield from _source("evaluate.scenarios", config.evaluate.scenarios)
    split = [split_method(method) for method in config.evaluate.methods]
    for i, (_, target) in enumerate(split):
        yield from model_of(f"evaluate.methods[{i}]", target, config)
    if has_scorers(config):
        yield from scorer(config)
    ways = {way for way, _ in split}
    for way in sorted(ways.intersection(ASKED_WAYS)):
        yield prompt_set(f"evaluate.{way}.prompts", getattr(config.evaluate, way).prompts)


def names_model(engine: EngineConfig) -> bool:
    """Whether ``correct.engine`` names a model; where it does not, the judge's own rewrites."""
    return engine.type not in ("transformers", "vllm") or bool(engine.model.path)


def correct(config: Config) -> Iterator[File]:
    """The responses to correct, and who judges and rewrites them."""
    settings = config.correct
    yield from prompts_of(config)
    yield prompt_set("correct.prompts", settings.prompts)
    if settings.source.path or settings.source.type == "world":
        yield from _source("correct.source", settings.source)
    if names_model(settings.engine):
        yield from _engine("correct.engine", settings.engine)
    yield from model_of("correct.judge", base_method(settings.judge), config)


def model_of(key: str, target: str, config: Config) -> Iterator[File]:
    """The files of a model that a method names."""
    if is_directory(target):
        yield key, target
    elif target == "base":
        yield from _model("train.base", config.train.base)
    elif target == "teacher":
        yield from _engine("teacher.engine", config.teacher.engine)
    elif target == "external":
        yield from _engine("evaluate.external", config.evaluate.external)


def studies(config: Config) -> Iterator[File]:
    """The scorer, the encoder, and what the scores are compared with."""
    settings = config.studies
    yield from scorer(config)
    yield from encoder(config)
    for i, directory in enumerate(settings.against):
        yield f"studies.against[{i}]", f"{directory}/*.json*"
    if settings.verdicts:
        yield "studies.verdicts", settings.verdicts
    if settings.judge:
        way, target = split_method(settings.judge)
        yield from prompts_of(config)
        yield from model_of("studies.judge", target, config)
        if way:
            yield prompt_set(f"evaluate.{way}.prompts", getattr(config.evaluate, way).prompts)


JUDGED = (
    *("tree", "engine", "prompts", "teacher.engine", "evaluate.external", "evaluate.one_step", "evaluate.rating"),
    *("evaluate.branches", "evaluate.aggregation", "evaluate.early_stop", "evaluate.top_up"),
)
"""What the judge of stage studies is asked with."""

# What judge.json in a trained judge's directory says; the number of trees grown is not part of it.
JUDGE = tuple(
    f"tree.{name}"
    for name in (
        *("criteria", "guidelines", "judgments"),
        *("criteria_sampling", "guideline_sampling", "judgment_sampling"),
        *("readout", "constrained", "tie"),
    )
)

# What decides the reference model's log-probabilities besides the model and the pairs.
REFERENCE = (
    "train.base.dtype",
    "train.base.attn_implementation",
    "train.base.trust_remote_code",
    "train.dpo.max_length",
    "train.dpo.bf16",
    "train.dpo.tf32",
    "train.dpo.ld_alpha",
    "train.dpo.reference",
    "train.dpo.lora.enabled",
    "train.dpo.lora.quantize",
)


def reference(config: Config) -> Iterator[File]:
    """The files of the reference model."""
    yield from deepspeed(config)
    yield from _model("train.dpo.reference", config.train.dpo.reference)
