"""The models that stage ``studies`` sets side by side, and the prompts by which it does."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from judgetrain.artifacts.files import named
from judgetrain.artifacts.integrity import checked
from judgetrain.artifacts.shards import read_rows
from judgetrain.errors import DataError
from judgetrain.evaluate.report.naming import told_apart
from judgetrain.extras.selfeval.stages import finished_settings, model_of

ALL = "all"


@dataclass(frozen=True)
class SelfEvaluated:
    """One model over its prompts; every mapping is by prompt id, in the stage's order.

    ``d``: ProbDiff's discrepancy, None where there is none.
    ``answers`` and ``revisions`` (only of prompts with a discrepancy): texts.
    ``categories``: the prompts'. ``settings``: what stage selfeval was made with.
    """

    model: str
    d: Mapping[str, float | None]
    answers: Mapping[str, str]
    revisions: Mapping[str, str]
    categories: Mapping[str, str | None] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def only(self, ids: Set[str]) -> "SelfEvaluated":
        """Return the same model over some prompts alone."""
        by_prompt = {name: part for name, part in vars(self).items() if name not in ("model", "settings")}
        chosen: dict[str, Any] = {n: {i: v for i, v in part.items() if i in ids} for n, part in by_prompt.items()}
        return replace(self, **chosen)


def read_selfeval(directory: str | Path) -> SelfEvaluated:
    """Return a finished stage selfeval with ProbDiff among its methods.

    Raises:
        DataError: the directory holds no finished selfeval, or none with ProbDiff.
    """
    directory = Path(directory).expanduser()
    made = finished_settings(directory)
    scores = list(read_rows(directory, "scores"))
    if not all("probdiff" in row["scores"] for row in scores):
        raise DataError(f"{directory} holds no ProbDiff scores: put probdiff into selfeval.methods")
    ids = [row["id"] for row in scores]
    revised = list(read_rows(directory, "scores-probdiff"))
    values = [row["scores"]["probdiff"] for row in scores]
    d = [None if isinstance(value, str) else float(value) for value in values]
    return SelfEvaluated(
        model_of(made),
        dict(zip(ids, d, strict=True)),
        {row["id"]: row["response"] for row in scores},
        {i: row["revision"] for i, row in zip(ids, revised, strict=True) if "revision" in row},
        {row["id"]: row.get("category") for row in scores},
        made,
    )


def read_models(own: Path, patterns: Sequence[str]) -> dict[str, SelfEvaluated]:
    """Return this run's model and the others by name, over the prompts that all of them have.

    Raises DataError if a directory that is named is none, or they have no prompt in common.

    ``patterns``: directories of finished stages selfeval, or globs of them, of which those without ProbDiff or without
    a prompt in common are left out; this run's own among them is read once. Those of one model are told apart by the
    settings that differ.
    """
    models = {own.resolve(): read_selfeval(own)}
    for pattern in patterns:
        alone = Path(pattern).expanduser().is_dir()
        if not (found := named(pattern)):
            raise DataError(f"studies.against: {pattern}: no such directory, and nothing that it matches")
        for path in (path.resolve() for path in found):
            if path not in models and (alone or (checked(path) and any(path.glob("scores-probdiff-*.jsonl")))):
                models[path] = read_selfeval(path)
                if not alone and not models[path].d.keys() & models[own.resolve()].d.keys():
                    del models[path]
    every = list(models.values())
    shared = set(every[0].d).intersection(*(model.d for model in every))
    if not shared:
        raise DataError("studies.against: no prompt in common; run stage=selfeval over the same dialogues and limit")
    names = told_apart([model.model for model in every], [model.settings for model in every])
    return {name: model.only(shared) for name, model in zip(names, every, strict=True)}


def groups_of(ids: Iterable[str], categories: Mapping[str, str | None]) -> dict[str, list[str]]:
    """Prompts by group: all of them, those of each source where there are several, and those of each category."""
    known = list(ids)
    groups = {ALL: known}
    for names in ({i: i.partition(":")[0] for i in known}, {i: c for i in known if (c := categories.get(i))}):
        if len(distinct := sorted(set(names.values()))) > 1:
            groups |= {group: [i for i in known if names.get(i) == group] for group in distinct}
    return groups
