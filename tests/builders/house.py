"""Draw the house: the rooms of the package on their floors, and the stages with what each takes from which.

    python -m tests.builders.house

writes ``docs/figures/house.svg``, which docs/architecture.md shows. Floors stand here, and
``tests/pipeline/test_rooms.py`` holds imports to them. Stages come from the rooms' ``room.yaml``, and what each takes
from the plan of the quickstart.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from judgetrain import rooms
from judgetrain.pipeline.config import STAGES
from tests.builders.pipeline import configured

PICTURE = Path("docs/figures/house.svg")
ROOT = {
    "__init__",
    "amounts",
    "errors",
    "messages",
    "rubrics",
    "thoughts",
    "schema",
    "keys",
    "rooms",
    "yaml_text",
    "json_text",
    "lazy_names",
}
"""Modules that stand in no room."""
FLOORS: list[set[str]] = [
    ROOT,
    {"artifacts"},
    {"engines"},
    {"data", "scorers"},
    {"judges"},
    {"label", "train", "evaluate", "judging"},
    {"pipeline"},
    {"extras"},
]
"""The rooms of each floor, the lowest first."""

WIDTH = 960
MARGIN = 20
FLOOR_HEIGHT = 46
FLOOR_GAP = 8
ROOM_GAP = 10
STAGE_WIDTH = 68
STAGE_HEIGHT = 30
STYLE = (
    "text{font:13px sans-serif;fill:#222} .small{font-size:11px;fill:#555} .head{font-weight:bold} "
    ".room{fill:#eef3fa;stroke:#4a6fa5} .root{fill:#f5f5f5;stroke:#888} .extra{fill:#fff6e5;stroke:#c08a2b} "
    ".stage{fill:#eaf6ec;stroke:#4b8b57} .name{font-size:12px} .flow{fill:none;stroke:#777;marker-end:url(#tip)}"
)


@dataclass(frozen=True)
class Place:
    """Where a stage is drawn: its left upper corner, in pixels."""

    left: float
    top: float


def stages_of(room: str) -> list[str]:
    """Return the names of the stages that a room brings, in the order of the pipeline."""
    return [name for name, line in rooms.stages().items() if line.code.startswith(f"judgetrain.{room}.")]


def chain() -> dict[str, tuple[str, ...]]:
    """Return what each stage up to the quickstart's DPO judge and its evaluation takes from other stages."""

    config = configured("recipe=quickstart", "evaluate.methods=[dpo]")
    inputs: dict[str, tuple[str, ...]] = {}
    waiting = ["evaluate"]
    while waiting:
        name = waiting.pop()
        if name in inputs:
            continue
        stage = STAGES[name]
        inputs[name] = tuple(stage.inputs(stage.settings.of(config)))
        waiting.extend(inputs[name])
    return {name: inputs[name] for name in STAGES if name in inputs}


def draw() -> str:
    """Return the picture, as SVG."""
    parts = [*_house(), *_chain(_house_height())]
    height = _house_height() + 150
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">'
        f"<style>{STYLE}</style>"
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#777"/></marker></defs>'
    )
    return "\n".join([head, *parts, "</svg>", ""])


def _house_height() -> int:
    return MARGIN + len(FLOORS) * (FLOOR_HEIGHT + FLOOR_GAP) + MARGIN


def _house() -> Iterable[str]:
    """Yield the floors, the highest on top."""
    inside = WIDTH - 2 * MARGIN - 30
    for number, floor in enumerate(FLOORS, start=1):
        top = MARGIN + (len(FLOORS) - number) * (FLOOR_HEIGHT + FLOOR_GAP)
        yield _text(MARGIN, top + 28, str(number), "head")
        names = ["errors, keys, messages, rooms, rubrics, schema"] if floor is ROOT else sorted(floor)
        width = (inside - ROOM_GAP * (len(names) - 1)) / len(names)
        kind = {1: "root", len(FLOORS): "extra"}.get(number, "room")
        for place, name in enumerate(names):
            start_x = MARGIN + 30 + place * (width + ROOM_GAP)
            yield _box(start_x, top, width, FLOOR_HEIGHT, kind)
            yield _text(start_x + 10, top + 19, name, "head")
            yield _text(start_x + 10, top + 36, _holds(name), "small")


HOLDS = {
    "artifacts": "what a stage leaves on disk: shards, locks, fingerprints, manifests; executors, trackers",
    "engines": "text generation and scoring: Transformers, vLLM, OpenAI-compatible servers",
    "scorers": "glass-box scores, ProbDiff, token statistics",
    "judges": "prompts and frames, evaluation trees, the kinds of judges, one factory",
    "pipeline": "plan and run, processes, the command line, sweeps, status, clean, report",
}
"""What is in a room that brings no stage."""


def _holds(name: str) -> str:
    """Return what is written below a room's name: its stages, or what else it holds."""
    if name == "extras":
        folders = [room.name for room in rooms.rooms() if room.name.startswith("extras/")]
        return f"{len(folders)} folders, each of which can be deleted without touching the rest"
    brought = stages_of(name)
    if brought:
        return f"stages {', '.join(brought)}"
    return HOLDS.get(name, "")


def _chain(top: int) -> Iterable[str]:
    """Yield the stages, each to the right of what it takes."""
    inputs = chain()
    depth = _depths(inputs)
    rows: dict[int, int] = {}
    places: dict[str, Place] = {}
    step = (WIDTH - 2 * MARGIN - STAGE_WIDTH) / max(depth.values())
    for name in inputs:
        row = rows.get(depth[name], 0)
        rows[depth[name]] = row + 1
        places[name] = Place(MARGIN + depth[name] * step, top + 40 + row * 60)
    yield _text(MARGIN, top + 12, "What stage evaluate of the quickstart needs, and what each stage takes", "head")
    for name, needed in inputs.items():
        for other in needed:
            yield _arrow(places[other], places[name])
    for name, place in places.items():
        yield _box(place.left, place.top, STAGE_WIDTH, STAGE_HEIGHT, "stage")
        yield _text(place.left + 6, place.top + 20, name, "name")


def _depths(inputs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return how many stages stand before each, on the longest way."""
    depths: dict[str, int] = {}
    for name, needed in inputs.items():
        depths[name] = 1 + max((depths[other] for other in needed), default=-1)
    return depths


def _box(left: float, top: float, width: float, height: float, kind: str) -> str:
    return f'<rect class="{kind}" x="{left:.0f}" y="{top:.0f}" width="{width:.0f}" height="{height:.0f}" rx="4"/>'


def _text(left: float, base: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{left:.0f}" y="{base:.0f}">{escape(text)}</text>'


def _arrow(start: Place, end: Place) -> str:
    """Return an arrow from one stage to another: straight to the next, and below those that stand between."""
    start_x = start.left + STAGE_WIDTH
    begin = start.top + STAGE_HEIGHT / 2
    finish = end.top + STAGE_HEIGHT / 2
    adjacent = end.left - start_x < STAGE_WIDTH
    if adjacent:
        return f'<path class="flow" d="M{start_x:.0f},{begin:.0f} L{end.left:.0f},{finish:.0f}"/>'
    begin += STAGE_HEIGHT / 2
    finish += STAGE_HEIGHT / 2
    start_x -= STAGE_WIDTH / 2
    bend = 0.25 * (end.left - start_x)
    middle = (start_x + end.left) / 2
    return (
        f'<path class="flow" d="M{start_x:.0f},{begin:.0f} Q{middle:.0f},{(begin + finish) / 2 + bend:.0f} '
        f'{end.left + 12:.0f},{finish:.0f}"/>'
    )


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
