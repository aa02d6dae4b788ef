"""Settings of scorers, and the model that they read."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar

from judgetrain.engines.config import ModelConfig
from judgetrain.keys import in_place, key
from judgetrain.scorers.encode import prompt_file, revision_prompt

if TYPE_CHECKING:
    from judgetrain.scorers.statistics import TokenScorer


@dataclass
class ScorerConfig:
    """Scorers: the scorer:NAME methods of stage evaluate, and stage selfeval."""

    model: ModelConfig = key(ModelConfig, "whose probabilities are read; an empty path takes train.base")
    revision_prompt: str = key("full", "ProbDiff: name of a revision prompt in the prompt set (full, simple)")
    revision_temperature: float | None = key(
        0.1, "ProbDiff: the paper's 0.1; None: the answer's temperature (stage selfeval)", low=0.0, high=10.0
    )
    max_new_tokens: int = key(256, "of revisions, decoded passes and self-ratings", low=1, unit="tokens")
    prompts: str = key(
        "default",
        "prompt set: a name in judgetrain/scorers/prompt_sets or a YAML file",
        content=in_place(lambda name, owner: str(prompt_file(name))),
    )
    shard_size: ClassVar[int] = 64
    """Items that are written together; a restart goes on after the last such shard."""

    @property
    def gpus(self) -> int:
        """Return the number of GPUs that one copy of the model runs on, where there are any."""
        return self.model.gpus


# Branches are scored under the judge itself, so the model of scorers changes nothing of them.
OF_BRANCHES = tuple(field.name for field in fields(ScorerConfig) if field.name != "model")
"""The settings that scores of branches depend on."""


def scored_model(scorer: ScorerConfig, base: ModelConfig | None) -> ModelConfig:
    """Return the model whose probabilities are read: ``scorer.model``, or ``base`` where that has no path."""
    if scorer.model.path:
        return scorer.model
    # A check before the run has refused the settings if neither names a model.
    assert base is not None
    # How many GPUs it runs on is said of scorers, not of the training that ``base`` belongs to.
    return replace(base, gpus=scorer.model.gpus)


def load_scorer(model: ModelConfig) -> TokenScorer:
    """Return the scorer that reads a model.

    Raises:
        EngineError: the model cannot be loaded, or not be taken apart into decoder and head.
    """
    from judgetrain.scorers.statistics import TokenScorer

    return TokenScorer.from_pretrained(model)


def check_scorer(scorer: ScorerConfig, base: ModelConfig | None) -> None:
    """Refuse (ConfigError) a model or a set of prompts that is not there.

    Args:
        scorer: the settings of scorers.
        base: ``train.base``, which is read if ``scorer`` names no model.
    """
    key_of_model = "train.base"
    if scorer.model.path:
        key_of_model = "scorer.model"
    scored_model(scorer, base).check(key_of_model)
    revision_prompt(scorer.prompts, scorer.revision_prompt)
