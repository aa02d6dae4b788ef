"""Checks that span several keys, or ask what is on this machine; all of them before any stage runs."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from judgetrain.config import BenchmarkConfig, Config, EngineConfig, ModelConfig, SourceConfig, TrainConfig
from judgetrain.engines.abilities import check_readout, check_step
from judgetrain.errors import ConfigError
from judgetrain.evaluate.names import ASKED_WAYS, TARGETS, base_method, is_directory, method_name, split_method
from judgetrain.evaluate.objective import check_objective
from judgetrain.reads import PACKAGE, is_local, names_model
from judgetrain.train.distributed import check_distributed
from judgetrain.train.options import check_training


def check_together(config: Config) -> None:
    """Check what holds whatever the stage is.

    Raises:
        ConfigError: names the keys, their values and what is allowed.
    """
    _names("dialogues.sources", [s.name for s in config.dialogues.sources])
    _names("evaluate.benchmarks", [b.name for b in config.evaluate.benchmarks])
    _names("evaluate.stored", [s.name for s in config.evaluate.stored])
    _names("responses.models", [m.name for m in config.responses.models])
    branches, criteria = config.evaluate.branches, config.tree.criteria
    if not branches or min(branches) < 1 or max(branches) > criteria:
        raise ConfigError(
            f"evaluate.branches={branches}: allowed are 1 to tree.criteria={criteria}, "
            "since a branch follows one criterion"
        )
    if config.objective is not None:
        check_objective(config.objective, config.evaluate)
        if config.stage != "evaluate":
            raise ConfigError(
                f"objective={config.objective!r}: is a metric of stage=evaluate, not of stage={config.stage}"
            )
    teacher = config.teacher
    if teacher.branches > teacher.criteria:
        raise ConfigError(f"teacher.branches={teacher.branches}: at most teacher.criteria={teacher.criteria}")


def check_stage(config: Config, stage: str) -> None:
    """Check what one stage needs: sources, models, methods.

    Raises:
        ConfigError: names the key, its value and the remedy.
    """
    check = _CHECKS.get(stage)
    if check is not None:
        check(config)


def _names(key: str, names: Sequence[str]) -> None:
    for i, name in enumerate(names):
        if not name:
            raise ConfigError(f"{key}[{i}].name is empty: every entry needs a name")
        if not re.fullmatch(r"\w[\w.@+-]*", name):
            raise ConfigError(f"{key}[{i}].name={name!r}: allowed are letters, digits and _ . @ + -, for file names")
        if name in names[:i]:
            raise ConfigError(f"{key}: the name {name!r} is used twice; names must differ")


def _dialogues(config: Config) -> None:
    if not config.dialogues.sources:
        raise ConfigError("dialogues.sources is empty: name a recipe (recipe=quickstart) or a source")
    for i, source in enumerate(config.dialogues.sources):
        _source(f"dialogues.sources[{i}]", source)


def _source(key: str, source: SourceConfig) -> None:
    if source.template and "{query}" not in source.template:
        raise ConfigError(f"{key}.template={source.template!r}: must hold {{query}}, where the query goes")
    if source.type == "hub" and not source.path:
        raise ConfigError(f"{key}.path is empty: give the data set's Hub id")
    if is_local(source):
        if not source.path:
            raise ConfigError(f"{key}.path is empty: give a file or a glob")
        if Path(source.path).expanduser().is_dir():
            raise ConfigError(f"{key}.path={source.path!r} is a directory: give its files, as in DIR/*.jsonl")


def _responses(config: Config) -> None:
    for i, source in enumerate(config.dialogues.sources):
        if source.format == "questions" and source.turns != "first":
            raise ConfigError(
                f"dialogues.sources[{i}].turns={source.turns}: rows of format questions have turns without answers, "
                "which only stage=selfeval fills in; set turns: first"
            )
    for i, model in enumerate(config.responses.models):
        check_step(f"responses.models[{i}]", model, "response")
        _engine(f"responses.models[{i}]", model)


def _judge_prompts(config: Config) -> None:
    from judgetrain.tree.prompts import load_prompt_set

    load_prompt_set(config.prompts)


def _tree(config: Config) -> None:
    _judge_prompts(config)
    _engine("engine", replace(config.engine, model=replace(config.engine.model, path="world")))
    if config.tree.constrained and config.engine.type == "transformers":
        _package("xgrammar", "tree.constrained=true")


def _teacher(config: Config) -> None:
    _judge_prompts(config)
    if not config.teacher.evaluations:
        _engine("teacher.engine", config.teacher.engine)


def _label(config: Config) -> None:
    if config.label.source == "external":
        from judgetrain.tree.external import load_external_prompts
        from judgetrain.tree.prompts import DIALECTS

        _engine("label.external.engine", config.label.external.engine)
        for step in DIALECTS[load_external_prompts(config.label.external)[1]]:
            check_step("label.external.engine", config.label.external.engine, step)
    reward = config.label.reward
    if reward.break_ties and not reward.signals:
        raise ConfigError(
            "label.reward.break_ties=true: without label.reward.signals there is nothing to break ties by; set "
            "reward=glassbox, probdiff or both"
        )
    if reward.signals:
        from judgetrain.scorers.methods import OF_RESPONSES, check_scorers

        if "glassbox" in reward.signals:
            check_scorers(
                [reward.glassbox], [name for name in OF_RESPONSES if name != "probdiff"], "label.reward.glassbox"
            )
        _revision_prompt(config)
    if not reward.ensemble_weight and not any(getattr(reward, f"{signal}_weight") for signal in reward.signals):
        raise ConfigError("label.reward: every weight is 0; give ensemble_weight or that of a signal that is on")


def _base(config: Config) -> None:
    _model("train.base", config.train.base)


def _initial(config: Config) -> None:
    _base(config)
    _training(config, "initial")


def _sft(config: Config) -> None:
    _training(config, "sft")
    _adapters_on_adapters("sft", config.train.sft, "initial", config.train.initial)


def _dpo(config: Config) -> None:
    _training(config, "dpo")
    _adapters_on_adapters("dpo", config.train.dpo, "sft", config.train.sft)
    if config.train.dpo.reference.path:
        _model("train.dpo.reference", config.train.dpo.reference)
    if not config.label.max_pairs_per_level:
        raise ConfigError("label.max_pairs_per_level=0 keeps no preference pairs for stage dpo: raise it")
    if config.train.dpo.stop.watched and not config.label.holdout:
        raise ConfigError("train.dpo.stop watches held-out pairs, and label.holdout=0 keeps none: raise it")


def _training(config: Config, stage: str) -> None:
    check_training(stage, getattr(config.train, stage))
    check_distributed(config.train, stage)


def _adapters_on_adapters(stage: str, settings: TrainConfig, start: str, before: TrainConfig) -> None:
    if all(s.lora.enabled and not s.lora.merge for s in (settings, before)):
        raise ConfigError(
            f"train.{stage}.lora.merge=false: its base would be the adapters of {start}; "
            f"set train.{start}.lora.merge=true"
        )


def _evaluate(config: Config) -> None:
    from judgetrain.evaluate.methods import known_methods

    _tree(config)
    settings = config.evaluate
    if not settings.benchmarks:
        raise ConfigError("evaluate.benchmarks is empty: name labelled comparisons to evaluate on")
    if not settings.methods:
        raise ConfigError(f"evaluate.methods is empty: allowed are {known_methods()}")
    for i, benchmark in enumerate(settings.benchmarks):
        _benchmark(f"evaluate.benchmarks[{i}]", benchmark)
    for i, stored in enumerate(settings.stored):
        if stored.benchmark not in [b.name for b in settings.benchmarks]:
            listed = ", ".join(b.name for b in settings.benchmarks)
            raise ConfigError(
                f"evaluate.stored[{i}].benchmark={stored.benchmark!r}: no such benchmark; there are {listed}"
            )
    _methods(config)
    for method in settings.methods:
        _target(config, method)
    _ways({split_method(method)[0] for method in settings.methods}, config)


def _ways(used: Collection[str], config: Config) -> None:
    """The prompt sets of judges that are asked once."""
    from judgetrain.tree.prompts import load_prompt_set

    for way in ASKED_WAYS:
        if way in used:
            load_prompt_set(getattr(config.evaluate, way).prompts, way, f"evaluate.{way}.prompts")


def _methods(config: Config) -> None:
    from judgetrain.evaluate.methods import known_methods
    from judgetrain.evaluate.stored import PREFIX, stored_named
    from judgetrain.judges.floors import FLOORS
    from judgetrain.judges.scorer import PREFIX as SCORER
    from judgetrain.scorers.methods import OF_RESPONSES

    methods, scorers = config.evaluate.methods, [f"{SCORER}{name}" for name in OF_RESPONSES]
    if any(method in scorers for method in methods):
        _scorer(config)
    names = [method_name(m) for m in methods]
    for method, name in zip(methods, names, strict=True):
        way, target = split_method(method)
        other = not way and (method in FLOORS or method in scorers)
        if method.startswith(PREFIX):
            stored_named(config, method)
        elif not is_directory(method) and target not in TARGETS and not other:
            raise ConfigError(f"evaluate.methods: {method!r} is none of {known_methods()} (./{method})")
        if names.count(name) > 1:
            raise ConfigError(f"evaluate.methods: the name {name!r} is used twice; names must differ")


def _correct(config: Config) -> None:
    from judgetrain.tree.prompts import load_prompt_set

    settings = config.correct
    if settings.source.type != "world" and not settings.source.path:
        raise ConfigError("correct.source.path is empty: give comparisons whose responses are to be corrected")
    _source("correct.source", settings.source)
    target = base_method(settings.judge)
    if not is_directory(target) and target not in TARGETS:
        known = ", ".join(TARGETS)
        raise ConfigError(f"correct.judge={settings.judge!r}: allowed are {known} or a judge's directory (./NAME)")
    _target(config, settings.judge)
    if settings.branches > config.tree.criteria:
        raise ConfigError(f"correct.branches={settings.branches}: at most tree.criteria={config.tree.criteria}")
    if names_model(settings.engine):
        check_step("correct.engine", settings.engine, "correction")
        _engine("correct.engine", settings.engine)
    else:
        check_step(*_engine_of(config, target), "correction")
    load_prompt_set(settings.prompts, "correction", "correct.prompts")


def _target(config: Config, method: str) -> None:
    """Check the model that a method names, and that it can do what the method asks of it."""
    way, target = split_method(method)
    if target not in TARGETS and not is_directory(method):
        return
    if target == "base":
        _base(config)
    elif target == "teacher":
        _teacher(config)
    elif target == "external":
        _engine("evaluate.external", config.evaluate.external)
    key, engine = _engine_of(config, target)
    check_readout(key, engine, method)
    for asked in ASKED_WAYS:
        if way == asked:
            check_step(key, engine, asked)


def _engine_of(config: Config, target: str) -> tuple[str, EngineConfig]:
    """The engine of the model that a method names, and its key."""
    if target == "teacher":
        return "teacher.engine", config.teacher.engine
    return ("evaluate.external", config.evaluate.external) if target == "external" else ("engine", config.engine)


def _benchmark(key: str, benchmark: BenchmarkConfig) -> None:
    from judgetrain.evaluate.adapter import load_adapter
    from judgetrain.evaluate.reading import source_of

    if benchmark.adapter is not None:
        load_adapter(benchmark.adapter)
    _source(f"{key}.source", source_of(benchmark))
    if benchmark.answers is not None and not Path(benchmark.answers).expanduser().is_file():
        raise ConfigError(f"{key}.answers={benchmark.answers!r}: no such file")
    if benchmark.adapter is None and (benchmark.answers or benchmark.where):
        raise ConfigError(f"{key}: answers and where are read with an adapter; set {key}.adapter")


def _selfeval(config: Config) -> None:
    from judgetrain.scorers.methods import check_scorers

    settings = config.selfeval
    if not settings.methods:
        raise ConfigError("selfeval.methods is empty: name a score")
    check_scorers(settings.methods, key="selfeval.methods")
    for category, temperature in settings.temperatures.items():
        if not 0 <= temperature <= 10:
            raise ConfigError(f"selfeval.temperatures.{category}={temperature}: must be at least 0 and at most 10")
    _scorer(config)


def _studies(config: Config) -> None:
    from judgetrain.evaluate.methods import known_methods

    settings = config.studies
    if "probdiff" not in config.selfeval.methods:
        raise ConfigError("selfeval.methods holds no probdiff, which stage=studies is about: add it")
    if any(not t >= 0 for t in settings.thresholds):
        raise ConfigError(f"studies.thresholds={list(settings.thresholds)}: must be at least 0")
    if not settings.judge:
        return
    way, target = split_method(settings.judge)
    if not is_directory(settings.judge) and target not in ("base", "teacher", "external"):
        raise ConfigError(f"studies.judge={settings.judge!r} is none of {known_methods()}: name a model or a directory")
    _target(config, settings.judge)
    _ways({way}, config)


def _scorer(config: Config) -> None:
    key, model = (
        ("scorer.model", config.scorer.model) if config.scorer.model.path else ("train.base", config.train.base)
    )
    _model(key, model)
    _revision_prompt(config)


def _revision_prompt(config: Config) -> None:
    from judgetrain.scorers.prompts import load_scorer_prompts

    revision = load_scorer_prompts(config.scorer.prompts).revision
    if config.scorer.revision_prompt not in revision:
        raise ConfigError(
            f"scorer.revision_prompt={config.scorer.revision_prompt!r}: allowed are {', '.join(revision)}"
        )


def _engine(key: str, engine: EngineConfig) -> None:
    if engine.type == "openai" and not engine.model.path:
        raise ConfigError(f"{key}.model.path is empty: for type openai it is the model's name at the server")
    if engine.type == "vllm":
        _package("vllm", f"{key}.type=vllm")
    if engine.type in ("transformers", "vllm"):
        _model(f"{key}.model", engine.model)


def _model(key: str, model: ModelConfig) -> None:
    from judgetrain.engines.loading import looks_local

    path = model.path
    if not path:
        raise ConfigError(f"{key}.path is empty: give a directory, a Hub id, 'world' or 'package:NAME'")
    if path.startswith(PACKAGE):
        name = path.removeprefix(PACKAGE)
        if importlib.util.find_spec(name.replace("-", "_")) is None:
            raise ConfigError(f"{key}.path={path}: the package is not installed; pip install {name}")
    elif looks_local(path) and not Path(path).expanduser().exists():
        raise ConfigError(f"{key}.path={path}: no such directory; give a model directory or a Hub id")
    if model.attn_implementation == "flash_attention_2":
        _package("flash_attn", f"{key}.attn_implementation=flash_attention_2")


def _package(module: str, because: str) -> None:
    """Refuse what needs a package that is not installed."""
    if importlib.util.find_spec(module) is None:
        name = module.replace("_", "-")
        raise ConfigError(f"{because}: the package {name} is not installed; pip install {name}")


_CHECKS: dict[str, Callable[[Config], None]] = {
    "dialogues": _dialogues,
    "responses": _responses,
    "teacher": _teacher,
    "initial": _initial,
    "tree": _tree,
    "label": _label,
    "sft": _sft,
    "reference": _dpo,
    "dpo": _dpo,
    "evaluate": _evaluate,
    "correct": _correct,
    "selfeval": _selfeval,
    "studies": _studies,
}
