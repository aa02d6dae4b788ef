"""Settings of stage correlate."""

from __future__ import annotations

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
    turn: str = key("turn", "column of the question's number in a conversation; rows without one: 1")
    value: str = key("value", "column of the number, or of a list of them by turn; null and NaN: there is none")
    better: int = key(1, "1: more of it is better, -1: less is", choices=(1, -1))


@dataclass
class PublishedConfig:
    """A row of a published table, to stand beside what is found."""

    benchmark: str = key("", "as the found rows name it")
    model: str = key("", "as the found rows name it")
    score: str = key("", "as the found rows name it")
    pearson: float = key(0.0, "without its sign", low=0.0, high=1.0)
    kendall: float = key(0.0, "without its sign", low=0.0, high=1.0)
    spearman: float = key(0.0, "without its sign", low=0.0, high=1.0)


@dataclass
class CorrelateConfig(LimitsConfig):
    """Stage correlate: a rating for each response, correlated with every score by benchmark and model."""

    own: bool = key(True, "read this run's stage selfeval; false: the files below are all that there is")
    runs: list[str] = key(
        [],
        "other models over the same prompts: directories of their finished stage selfeval, or globs of them",
        content=beside(lambda directory, owner: f"{directory}/*.json*"),
    )
    raters: list[str] = key(
        [],
        "who rates every answer now, asked as evaluate.rating says: rating:external, rating:teacher, rating:DIRECTORY",
        content=beside(method_directory),
    )
    ratings: list[ColumnConfig] = key([], "ratings read from files: people's, GPT-4's, another run's ratings.jsonl")
    scores: list[ColumnConfig] = key([], "scores read from files")
    against: list[str] = key([], "the raters to correlate with; empty: every one, the others being scores to it")
    published: list[PublishedConfig] = key([], "a published table against the first of them, shown beside ours")
    models: dict[str, str] = key({}, "a model's path -> what it is called in files and on the page")
    bootstrap: int = key(200, "resamples of whole prompts, of the 95% intervals", low=0, high=200)
