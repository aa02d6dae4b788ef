"""Checks of the judges that a configuration names, before anything is loaded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from judgetrain.artifacts.fingerprint import check_package
from judgetrain.data.rubrics import read_rubric
from judgetrain.engines.config import EngineConfig, LocalEngineConfig, TransformersEngineConfig, model_files
from judgetrain.errors import ConfigError, EngineError
from judgetrain.judges.config import LEVELS, JudgeConfig, criteria_of
from judgetrain.judges.method import BRANCHING, TARGETS, Method
from judgetrain.judges.prompting.prompts import FILE as PROMPTS
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.settings import EXTERNAL, ModelSettings


def check_model(settings: ModelSettings, method: Method, key: str) -> None:
    """Check that the model which a method names is there, and that it can do what the method asks of it.

    Args:
        settings: of the stage.
        method: one whose target is a model.
        key: where the method stands.

    Raises:
        ConfigError: names the key, its value and the remedy.
    """
    if method.target not in TARGETS and not method.is_directory:
        known = ", ".join(TARGETS)
        raise ConfigError(f"{key}={method.text!r}: allowed are {known} or a model's directory (./NAME)")
    if method.is_directory:
        _check_directory(method, key)
    if method.target == "base":
        assert settings.base is not None
        settings.base.check("train.base")
    if method.kind == BRANCHING and settings.rubric:
        read_rubric(settings.rubric)
    if method.kind == BRANCHING and method.target in ("base", *EXTERNAL):
        load_prompt_set(settings.prompts or "")
    where = EXTERNAL.get(method.target, "engine")
    engine: EngineConfig = getattr(settings, method.target if method.target in EXTERNAL else "engine")
    if method.target in EXTERNAL:
        if engine.type == "given":
            raise ConfigError(
                f"{key}={method.text!r}: {where}.type=given knows labels of training data alone; leave the method out"
            )
        engine.check(where)
        if method.kind == "single_token" and isinstance(engine, TransformersEngineConfig):
            check_package("xgrammar", f"an enforced form ({method.text})")
    else:
        asked = (settings.judge or JudgeConfig()).changed(**method.asking)
        forced = "judge.constrained=true, +constrained" if asked.constrained else ""
        check_asking(engine, method.text if method.kind == "single_token" else forced)
        if method.kind == BRANCHING and isinstance(engine, LocalEngineConfig) and not method.on_hub:
            check_lengths(asked, method.target if method.is_directory else settings.base_path, method.text)
    if engine.computes and (method.kind == "single_token" or "expected" in method.options):
        instead = "" if method.kind == "single_token" else "leave out +expected or "
        raise ConfigError(
            f"{where}.type={engine.type}: gives no probabilities of tokens, which {method.text!r} reads; "
            f"{instead}choose transformers, vllm or openai"
        )


def _check_directory(method: Method, key: str) -> None:
    """Check that a directory is there, and of one that is to grow branches that it is a trained judge's."""
    directory = Path(method.target).expanduser()
    if method.on_hub:  # looked at in check_directories
        return
    if not directory.is_dir():
        raise ConfigError(
            f"{key}={method.text!r}: there is no such directory; give that of a model, as "
            "OUTPUT_DIR/artifacts/dpo/FINGERPRINT/model (stage=status shows fingerprints)"
        )
    if method.kind != BRANCHING:
        return
    if not (directory / PROMPTS).is_file():
        inside = directory / "model"
        hint = f"; did you mean {inside}?" if (inside / PROMPTS).is_file() else ": one asked once is pairwise:DIRECTORY"
        raise ConfigError(f"{key}={method.text!r}: it holds no {PROMPTS}, so that it is no trained judge{hint}")
    load_prompt_set(directory / PROMPTS)


def check_criteria(criteria: int, method: Method, branches: int, key: str) -> None:
    """Check that a judge in a directory names as many criteria as there are to be branches.

    Raises:
        ConfigError: it was trained to name fewer.
    """
    if method.is_directory and not method.on_hub:
        criteria = criteria_of(Path(method.target).expanduser())
        if branches > criteria:
            raise ConfigError(
                f"{key}={branches}: at most {criteria}, the criteria that {method.text} was trained to name"
            )


def check_directories(engine: EngineConfig | None, methods: Iterable[Method], key: str) -> None:
    """Check that the models in the directories, or on the Hub, that methods name can be loaded.

    Raises:
        ConfigError: names the key, the directory and what is wrong with it.
    """
    from judgetrain.engines.model_check import check_loadable, check_on_hub

    for method in methods:
        if method.on_hub and method.kind == BRANCHING:
            try:
                names = check_on_hub(method.target, None, PROMPTS)
            except EngineError as error:
                raise ConfigError(f"{key}={method.text!r}: {error}") from error
            if names is not None and PROMPTS not in names:
                raise ConfigError(f"{key}={method.text!r}: it holds no {PROMPTS}, so that it is no trained judge")
        if method.is_directory and isinstance(engine, LocalEngineConfig):
            model = engine.model.at(Path(method.target).expanduser())
            check_loadable(model, f"{key}={method.text!r}")


def check_asking(engine: EngineConfig, constrained: str = "") -> None:
    """Check the engine that this run's judges generate with, and the package that an enforced form needs.

    ``constrained``: what asks for such a form, for the message; empty where nothing does.

    Raises:
        ConfigError: names the key and the remedy.
    """
    engine.with_model("world").check("engine")
    if constrained and isinstance(engine, TransformersEngineConfig):
        check_package("xgrammar", f"an enforced form ({constrained})")


def check_lengths(judge: JudgeConfig, path: str, method: str) -> None:
    """Check that no step of a branching judge asks for as many tokens as its model can read and write together.

    ``path``: the model's directory, ``world``, or an id on the Hub, of which nothing is known here; ``method`` names
    the judge in the message.

    Raises:
        ConfigError: no prompt would ever fit; names the key, the limit and what to set.
    """
    here = model_files(path)
    try:
        read: dict[str, Any] = json.loads((Path(here or "").expanduser() / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    text = read.get("text_config") or read
    context = text.get("max_position_embeddings") or text.get("n_positions")
    if not here or not isinstance(context, int):
        return
    found = {f"judge.{step}_tokens": n for step in LEVELS if (n := getattr(judge, f"{step}_tokens")) >= context}
    if found:
        told = " ".join(f"{key}={value}" for key, value in found.items())
        lower = " ".join(f"{key}={context // 4}" for key in found)
        raise ConfigError(
            f"{told}: the model of {method} has a context of {context} tokens, which leaves none for a prompt: lower "
            f"them, for example {lower}"
        )


def too_long_hint(failures: Mapping[str, int]) -> str | None:
    """What to lower where comparisons did not fit into the context, by the reasons of predictions' ``failures``; None
    where all did. A server's and a scorer's failures name no step, and get no hint."""
    found = {step: n for step in LEVELS if (n := failures.get(f"{step}:too_long", 0))}
    if not found:
        return None
    keys = " and ".join(f"judge.{step}_tokens" for step in found)
    told = ", ".join(f"{n} {step}:too_long" for step, n in found.items())
    return f"{told}: a prompt and {keys} together exceed the model's context, so that it was not asked: lower {keys}"
