"""Any judge by its name, in Python: what ``evaluate.methods`` and ``verdicts.judge`` name in a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from judgetrain.engines.config import EngineConfig, LocalEngineConfig, ModelConfig
from judgetrain.errors import ConfigError
from judgetrain.judges.base import Judge, Plan
from judgetrain.judges.config import Aggregation, AskingConfig, JudgeConfig
from judgetrain.judges.loading import EXTERNAL
from judgetrain.judges.method import BASELINE, BRANCHING, JUDGE_STAGES, TARGETS, Method
from judgetrain.judges.prompting.prompts import FILE, load_prompt_set
from judgetrain.keys import validate

FORMS = (
    "a judge's directory, its id on the Hub (OWNER/NAME), one_step:MODEL, at_once:MODEL or rating:MODEL (a directory, "
    "a Hub id, or with engine= a server's model), external or one_step:external (whatever engine= is), "
    "scorer:NAME (with model=)"
)
C = TypeVar("C")


def load_judge(
    name: str | Path,
    branches: int = 1,
    *,
    engine: EngineConfig | None = None,
    aggregation: Aggregation | None = None,
    early_stop: bool = False,
    top_up: bool = False,
    model: str | Path | ModelConfig | None = None,
    prompts: str | Path | None = None,
    progress: bool = False,
    **asked: Any,
) -> Judge:
    """The judge of this name; ``judge(prompt, response_a, response_b)`` asks it, ``judge.close()`` frees its model.

    Args:
        name: a directory that training wrote (``.../model``, or the artifact that holds it); the id of such a judge on
            the Hub; ``one_step:MODEL``, ``at_once:MODEL`` or ``rating:MODEL``; ``external`` or ``one_step:external``,
            which ask ``engine`` as it is; ``scorer:sentprob`` and the like; a baseline (``longer``). Options may
            follow a branching judge's name, as in ``./my-judge+sampled@3``.
        branches: k of a branching judge; what stands after ``@`` comes first.
        engine: what runs the model; by default Transformers. An ``OpenAIEngineConfig`` names an endpoint.
        aggregation: how branches become a verdict; None: as the run that trained the judge has it, else ``vote``.
        early_stop: ask no further branches once the verdict is settled.
        top_up: ask once more where fewer criteria came back than there are branches.
        model: whose probabilities a scorer reads: a directory or Hub id. With an ``engine`` that is a server its
            tokenizer is read, and the probabilities are the server's.
        prompts: another prompt set than the judge's own, or the packaged one: a name or a YAML file.
        progress: show the libraries' bars while a model is loaded.
        asked: how it is asked. Of a branching judge the keys of ``judge.*`` (``temperature=1.0``), of one that is asked
            once those of a sampling (``max_new_tokens=256``), of a scorer those of ``scorer.*``.

    Raises:
        ConfigError: no such judge, key or prompt set, a value out of range, or no model for what needs one.
        EngineError: the model or the server cannot be used.
    """
    method = Method.parse(_as_path(str(name)))
    if method.kind == BASELINE:
        return _baseline(method, asked)
    local = engine is None or isinstance(engine, LocalEngineConfig)
    with nullcontext() if progress or not local else _without_bars():
        if method.kind == BRANCHING:
            how = {**method.asking, **asked}
            k = branches if method.most is None else method.most
            return _branching(method, k, engine, aggregation, early_stop, top_up, prompts, how)
        if method.kind == "scorer":
            named = {"prompts": str(prompts)} if prompts else {}
            return _scorer(method, model or _model_of(engine), None if local else engine, {**asked, **named})
        return _prompted(method, engine, prompts, asked)


@contextmanager
def _without_bars() -> Iterator[None]:
    """Keep Transformers from drawing progress bars."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _as_path(name: str) -> str:
    """A directory that is there may be named without a slash, but for those called like a baseline."""
    from judgetrain.judges.kinds.baselines import BASELINES

    return f"./{name}" if "/" not in name and name not in (*BASELINES, *TARGETS) and Path(name).is_dir() else name


def _branching(
    method: Method,
    branches: int,
    engine: EngineConfig | None,
    aggregation: Aggregation | None,
    early_stop: bool,
    top_up: bool,
    prompts: str | Path | None,
    asked: Mapping[str, Any],
) -> Judge:
    from judgetrain.engines.registry import make_engine
    from judgetrain.judges.kinds.branching import BranchingJudge, check_branches

    if method.target not in TARGETS:
        return BranchingJudge.from_pretrained(
            judge_directory(method.target, _model_of(engine).revision),
            branches,
            engine=engine,
            aggregation=aggregation,
            early_stop=early_stop,
            top_up=top_up,
            prompts=prompts,
            name=method.name,
            **asked,
        )
    served, settings = _served(method, engine), JudgeConfig().changed(**asked)
    asking, found = settings.asking(AskingConfig.criteria), load_prompt_set(prompts or "multi_step")
    check_branches(branches, asking)
    plan = cast(Plan, settings.plan)
    loaded = make_engine(served, name=method.name)
    how = early_stop, top_up, plan, settings.position_offset, settings.retries, settings.layout, settings.verdict
    return BranchingJudge(loaded, found, branches, asking, aggregation or "vote", method.name, *how)


