"""The model card of a trained judge, in the Hub's form; what it was measured at is added once it is known."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from judgetrain import __version__
from judgetrain.artifacts.files import write_text_atomic
from judgetrain.engines.config import ModelConfig, looks_local
from judgetrain.errors import DataError
from judgetrain.keys import PACKAGE

CARD = "README.md"
_TITLES = {"initial": "Initial judge", "sft": "SFT judge", "dpo": "DPO judge", "rl": "RL judge"}
_COLUMNS = ("| benchmark | branches | n | agreement | consistency |", "| --- | --- | --- | --- | --- |")
_HERE = '"."'
"""How the card's example names the directory that it stands in."""
_START, _END = "<!-- measured -->", "<!-- end of measured -->"


def write_card(
    directory: Path, *, stage: str, base: ModelConfig, recipe: str, fingerprint: str, lineage: Mapping[str, str]
) -> None:
    """Write ``README.md``: what the model is, how to use it, and the fingerprints of what it was made from."""
    from huggingface_hub import ModelCard, ModelCardData

    local = base.path == "world" or base.path.startswith(PACKAGE) or looks_local(base.path)
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["judgetrain", "llm-judge", stage],
        base_model=None if local else base.path,
        model_name=f"{_TITLES[stage]} {fingerprint}",
        **dict[str, Any](licence_of(base)),
    )
    card = ModelCard.from_template(
        data,
        str(Path(__file__).with_name("card.md.jinja")),
        title=_TITLES[stage],
        version=__version__,
        recipe=recipe,
        base=Path(base.path).name if looks_local(base.path) else base.path,
        lineage=lineage,
        place=_HERE,
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

    if base.path == "world":
        return {"license": "apache-2.0"}
    if base.path.startswith(PACKAGE):
        return {}
    place = Path(base.path).expanduser() / CARD
    if looks_local(base.path) and not place.is_file():
        return {}
    try:
        data = ModelCard.load(place if place.is_file() else base.path, ignore_metadata_errors=True).data.to_dict()
    except (OSError, ValueError, RuntimeError):  # no card, no network, no access
        return {}
    return {k: str(data[k]) for k in ("license", "license_name", "license_link") if data.get("license") and data.get(k)}


def add_results(directory: Path, method: str, rows: Sequence[Mapping[str, Any]], evaluation: str) -> None:
    """Put what an evaluation measured of a judge into its card, in place of what was there.

    Args:
        directory: the model's directory.
        method: the judge's name in the rows.
        rows: those of ``metrics.json``.
        evaluation: fingerprint of the evaluation.

    Raises:
        DataError: the card is damaged.
    """
    from huggingface_hub import EvalResult, ModelCard
    from yaml import YAMLError

    own = [row for row in rows if row["method"] == method and row.get("agreement") is not None]
    if not own or not (directory / CARD).is_file():
        return
    try:
        card = ModelCard.load(directory / CARD)
    except (ValueError, YAMLError) as error:
        why = " ".join(str(error).split())[:200]
        raise DataError(
            f"{directory / CARD} is no model card ({why}): the evaluation is finished, and not written into it; mend "
            "or remove the file"
        ) from error
    card.data.eval_results = [
        EvalResult(
            task_type="text-generation",
            dataset_type=row["benchmark"],
            dataset_name=row["benchmark"],
            dataset_split=row["split"],
            metric_type="agreement",
            metric_name=f"agreement with the labels, {row['branches']} branches",
            metric_value=round(row["agreement"], 4),
        )
        for row in own
    ]
    asked = f"asked {own[0]['asked']}, {own[0]['plan']} plan; " if own[0].get("asked") else ""
    head = f"By evaluation `{evaluation}`; {asked}95% intervals in brackets.\n"
    measured = "\n".join([_START, head, *_COLUMNS, *map(_line, own), _END])
    text = re.sub(f"{_START}.*{_END}", lambda _: measured, card.text, flags=re.DOTALL)
    _save(directory, card.data, text)


def _line(row: Mapping[str, Any]) -> str:
    agreement, consistency = (_share(row[name], row[f"{name}_ci"]) for name in ("agreement", "consistency"))
    return f"| {row['benchmark']} ({row['split']}) | {row['branches']} | {row['n']} | {agreement} | {consistency} |"


def _share(value: float, interval: Sequence[float] | None) -> str:
    """A share with its interval, which is not defined where all items are about one prompt."""
    return f"{value:.3f}" + (f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "")


def _save(directory: Path, data: Any, body: str) -> None:
    write_text_atomic(directory / CARD, f"---\n{data.to_yaml()}\n---\n\n{body.strip()}\n")
