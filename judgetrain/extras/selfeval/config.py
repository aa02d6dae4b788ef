"""Settings of stage selfeval."""

from dataclasses import dataclass

from judgetrain.engines.config import SamplingConfig
from judgetrain.keys import key


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