def judge_directory(name: str, revision: str | None = None) -> Path:
    """The directory of a trained judge: a directory, the artifact that holds it as ``model``, or an id on the Hub.

    Raises:
        ConfigError: it holds no judge.
        EngineError: there is no such directory or repository, or the Hub does not give it.
    """
    from judgetrain.engines.reachable import snapshot

    directory = snapshot(name, FILE, revision)
    for place in (directory, directory / "model"):
        if (place / FILE).is_file():
            return place
    raise ConfigError(
        f"{name!r}: it holds no {FILE}, so that it is no trained judge; a model that is asked once is one_step:{name}"
    )


def _prompted(
    method: Method, engine: EngineConfig | None, prompts: str | Path | None, asked: Mapping[str, Any]
) -> Judge:
    from judgetrain.engines.registry import make_engine
    from judgetrain.judges.kinds.prompted import PROMPTED

    if method.kind not in PROMPTED or not method.target:
        raise ConfigError(f"{method.text!r} is no judge; there are {FORMS}")
    judge = PROMPTED[method.kind]
    sampling = _changed(judge.sampled, asked, "sampling")
    if method.target in TARGETS:
        shown = load_prompt_set(prompts or judge.dialect, judge.dialect)
        return judge(make_engine(_served(method, engine)), shown, sampling, method.name)
    found = judge.from_pretrained(method.target, engine=engine, prompts=prompts, sampling=sampling)
    found.name = method.name
    return found


def _served(method: Method, engine: EngineConfig | None) -> EngineConfig:
    """The engine of ``external`` and ``teacher``, which is given."""
    if method.target not in EXTERNAL:
        place = f"outputs/artifacts/{method.target}/FINGERPRINT" if method.target in JUDGE_STAGES else "one_step:DIR"
        raise ConfigError(f"{method.text!r} is a model of a run: give its directory, as {place}")
    if engine is None:
        raise ConfigError(f"{method.text!r} needs engine=, as in engine=OpenAIEngineConfig(model='NAME', base_url=URL)")
    engine.check("engine")
    return engine


def _scorer(
    method: Method, model: str | Path | ModelConfig, served: EngineConfig | None, asked: Mapping[str, Any]
) -> Judge:
    from judgetrain.judges.kinds.scorer import ScorerJudge
    from judgetrain.scorers.config import ScorerConfig
    from judgetrain.scorers.lazy import load_scorer
    from judgetrain.scorers.methods import OF_RESPONSES, check_scorers
    from judgetrain.scorers.stages import check_served

    check_scorers([method.target], OF_RESPONSES, method.text)
    read = model if isinstance(model, ModelConfig) else ModelConfig(path=str(model))
    if not read.path:
        raise ConfigError(f"{method.text!r} reads a model's probabilities: name it with model=, a directory or Hub id")
    settings = _changed(ScorerConfig(), {**asked, "engine": served}, "scorer")
    check_served(settings)
    return ScorerJudge(load_scorer(settings, read), method.target, settings.tie_threshold, settings)


def _model_of(engine: EngineConfig | None) -> ModelConfig:
    """The model of a local engine; one without a path where there is none."""
    return engine.model if isinstance(engine, LocalEngineConfig) else ModelConfig()


def _baseline(method: Method, asked: Mapping[str, Any]) -> Judge:
    from judgetrain.judges.kinds.baselines import BASELINES

    if method.target not in BASELINES:
        raise ConfigError(f"{method.text!r} is no judge; there are {FORMS}, and {', '.join(BASELINES)}")
    if asked:
        raise ConfigError(f"{method.text!r} has no setting {next(iter(asked))}")
    return BASELINES[method.target]()


def _changed(config: C, changes: Mapping[str, Any], named: str) -> C:
    """A configuration but for some keys.

    Raises:
        ConfigError: no such key, or a value out of range.
    """
    known = [field.name for field in fields(cast(Any, config))]
    if wrong := next((name for name in changes if name not in known), None):
        raise ConfigError(f"{wrong}: there is no such setting here; there are {', '.join(known)}")
    found = cast(C, replace(cast(Any, config), **changes))
    validate(found, f"{named}.")
    return found
