"""Stage ``selfeval``: what it reads, what must hold before it runs, and the scorer, loaded when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from judgetrain.artifacts.integrity import MANIFEST, checked
from judgetrain.artifacts.stages import Stage, StageSettings, at, needs
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.errors import ConfigError, DataError
from judgetrain.scorers.config import ScorerConfig, SelfEvalConfig
from judgetrain.scorers.prompts import revision_prompt

if TYPE_CHECKING:
    from judgetrain.artifacts.stage_run import StageRun
    from judgetrain.engines.answers import AnswerStore, Budget
    from judgetrain.scorers.statistics import TokenScorer


@dataclass(frozen=True, kw_only=True)
class ReadModelSettings(StageSettings):
    """What a stage reads that scores with the model of ``scorer``."""

    scorer: ScorerConfig = at("scorer")
    base: ModelConfig | None = at("train.base", active_if=lambda settings: not settings.scorer.model.path)

    @property
    def scored_model(self) -> ModelConfig:
        """The model whose probabilities are read."""
        return scored_model(self.scorer, self.base)


def scored_model(scorer: ScorerConfig, base: ModelConfig | None) -> ModelConfig:
    """The model whose probabilities are read: ``scorer.model``, or ``train.base`` where that has no path."""
    if scorer.model.path:
        return scorer.model
    assert base is not None
    return replace(base, gpus=scorer.model.gpus)


def load_scorer(
    config: ScorerConfig, model: ModelConfig, answers: AnswerStore | None = None, budget: Budget | None = None
) -> TokenScorer:
    """The scorer that reads a model, or asks the server ``scorer.engine`` to, whose tokenizer ``model`` then has.

    ``answers`` and ``budget`` are the server's: where what it tells is kept, and what it may be sent.

    Raises:
        EngineError: the model or tokenizer cannot be loaded, or the model not be taken apart.
    """
    if config.engine is None:
        from judgetrain.scorers.statistics import TokenScorer

        return TokenScorer.from_pretrained(model)
    from judgetrain.engines.loading import load_tokenizer
    from judgetrain.scorers.served import ServedScorer

    return cast("TokenScorer", ServedScorer(config.engine, load_tokenizer(model), answers, budget))


def scorer_of_run(
    config: ScorerConfig, model: ModelConfig, seed: int, out: StageRun, budget: Budget | None
) -> TokenScorer:
    """:func:`load_scorer`; what ``scorer.engine`` tells is kept with the run, by what ``model`` holds, too."""
    if config.engine is None:
        return load_scorer(config, model)
    from judgetrain.artifacts.fingerprint import ContentHashes
    from judgetrain.engines.answers import answers_of

    answers = answers_of(config.engine, out.home, seed, ContentHashes.of_run(out.home).identity(model))
    return load_scorer(config, model, answers, budget)


def lazy_scorer(
    config: ScorerConfig, model: ModelConfig, seed: int, out: StageRun, budget: Budget | None
) -> AbstractContextManager[Callable[[], TokenScorer]]:
    """A function that loads the scorer (:func:`scorer_of_run`) when it is first called; it is closed at the end."""
    return loaded_once(lambda: scorer_of_run(config, model, seed, out, budget))


@dataclass(frozen=True, kw_only=True)
class SelfEvalSettings(ReadModelSettings):
    """Stage selfeval."""

    selfeval: SelfEvalConfig = at("selfeval")


def finished_settings(directory: Path) -> dict[str, Any]:
    """The settings of a finished stage selfeval.

    Raises:
        DataError: the directory holds none.
    """
    manifest = checked(directory)
    if manifest is None:
        raise DataError(f"{directory}: holds no finished stage selfeval (no {MANIFEST}); run stage=selfeval")
    found: dict[str, Any] = manifest["config"]
    return found


def model_of(settings: Mapping[str, Any]) -> str:
    """The path of the model that a stage selfeval with these settings looked at."""
    found: str = settings["scorer"]["model"]["path"] or settings["train.base"]["path"]
    return found


def check_scorer(scorer: ScorerConfig, base: ModelConfig | None) -> None:
    """Check the model that scorers read, and their prompts.

    Raises:
        ConfigError: names the key, its value and the remedy.
    """
    scored_model(scorer, base).check("scorer.model" if scorer.model.path else "train.base")
    check_served(scorer)
    revision_prompt(scorer.prompts, scorer.revision_prompt)


def check_served(config: ScorerConfig) -> None:
    """Check the server of ``scorer.engine``, if there is one.

    Raises:
        ConfigError: names the key, its value and the remedy.
    """
    if config.engine is None:
        return
    if config.engine.type != "openai":
        raise ConfigError(f"scorer.engine.type={config.engine.type!r}: allowed is openai; other models: scorer.model")
    config.engine.check("scorer.engine")


def _check(settings: SelfEvalSettings) -> None:
    from judgetrain.scorers.methods import check_scorers

    if not settings.selfeval.methods:
        raise ConfigError("selfeval.methods is empty: name a score")
    check_scorers(settings.selfeval.methods, key="selfeval.methods")
    check_scorer(settings.scorer, settings.base)


SELFEVAL = Stage(
    name="selfeval", settings=SelfEvalSettings, artifact="evaluation", inputs=needs("dialogues"), check=_check
)
