"""Known data sets: a source that names one gets its place on the Hub and the shape of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from judgetrain.data.config import DialogueSourceConfig
from judgetrain.errors import ConfigError

CATALOGUE = Path(__file__).parent / "data_sets.yaml"


@cache
def catalogue() -> Mapping[str, Mapping[str, Any]]:
    """What ``data_sets.yaml`` says of each data set, by name."""
    return yaml.safe_load(CATALOGUE.read_text(encoding="utf-8"))


def described(source: DialogueSourceConfig, key: str) -> DialogueSourceConfig:
    """The source with what the catalogue says of its ``dataset`` filled in; one that names none as it is.

    Format and fields are the data set's, unless the source gives others. Without a path the rows come from the Hub.

    Raises:
        ConfigError: an unknown data set, or one that is not on the Hub and has no path.
    """
    if source.dataset is None:
        return source
    if (known := catalogue().get(source.dataset)) is None:
        raise ConfigError(f"{key}.dataset={source.dataset}: unknown data set; known are {', '.join(catalogue())}")
    form = known["format"] if source.format == "auto" else source.format
    shape = replace(source, format=form, fields={**known["fields"], **source.fields})
    if source.path:
        return shape
    if "hub" not in known:
        raise ConfigError(f"{key}.path is empty: {source.dataset} is not on the Hub; give its downloaded files")
    place = dict(known["hub"])
    return replace(shape, type="hub", path=place.pop("path"), hub={**place, **source.hub})


def describe_sources(sources: list[DialogueSourceConfig]) -> None:
    """Fill in every source of dialogues that names a data set, in place."""
    for i, source in enumerate(sources):
        sources[i] = described(source, f"dialogues.sources[{i}]")
