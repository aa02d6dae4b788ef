"""Scorers: stages selfeval and studies, and scores in the other stages."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from judgetrain.engines.config import ModelConfig, SamplingConfig
from judgetrain.keys import in_place, key
from judgetrain.scorers.encode import prompt_file


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


@dataclass
class SelfEvalConfig:
    """Stage selfeval: an LLM (scorer.model) answers prompts and scores its own answers."""

    methods: list[str] = key(
        ["sentprob", "softmax_ent", "softmax_var", "softmax_combo", "probdiff"], "scores: judgetrain/scorers/methods.py"
    )
    limit: int | None = key(None, "take a seeded sample of this many dialogues", low=1)
    sampling: SamplingConfig = key(SamplingConfig, "of the first responses; the ProbDiff paper has temperature 0.7")
    temperatures: dict[str, float] = key(
        {}, "category -> temperature of its first responses, as MT-Bench has them", low=0.0, high=10.0
    )
