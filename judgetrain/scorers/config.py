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
        0.1, "ProbDiff: the paper's 0.1; None, in stage selfeval: that of the answer", low=0.0, high=10.0
    )
    max_new_tokens: int = key(256, "of revisions, decoded passes and self-ratings", low=1, unit="tokens")
    prompts: str = key(
        "default",
        "prompt set: a name in judgetrain/scorers/prompt_sets or a YAML file",
        content=in_place(lambda name, owner: str(prompt_file(name))),
    )
    shard_size: ClassVar[int] = 64
    """Items finished together; the unit of resume."""

    @property
    def gpus(self) -> int:
        """How many GPUs one copy of the model runs on, where there are any."""
        return self.model.gpus


OF_BRANCHES = tuple(field.name for field in fields(ScorerConfig) if field.name != "model")
"""How branches are scored: under the judge itself."""


def scored_model(scorer: ScorerConfig, base: ModelConfig | None) -> ModelConfig:
    """The model whose probabilities are read: ``scorer.model``, or ``train.base`` where that has no path."""
    if scorer.model.path:
        return scorer.model
    assert base is not None
    return replace(base, gpus=scorer.model.gpus)


def load_scorer(model: ModelConfig) -> TokenScorer:
    """The scorer that reads a model (EngineError: it cannot be loaded, or not be taken apart)."""
    from judgetrain.scorers.statistics import TokenScorer

    return TokenScorer.from_pretrained(model)


def check_scorer(scorer: ScorerConfig, base: ModelConfig | None) -> None:
    """Refuse (ConfigError) the model that scorers read, or their prompts, where either is not there."""
    scored_model(scorer, base).check("scorer.model" if scorer.model.path else "train.base")
    revision_prompt(scorer.prompts, scorer.revision_prompt)
