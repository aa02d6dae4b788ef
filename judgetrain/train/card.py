"""The model card of a trained judge, in the Hub's form; what it was measured at is added once it is known."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
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
"""Baselines by their names in an evaluation."""
_HERE = '"."'
"""How the card's example names the directory that it stands in."""
_START, _END = "<!-- measured -->", "<!-- end of measured -->"
NOT_YET = "Not yet: `python -m judgetrain stage=evaluate` measures it, and writes the figures here."
REFERENCES = "It was trained with reference answers in its prompts, where a row had one: give it one where you have it."
_DEFINED = """95% intervals over prompts in brackets.
Agreement: the share of all comparisons, ties included, on which both orders give the label. Consistency: on which both
orders give the same readable verdict. n: comparisons."""


def shows_references(prompts: PromptSet, rows: Iterable[Row]) -> bool:
    """Whether a prompt of the training rows shows a reference answer, as the set's fragment begins."""
    head = prompts.reference.partition("{reference}")[0].strip()
    said = (message["content"].splitlines() for row in rows for message in row["prompt"])
    return bool(head) and any(line.startswith(head) for lines in said for line in lines)


def write_card(
    directory: Path,
    *,
    stage: str,
    base: ModelConfig,
    recipe: str,
    fingerprint: str,
    lineage: Mapping[str, str],
    references: bool = False,
) -> None:
    """Write ``README.md``: what the model is, how to use it, and the fingerprints of what it was made from.

    ``references``: whether it was trained with reference answers in its prompts.
    """
    from huggingface_hub import ModelCard, ModelCardData

    local = base.path == "world" or base.path.startswith(PACKAGE) or looks_local(base.path)
    title = f"{'Initial' if stage == 'initial' else stage.upper()} judge"
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["judgetrain", "llm-judge", stage],
        base_model=None if local else base.path,
        model_name=f"{title} {fingerprint}",
        **dict[str, Any](licence_of(base)),
    )
    card = ModelCard.from_template(
        data,
        str(Path(__file__).with_name("card.md.jinja")),
        title=title,
        version=__version__,
        recipe=recipe,
        base=Path(base.path).name if looks_local(base.path) else base.path,
        lineage=lineage,
        place=_HERE,
        not_yet=NOT_YET,
        references=REFERENCES if references else "",
    )
    _save(directory, data, card.text)


def name_on_hub(directory: Path, repo_id: str) -> None:
    """Have the card's example name the judge by its id on the Hub, where it is about to be."""
    if (path := directory / CARD).is_file():
        text = path.read_text(encoding="utf-8")
        write_text_atomic(path, re.sub(r'load_judge\(".*?"', lambda _: f'load_judge("{repo_id}"', text))


def licence_of(base: ModelConfig) -> dict[str, str]:
    """``license`` (and its name and link) as the base model's own card has them; empty where there is none to read."""
    from huggingface_hub import ModelCard

    place = Path(base.path).expanduser() / CARD
    if base.path == "world":
        return {"license": "apache-2.0"}
    if base.path.startswith(PACKAGE) or (looks_local(base.path) and not place.is_file()):
        return {}
    try:
        data = ModelCard.load(place if place.is_file() else base.path, ignore_metadata_errors=True).data.to_dict()
    except (OSError, ValueError, RuntimeError):  # no card, no network, no access
        return {}
    return {k: str(data[k]) for k in ("license", "license_name", "license_link") if data.get("license") and data.get(k)}


def own_rows(rows: Sequence[Row], method: str) -> list[Row]:
    """The judge's own rows of ``metrics.json`` that have an agreement."""
    return [row for row in rows if row["method"] == method and row.get("agreement") is not None]


def share(value: float | None, ends: Sequence[float] | None = None) -> str:
    """A share and its interval as they stand in a card; a dash where it was not measured."""
    if value is None:
        return "–"
    return f"{value:.3f}" + (f" ({ends[0]:.3f}–{ends[1]:.3f})" if ends else "")


def table(columns: str, rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table; ``columns``: their titles, with bars between."""
    titles = columns.split(" | ")
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (titles, ["---"] * len(titles), *rows))


def add_results(
    directory: Path,
    method: str,
    rows: Sequence[Row],
    evaluation: str = "",
    *,
    sections: Mapping[str, str] = MappingProxyType({}),
    made: Sequence[tuple[str, str]] = (),
    data_sets: Sequence[str] = (),
) -> None:
    """Put what is known of a judge into its card, in place of what was there.

    Args:
        directory: the model's directory.
        method: the judge's name in the rows.
        rows: those of ``metrics.json``; of other methods the baselines are named beside it.
        evaluation: what they are from, its fingerprint first.
        sections: further sections by their titles.
        made: what it was trained on, in a sentence a stage.
        data_sets: those of the Hub that its dialogues are from.

    Raises:
        DataError: the card is damaged.
    """
    from huggingface_hub import ModelCard
    from yaml import YAMLError

    own = own_rows(rows, method)
    if not (own or sections or made) or not (directory / CARD).is_file():
        return
    try:
        card = ModelCard.load(directory / CARD)
    except (ValueError, YAMLError) as error:
        why = f"{directory / CARD} is no model card ({' '.join(str(error).split())[:200]})"
        raise DataError(f"{why}: the judge is finished without it; mend or remove the file") from error
    card.data.datasets = [*data_sets] or None
    floors = [row for name in FLOORS for row in own_rows(rows, name)]
    trained = {"Trained on": "\n".join(f"- `{stage}`: {text}" for stage, text in made)} if made else {}
    told = (f"### {title}\n\n{text}" for title, text in ({**sections} | trained).items())
    measured = "\n\n".join([*(_agreement(own, floors, evaluation) if own else [NOT_YET]), *told])
    text = re.sub(f"{_START}.*{_END}", lambda _: f"{_START}\n{measured}\n{_END}", card.text, flags=re.DOTALL)
    _save(directory, card.data, text)


def _agreement(own: Sequence[Row], floors: Sequence[Row], evaluation: str) -> Iterator[str]:
    """What every evaluation measures, in paragraphs."""
    plan = f"{own[0]['plan']} plan" if own[0].get("plan") else "each response by itself, so in no order"
    asked = f"; asked {own[0]['asked']}, {plan}" if own[0].get("asked") else ""
    own = [row if row.get("plan") or not row.get("asked") else {**row, "consistency": None} for row in own]
    yield f"By {evaluation}{asked}; {_DEFINED}"
    figures = ([share(r.get(name), r.get(f"{name}_ci")) for name in ("agreement", "consistency")] for r in own)
    rows = ([f"{r['benchmark']} ({r['split']})", r["branches"], r["n"], *f] for r, f in zip(own, figures, strict=True))
    yield table("benchmark | branches | n | agreement | consistency", rows)
    if floors:
        named = ", ".join(f"`{r['method']}` {share(r['agreement'])}" for r in floors)
        yield f"The same comparisons by baselines, which read nothing: {named}."


def _save(directory: Path, data: Any, body: str) -> None:
    write_text_atomic(directory / CARD, f"---\n{data.to_yaml()}\n---\n\n{body.strip()}\n")
