"""Stage ``label_queue``: rows of verdicts in, a queue for people out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from judgetrain.artifacts.files import write_json_atomic, write_text_atomic
from judgetrain.artifacts.stage_run import StageRun, derive_seed
from judgetrain.data.cells import RowError
from judgetrain.errors import ConfigError, DataError
from judgetrain.extras.label_queue.config import LabelQueueConfig
from judgetrain.extras.label_queue.stages import LabelQueueSettings
from judgetrain.judges.base import SHARES, logistic
from judgetrain.judging.rows import read_verdicts


def run(settings: LabelQueueSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``queue.jsonl``, and ``label_studio.json`` with ``label_studio.xml``."""
    config = settings.label_queue
    rows = read_rows_of([*config.files] or [str(inputs["judge"])])
    queue = ranked(rows, config, out.seed)
    gone = Counter(reason for row in rows if (reason := left_out(row, config.relabel)))
    if not queue:
        again = "; label_queue.relabel=true ranks those that have a label too" if gone["labelled"] else ""
        why = ", ".join(f"{n} {reason}" for reason, n in sorted(gone.items())) or "there is no row"
        raise DataError(f"none of the {len(rows)} rows is left to label: {why}{again}")
    out.write_rows("queue", queue)
    write_json_atomic(out.path("label_studio.json"), label_studio(queue))
    write_text_atomic(out.path("label_studio.xml"), INTERFACE)
    out.count(in_=len(rows), out=len(queue), dropped=gone)
    chance, first = sum(row["chosen_by"] == CHANCE for row in queue), queue[: max(1, len(queue) // 10)]
    mean, of_first = (fmean(row["information"] for row in part) for part in (queue, first))
    reasons = "".join(f"; {n} {reason} left out" for reason, n in sorted(gone.items()))
    out.note("label_queue", {"by_chance": chance, "information": mean, "information_of_first_tenth": of_first})
    told = [f"{len(queue)} of {len(rows)} comparisons to label, {chance} of them drawn by chance{reasons}"]
    told.append(f"mean information {mean:.2f}, of the first tenth {of_first:.2f} (0: the judge is sure)")
    told.append("labels that are to measure something (agreement, win rates): use those with chosen_by=chance alone")
    out.tell(told)
    for name in ("queue.jsonl", "label_studio.json", "label_studio.xml"):
        out.log(f"label_queue: {out.path(name)}")


def check_here(settings: LabelQueueSettings) -> None:
    """Read every row of the files, or of what is to be judged: it has comparisons that nobody has labelled."""
    queue = settings.label_queue
    if queue.files:
        read_rows_of(queue.files)
    elif not queue.relabel:
        items = settings.items()
        if items and all(item.failure or item.comparison.label for item in items):
            raise ConfigError(
                f"label_queue: none of the {len(items)} comparisons is left to label: all have a label or cannot be "
                "judged; label_queue.relabel=true ranks those that have a label too"
            )


Row = Mapping[str, Any]
SHOWN = ("id", "messages", "response_a", "response_b", "model_a", "model_b", "group", "verdict")
NEEDED = ("id", "messages", "response_a", "response_b", "verdict_ab", "verdict_ba")
INFORMATION, CHANCE = "information", "chance"
"""How a comparison came to be in the queue."""
BY_CHANCE = 0.2
"""Share of the queue that is drawn by chance: what measures (agreement, win rates) must not be chosen."""


def information_of(row: Row) -> dict[str, float | None]:
    """What a label of a row of stage judge would tell, by part, from 0 (all is said) to 1; None: it is not known."""
    votes = Counter(r["verdict"] for r in row.get("reasons") or () if r["verdict"] in SHARES)
    ab, ba, margin = row.get("verdict_ab"), row.get("verdict_ba"), row.get("margin")
    chance = logistic(abs(margin)) if isinstance(margin, (int, float)) and margin == margin else None
    return {
        "branches": entropy([*votes.values()], base=len(SHARES)) if votes else None,
        "orders": float(ab is None or ba is None or ab != ba),
        "margin": None if chance is None else entropy([chance, 1 - chance], base=2),
    }


def entropy(counts: Sequence[float], base: float) -> float:
    """Of shares by their counts."""
    total = sum(counts)
    return -math.fsum(n / total * math.log(n / total, base) for n in counts if n)


def read_rows_of(files: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of stage judge in files, globs and directories, each id once."""
    found: dict[str, dict[str, Any]] = {}

    def take(row: Any, place: str) -> None:
        if not isinstance(row, Mapping) or any(name not in row for name in NEEDED):
            raise RowError("no_verdict", f"expected a row of stage judge, with {', '.join(NEEDED)}")
        known = found.setdefault(row["id"], dict(row))
        if any(known[name] != row[name] for name in ("messages", "response_a", "response_b")):
            raise RowError("other_id", f"id {row['id']!r} is another comparison's in a file before it; make ids differ")

    for _ in read_verdicts(files, "label_queue.files", take):
        pass
    return list(found.values())


def left_out(row: Row, relabel: bool = False) -> str | None:
    """Why nobody need label a row; None where somebody may. ``relabel``: those that have a label are labelled again."""
    if row.get("label") is not None and not relabel:
        return "labelled"
    return "not_judged" if row.get("failure") else None


def ranked(rows: Sequence[Row], config: LabelQueueConfig, seed: int) -> list[dict[str, Any]]:
    """The queue: the comparisons with what a label of each would tell, the most telling first.

    Those drawn by chance are spread evenly among the others, so that whoever stops early has some of both.
    """
    rows = [row for row in rows if left_out(row, config.relabel) is None]
    parts = {row["id"]: information_of(row) for row in rows}
    total = {name: fmean(v for v in found.values() if v is not None) for name, found in parts.items()}
    lot = {row["id"]: derive_seed(seed, "queue", row["id"]) for row in rows}
    telling = sorted(rows, key=lambda r: (-round(total[r["id"]], 9), lot[r["id"]]))
    drawn = sorted(rows, key=lambda r: lot[r["id"]])
    kept: list[dict[str, Any]] = []
    for row, how in _taken(telling, drawn, config.labels):
        known = {f"of_{part}": v for part, v in parts[row["id"]].items()} | {"information": total[row["id"]]}
        facts = {name: None if value is None else round(value, 6) for name, value in known.items()}
        kept.append({n: row.get(n) for n in SHOWN} | facts | {"chosen_by": how, "rank": len(kept) + 1})
    return kept


def _taken(telling: Sequence[Row], drawn: Sequence[Row], labels: int | None) -> Iterator[tuple[Row, str]]:
    """Rows of both lists by turns, each once.

    Those of chance are drawn first, from all rows: from what the others leave would be no fair draw.
    """
    total = len(telling) if labels is None else min(labels, len(telling))
    chance = drawn[: round(BY_CHANCE * total)]
    fair = {row["id"] for row in chance}
    rest = (row for row in telling if row["id"] not in fair)
    given = 0
    for place in range(1, total + 1):
        if given < round(len(chance) * place / total):
            yield chance[given], CHANCE
            given += 1
        else:
            yield next(rest), INFORMATION


QUESTION = "label"
"""The name of the one question, under which both tools export its answers."""
FACTS = ("model_a", "model_b", "group", "information", "chosen_by", "rank")
"""What travels with a comparison and is not shown."""

INTERFACE = """\
<View>
  <Paragraphs name="messages" value="$messages" layout="dialogue" nameKey="role" textKey="content"/>
  <View style="display: grid; grid-template: auto/1fr 1fr; column-gap: 1em">
    <View><Header value="Response A"/><Text name="response_a" value="$response_a"/></View>
    <View><Header value="Response B"/><Text name="response_b" value="$response_b"/></View>
  </View>
  <Choices name="label" toName="response_a" choice="single" showInline="true" required="true">
    <Choice value="A is better" alias="A"/>
    <Choice value="They are equally good" alias="tie"/>
    <Choice value="B is better" alias="B"/>
  </Choices>
</View>
"""
"""Label Studio's labelling interface: paste it under Settings, Labeling Interface, Code."""


def label_studio(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Tasks, in the order in which they are to be labelled."""
    shown = ("id", "messages", "response_a", "response_b")
    return [{"data": {name: row[name] for name in (*shown, *FACTS) if row[name] is not None}} for row in rows]
