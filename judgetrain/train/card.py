"""Write the model card of a trained judge, in the Hub's form, and add its figures once it was measured."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from judgetrain import __version__
from judgetrain.artifacts.files import write_text_atomic
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.hub import looks_local
from judgetrain.errors import DataError
from judgetrain.judges.prompting.prompts import PromptSet
from judgetrain.keys import PACKAGE

CARD = "README.md"
Row = Mapping[str, Any]
FLOORS = ("random", "first", "longer", "surface")
"""Names of an evaluation's baselines."""
_HERE = '"."'
"""The card's directory, as the card's example names it."""
_START = "<!-- measured -->"
_END = "<!-- end of measured -->"
NOT_YET = "Not yet: `python -m judgetrain stage=evaluate` measures it, and writes the figures here."
REFERENCES = "It was trained with reference answers in its prompts, where a row had one: give it one where you have it."
_DEFINED = """95% intervals over prompts in brackets.
Agreement: the share of all comparisons, ties included, on which both orders give the label. Consistency: on which both
orders give the same readable verdict. n: comparisons."""


def shows_references(prompts: PromptSet, rows: Iterable[Row]) -> bool:
    """Return True if a prompt of the training rows shows a reference answer.

    Args:
        prompts: the prompt set; a reference answer is shown by its fragment, whose beginning is looked for.
        rows: training rows.
    """
    beginning = prompts.reference.partition("{reference}")[0].strip()
    if not beginning:
        return False
    for row in rows:
        for message in row["prompt"]:
            if any(line.startswith(beginning) for line in message["content"].splitlines()):
                return True
    return False


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The origin of a judge.

    Args:
        stage: that trained it.
        recipe: the run's.
        fingerprint: of the judge's artifact.
        lineage: fingerprints of the artifacts that it was made from, by stage.
    """

    stage: str
    recipe: str
    fingerprint: str
    lineage: Mapping[str, str]


def write_card(directory: Path, base: ModelConfig, origin: Origin, references: bool = False) -> None:
    """Write ``README.md``: what the model is, how to use it, and the fingerprints of what it was made from.

    Args:
        directory: of the judge.
        base: the pretrained model.
        origin: where the judge comes from.
        references: whether it was trained with reference answers in its prompts.
    """
    from huggingface_hub import ModelCard, ModelCardData

    # The Hub shows a base_model as a link, so it has to be a model there.
    hub_base = None
    if base.path != "world" and not base.path.startswith(PACKAGE) and not looks_local(base.path):
        hub_base = base.path
    base_name = base.path
    if looks_local(base.path):
        # The rest of a path is nobody's business.
        base_name = Path(base.path).name
    title = f"{origin.stage.upper()} judge"
    if origin.stage == "initial":
        title = "Initial judge"
    reference_note = ""
    if references:
        reference_note = REFERENCES
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["judgetrain", "llm-judge", origin.stage],
        base_model=hub_base,
        model_name=f"{title} {origin.fingerprint}",
        **dict[str, Any](licence_of(base)),
    )
    card = ModelCard.from_template(
        data,
        str(Path(__file__).with_name("card.md.jinja")),
        title=title,
        version=__version__,
        recipe=origin.recipe,
        base=base_name,
        lineage=origin.lineage,
        place=_HERE,
        not_yet=NOT_YET,
        references=reference_note,
    )
    _save(directory, data, card.text)


def name_on_hub(directory: Path, repo_id: str) -> None:
    """Have the card's example name the judge by its id on the Hub, where it is about to be."""
    path = directory / CARD
    if not path.is_file():
        return
    text = path.read_text(encoding="utf-8")
    # By a function: in a replacement that is a string, a backslash would have a meaning.
    renamed = re.sub(r'load_judge\(".*?"', lambda _: f'load_judge("{repo_id}"', text)
    write_text_atomic(path, renamed)


def licence_of(base: ModelConfig) -> dict[str, str]:
    """Return ``license``, and its name and link, as the base model's own card has them.

    Empty where there is no such card, or it names no licence.
    """
    from huggingface_hub import ModelCard

    if base.path == "world":
        # The generated world's base is made by this package, under this package's licence.
        return {"license": "apache-2.0"}
    if base.path.startswith(PACKAGE):
        return {}
    local_card = Path(base.path).expanduser() / CARD
    card: Path | str = base.path
    if local_card.is_file():
        card = local_card
    elif looks_local(base.path):
        return {}
    try:
        data = ModelCard.load(card, ignore_metadata_errors=True).data.to_dict()
    except (OSError, ValueError, RuntimeError):
        # The Hub has no card, or there is no network, or no access.
        return {}
    if not data.get("license"):
        return {}
    return {key: str(data[key]) for key in ("license", "license_name", "license_link") if data.get(key)}


