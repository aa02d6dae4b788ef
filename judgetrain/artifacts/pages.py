"""HTML pages from Jinja2 templates: self-contained (no network, no scripts), light and dark, from a phone's width up.

Every room has its templates beside its code; all extend ``base.html`` of this room, which holds the one stylesheet.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

SHARED = Path(__file__).with_name("templates")


@cache
def _environment(room: Path) -> Environment:
    return Environment(
        loader=FileSystemLoader([room, SHARED]),
        autoescape=True,  # of every template, whatever its name ends in
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(template: Path, **values: Any) -> str:
    """The text of a template with these values; all of them are escaped.

    Half surrogates, which no file can hold, become question marks.

    Raises:
        jinja2.UndefinedError: the template names a value that is not given.
    """
    text = _environment(template.parent).get_template(template.name).render(values)
    return text.encode("utf-8", "replace").decode("utf-8")
