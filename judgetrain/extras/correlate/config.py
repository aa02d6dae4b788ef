"""Settings of stage correlate."""

from dataclasses import dataclass

from judgetrain.data.config import SourceConfig
from judgetrain.engines.config import LimitsConfig
from judgetrain.judges.method import method_directory
from judgetrain.keys import beside, key


@dataclass
class ColumnConfig:
    """Numbers of responses, one a row, read from a file: what a rater gave them, or a score of theirs."""

    name: str = key("", "of the rater or score; several entries with one name are one column")
    source: SourceConfig = key(SourceConfig, "where the numbers are")
    benchmark: str = key("", "that all rows are of; empty: their column benchmark")
    model: str = key("", "that all rows are of; empty: their column model")
    where: dict[str, str] = key({}, "take only rows whose columns have these values")
    id: str = key("id", "column of the prompt's id, as its source has it")
    value: str = key("value", "column of the number, or of a list of them by turn; null and NaN: there is none")
    keep_minus_one: bool = key(False, "-1 is a number; else, where no other is negative, it stands for none (FastChat)")


@dataclass
class CorrelateConfig(LimitsConfig):
    """Stage correlate: a rating for each response, correlated with every score by benchmark and model."""

    runs: list[str] = key(
        [],
        "other models over the same prompts: directories of their finished stage selfeval, or globs of them",
        content=beside(lambda directory, owner: f"{directory}/*.json*"),
    )
    raters: list[str] = key(
        [], "who rates every answer now: pointwise:external, pointwise:DIRECTORY", content=beside(method_directory)
    )
    ratings: list[ColumnConfig] = key([], "ratings read from files: people's, GPT-4's, a run's ratings.jsonl")
    scores: list[ColumnConfig] = key([], "scores read from files, in place of this run's stage selfeval")
    against: list[str] = key([], "the raters to correlate with; empty: every one, the others being scores to it")
    published: dict[str, list[float]] = key(
        {}, "shown beside ours: BENCHMARK/MODEL/SCORE -> Pearson, Kendall, Spearman, unsigned", low=0.0, high=1.0
    )
    models: dict[str, str] = key({}, "a model's path -> what it is called in files and on the page")
