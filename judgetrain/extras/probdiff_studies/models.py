"""The models that stage ``studies`` sets side by side, and the prompts by which it does."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from judgetrain.artifacts.files import named
from judgetrain.artifacts.integrity import checked
from judgetrain.artifacts.shards import read_rows
from judgetrain.errors import DataError
from judgetrain.evaluate.report.naming import distinct_names
from judgetrain.extras.selfeval.stages import finished_settings, model_of

ALL = "all"
"""The name of the group of all prompts."""

V = TypeVar("V")


@dataclass(frozen=True)
class SelfEvaluated:
    """One model over its prompts; every mapping is by prompt id, in the stage's order.

    Args:
        model: its name.
        d: ProbDiff's discrepancy, None where there is none.
        answers: texts.
        revisions: texts, of prompts with a discrepancy alone.
        categories: the prompts'.
        settings: those that stage selfeval was made with.
    """

    model: str
    d: Mapping[str, float | None]
    answers: Mapping[str, str]
    revisions: Mapping[str, str]
    categories: Mapping[str, str | None] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def only(self, ids: Set[str]) -> "SelfEvaluated":
        """Return the same model over some prompts alone."""
        return replace(
            self,
            d=_only(self.d, ids),
            answers=_only(self.answers, ids),
            revisions=_only(self.revisions, ids),
            categories=_only(self.categories, ids),
        )


def _only(by_prompt: Mapping[str, V], ids: Set[str]) -> dict[str, V]:
    """Return the entries of some prompts, in their order."""
    return {prompt: value for prompt, value in by_prompt.items() if prompt in ids}


def read_selfeval(directory: str | Path) -> SelfEvaluated:
    """Return a finished stage selfeval with ProbDiff among its methods.

    Raises:
        DataError: the directory holds no finished selfeval, or none with ProbDiff.
    """
    directory = Path(directory).expanduser()
    settings = finished_settings(directory)
    scores = list(read_rows(directory, "scores"))
    if not all("probdiff" in row["scores"] for row in scores):
        raise DataError(f"{directory} holds no ProbDiff scores: put probdiff into selfeval.methods")
    revision_rows = list(read_rows(directory, "scores-probdiff"))
    discrepancies: dict[str, float | None] = {}
    answers = {}
    revisions = {}
    categories = {}
    for row, revision_row in zip(scores, revision_rows, strict=True):
        prompt = row["id"]
        score = row["scores"]["probdiff"]
        discrepancies[prompt] = None
        # A text is the reason why there is no score.
        if not isinstance(score, str):
            discrepancies[prompt] = float(score)
        answers[prompt] = row["response"]
        categories[prompt] = row.get("category")
        if "revision" in revision_row:
            revisions[prompt] = revision_row["revision"]
    return SelfEvaluated(model_of(settings), discrepancies, answers, revisions, categories, settings)


def read_models(own_directory: Path, patterns: Sequence[str]) -> dict[str, SelfEvaluated]:
    """Return this run's model and the others by name, over the prompts that all of them have.

    Runs of one model are told apart by the settings that differ.

    Args:
        own_directory: of this run's stage selfeval.
        patterns: directories of finished stages selfeval, or globs of them. Of what a glob matches, directories without
            ProbDiff or without a prompt in common are left out. This run's own is read once, however often it matches.

    Raises:
        DataError: a directory that is named is none, or they have no prompt in common.
    """
    # Resolved, so that a glob that matches this run by another path does not read it twice.
    own_directory = own_directory.resolve()
    own_run = read_selfeval(own_directory)
    models = {own_directory: own_run}
    for pattern in patterns:
        directories = named(pattern)
        if not directories:
            raise DataError(f"studies.against: {pattern}: no such directory, and nothing that it matches")
        # A glob may sweep up what is no selfeval; a directory that is named was meant.
        is_glob = not Path(pattern).expanduser().is_dir()
        for directory in directories:
            directory = directory.resolve()
            if directory in models:
                continue
            if is_glob and not _has_probdiff(directory):
                continue
            model = read_selfeval(directory)
            if is_glob and model.d.keys().isdisjoint(own_run.d):
                continue
            models[directory] = model
    runs = list(models.values())
    # Confidences over different prompts would rank the prompts, not the models.
    shared = set(runs[0].d).intersection(*(run.d for run in runs))
    if not shared:
        raise DataError("studies.against: no prompt in common; run stage=selfeval over the same dialogues and limit")
    names = distinct_names([run.model for run in runs], [run.settings for run in runs])
    return {name: run.only(shared) for name, run in zip(names, runs, strict=True)}


def _has_probdiff(directory: Path) -> bool:
    """Return whether a directory is an undamaged stage that has scored revisions."""
    return bool(checked(directory)) and any(directory.glob("scores-probdiff-*.jsonl"))


def groups_of(ids: Iterable[str], categories: Mapping[str, str | None]) -> dict[str, list[str]]:
    """Return prompts by group: all of them, those of each source and those of each category.

    There is no group of a source where all prompts have one source; likewise of a category.

    Args:
        ids: of the prompts, which begin with their source and a colon.
        categories: by prompt; prompts without one are in no group of a category.
    """
    prompts = list(ids)
    sources = {prompt: prompt.partition(":")[0] for prompt in prompts}
    of_category = {}
    for prompt in prompts:
        category = categories.get(prompt)
        if category:
            of_category[prompt] = category
    groups = {ALL: prompts}
    for group_of in (sources, of_category):
        names = sorted(set(group_of.values()))
        # A single source or category would be all prompts again.
        if len(names) < 2:
            continue
        for name in names:
            groups[name] = [prompt for prompt in prompts if group_of.get(prompt) == name]
    return groups
