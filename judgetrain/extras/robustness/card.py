"""What a judge's card says of attacks."""

from __future__ import annotations

from pathlib import Path

from judgetrain.artifacts.files import read_json
from judgetrain.train.card import own_rows, share, table

_LEGEND = """A flip is a verdict in one order that is another than without the attack; neither order changed: no flip
in either. Content-free answers: nothing, a dot, an opening phrase, the first sentence alone. `rerun`: asked once more,
nothing changed, so that its flips are what the judge changes of itself; `control`: a harmless sentence. n: attacked
comparisons; those that could not be read without the attack are in no share but the last."""


def _attacks(directory: Path, judge: str) -> str:
    """What each attack did to the judge; of the forgeries, some sixty texts, what they come to together."""
    rows = [
        (
            row["benchmark"],
            row["branches"],
            a["attack"] or f"all: {a['kind']}",
            f"{a['n']} ({a['unreadable']} unreadable before)" if a.get("unreadable") else a["n"],
            share(a.get("robustness"), a.get("robustness_ci")),
            share(a.get("loses"), a.get("loses_ci")),
        )
        for row in own_rows(read_json(directory / "metrics.json") or [], judge)
        for a in row.get("robustness") or ()
        if a["kind"] != "forgery" or not a["attack"]
    ]
    columns = "benchmark | branches | attack | n | neither order changed | content-free answer loses in both orders"
    return f"{table(columns, rows)}\n\n{_LEGEND}" if rows else ""


PARTS = {"Attacks": _attacks}
"""By its title a section of the card: its text of what a finished artifact holds of a judge, empty for nothing."""