def own_rows(rows: Sequence[Row], method: str) -> list[Row]:
    """Return a method's rows of ``metrics.json`` that have an agreement."""
    return [row for row in rows if row["method"] == method and row.get("agreement") is not None]


def share(value: float | None, ends: Sequence[float] | None = None) -> str:
    """Return a share and its interval as they stand in a card; a dash where it was not measured."""
    if value is None:
        return "–"
    if not ends:
        return f"{value:.3f}"
    low, high = ends
    return f"{value:.3f} ({low:.3f}–{high:.3f})"


def table(columns: str, rows: Iterable[Iterable[object]]) -> str:
    """Return a Markdown table.

    Args:
        columns: their titles, with " | " between them.
        rows: their cells.
    """
    titles = columns.split(" | ")
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


@dataclass(frozen=True)
class JudgeFigures:
    """The figures that were measured of a judge.

    Args:
        rows: those of ``metrics.json``; of other methods the baselines are named beside it.
        evaluation: what they are from, its fingerprint first.
        sections: further sections by their titles.
    """

    rows: Sequence[Row]
    evaluation: str = ""
    sections: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainedOn:
    """The data that a judge was trained on.

    Args:
        stages: a sentence for each stage that made training data, behind the stage's name.
        data_sets: those of the Hub that its dialogues are from.
    """

    stages: Sequence[tuple[str, str]] = ()
    data_sets: Sequence[str] = ()


def add_results(directory: Path, method: str, measured: JudgeFigures, trained_on: TrainedOn = TrainedOn()) -> None:
    """Put a judge's figures and what it was trained on into its card, in place of what was there.

    Args:
        directory: the model's directory.
        method: the judge's name in the rows.
        measured: the figures.
        trained_on: what it was trained on.

    Raises:
        DataError: the card is damaged.
    """
    from huggingface_hub import ModelCard
    from yaml import YAMLError

    judge_rows = own_rows(measured.rows, method)
    # A judge that somebody else made may have no card, and nobody asked for one.
    if not (judge_rows or measured.sections or trained_on.stages) or not (directory / CARD).is_file():
        return
    try:
        card = ModelCard.load(directory / CARD)
    except (ValueError, YAMLError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"{directory / CARD} is no model card ({reason}): the judge is finished without it; mend or remove the file"
        ) from error
    card.data.datasets = [*trained_on.data_sets] or None
    if judge_rows:
        # An agreement says little without that of baselines which read nothing.
        floors = [row for name in FLOORS for row in own_rows(measured.rows, name)]
        paragraphs = _agreement(judge_rows, floors, measured.evaluation)
    else:
        paragraphs = [NOT_YET]
    titled = dict(measured.sections)
    if trained_on.stages:
        titled["Trained on"] = "\n".join(f"- `{stage}`: {text}" for stage, text in trained_on.stages)
    paragraphs += [f"### {title}\n\n{text}" for title, text in titled.items()]
    results = f"{_START}\n" + "\n\n".join(paragraphs) + f"\n{_END}"
    # By a function: in a replacement that is a string, a backslash would have a meaning.
    text = re.sub(f"{_START}.*{_END}", lambda _: results, card.text, flags=re.DOTALL)
    _save(directory, card.data, text)


def _agreement(rows: Sequence[Row], floors: Sequence[Row], evaluation: str) -> list[str]:
    """Return what every evaluation measures, in paragraphs.

    Args:
        rows: of the judge.
        floors: of the baselines.
        evaluation: what the rows are from.
    """
    first = rows[0]
    plan = "each response by itself, so in no order"
    if first.get("plan"):
        plan = f"{first['plan']} plan"

    how_asked = ""
    if first.get("asked"):
        how_asked = f"; asked {first['asked']}, {plan}"
    paragraphs = [f"By {evaluation}{how_asked}; {_DEFINED}"]

    cells = []
    for row in rows:
        benchmark = f"{row['benchmark']} ({row['split']})"
        agreement = share(row.get("agreement"), row.get("agreement_ci"))
        consistency = share(row.get("consistency"), row.get("consistency_ci"))
        if row.get("asked") and not row.get("plan"):
            # Responses that are read by themselves have no order to be consistent over.
            consistency = share(None)
        cells.append([benchmark, row["branches"], row["n"], agreement, consistency])
    paragraphs.append(table("benchmark | branches | n | agreement | consistency", cells))

    if floors:
        named = ", ".join(f"`{row['method']}` {share(row['agreement'])}" for row in floors)
        paragraphs.append(f"The same comparisons by baselines, which read nothing: {named}.")
    return paragraphs


def _save(directory: Path, data: Any, body: str) -> None:
    """Write the card of these metadata and this text."""
    write_text_atomic(directory / CARD, f"---\n{data.to_yaml()}\n---\n\n{body.strip()}\n")
