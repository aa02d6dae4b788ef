"""Settings of stage correct."""

from dataclasses import dataclass

from judgetrain.data.config import SourceConfig
from judgetrain.engines.config import AnyEngine, LimitsConfig, SamplingConfig, engine_key
from judgetrain.judges.method import method_directory
from judgetrain.judges.prompting.prompts import prompt_path
from judgetrain.keys import beside, in_place, key


@dataclass
class CorrectConfig(LimitsConfig):
    """Stage correct."""

    source: SourceConfig = key(SourceConfig, "comparisons whose responses are corrected; labels are not needed")
    judge: str = key(
        "dpo",
        "who judges: base, initial, sft, dpo, rl, teacher, external or a judge's directory",
        content=beside(method_directory),
    )
    engine: AnyEngine = engine_key(None, "who rewrites; None: the judge's own model")
    rater: str = key(
        "",
        "who rates every response before and after, from 1 to 10 (the paper: GPT-4): pointwise:external, "
        "pointwise:teacher, pointwise:DIRECTORY",
        content=beside(lambda method, owner: method_directory(method) if method else None),
        active_if=lambda c: c.rater,
    )
    prompts: str = key(
        "correction",
        "prompt set: a name in judgetrain/judges/prompting/prompt_sets or a YAML file",
        content=in_place(prompt_path),
    )
    sampling: SamplingConfig = key(SamplingConfig(0.7, 0.95, 512), "of the new responses")

    @property
    def single(self) -> bool:
        """Return whether the source has one response a row: both fields name the same column."""
        columns = self.source.fields
        return "response_a" in columns and columns["response_a"] == columns.get("response_b")
