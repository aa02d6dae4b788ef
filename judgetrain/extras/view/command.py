"""``judgetrain view OUT`` writes a page on which two judges stand side by side."""

import base64
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from judgetrain.amounts import amount
from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.pages import render
from judgetrain.errors import ConfigError
from judgetrain.extras.view.comparing import PREDICTIONS, Item, Pairing, of_evaluation, of_verdicts, place_of
from judgetrain.pipeline.run import Pipeline

TEMPLATES = Path(__file__).with_name("templates")
LENGTHS = ("short", "middle", "long")
"""The thirds of the comparisons by the length of their responses."""


def view(pipeline: Pipeline) -> None:
    """Write the page, and say where it is.

    Raises:
        ConfigError: there is nothing to look at, or no such judge.
    """
    settings = pipeline.config.view
    home = Path(settings.of or pipeline.config.output_dir).expanduser()
    place = place_of(home)
    if settings.beside is not None:
        pairing = of_verdicts(place, Path(settings.beside).expanduser(), settings.most)
    elif (place / PREDICTIONS).is_file():
        pairing = of_evaluation(place, settings.judges, settings.benchmark, settings.most)
    else:
        raise ConfigError(
            f"view.of={str(home)!r} holds one judge's verdicts: name another judge's directory in view.beside"
        )
    # Beside the artifacts of a run, where its other pages are; an artifact's own directory stays as it was sealed.
    output = home if place != home else Path(pipeline.config.output_dir)
    name = re.sub(r"[^\w@+.-]+", "-", f"{pairing.left}-{pairing.right}").strip("-.")
    file = output / "views" / f"{name}.html"
    write_text_atomic(file, page(pairing))
    differ = sum(item.differ for item in pairing.items)
    pipeline.console.line(
        f"view: {pairing.left} beside {pairing.right} on {amount(len(pairing.items), 'comparison')}; they "
        f"disagree on {differ}: "
        f"{file}"
    )


def page(pairing: Pairing) -> str:
    """Return the page of two judges, which needs nothing beside it and no server."""
    script = (TEMPLATES / "view.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    criteria = sorted({name for item in pairing.items for name in item.criteria})
    return render(
        TEMPLATES / "view.html",
        title=f"{pairing.left} beside {pairing.right}",
        pairing=pairing,
        amount=amount,
        # This package's own file, no text of a row.
        script=Markup(script),
        # Browsers run this script and no other, whatever the texts hold.
        known=digest,
        lengths=_thirds(pairing.items),
        criteria=criteria,
        labelled=[item for item in pairing.items if item.comparison.label],
    )


def _thirds(items: Sequence[Item]) -> list[str]:
    """Return the third that each comparison is in by the length of its responses."""
    order = sorted(range(len(items)), key=lambda place: items[place].characters)
    thirds = [""] * len(items)
    for rank, place in enumerate(order):
        thirds[place] = LENGTHS[rank * len(LENGTHS) // len(items)]
    return thirds
