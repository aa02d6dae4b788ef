"""The house: which rooms there are, that no import points up or to a neighbour, and that none go in a circle."""

from __future__ import annotations

import ast
import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import judgetrain
from judgetrain import rooms
from judgetrain.pipeline.config import RunConfig
from judgetrain.pipeline.graph import STAGES

PACKAGE = Path(judgetrain.__file__).parent
ROOT = {"__init__", "errors", "schema", "keys", "rooms"}
FLOORS = [
    ROOT,
    {"artifacts"},
    {"engines"},
    {"data", "scorers"},
    {"judges"},
    {"label", "train", "evaluate", "serving"},
    {"pipeline", "rewards"},
    {"extras"},
]
FLOOR = {room: number for number, rooms in enumerate([*FLOORS, {"__main__"}], start=1) for room in rooms}
MODULES = {".".join(p.relative_to(PACKAGE.parent).with_suffix("").parts): p for p in PACKAGE.rglob("*.py")}


def imports(node: ast.AST, at_once: bool = False) -> Iterator[str]:
    """The modules of this package that a piece of code imports; ``at_once``: only those that importing it imports."""
    for child in ast.iter_child_nodes(node):
        typing = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        if at_once and (typing or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))):
            continue
        names = [name.name for name in child.names] if isinstance(child, (ast.Import, ast.ImportFrom)) else []
        if isinstance(child, ast.ImportFrom):
            assert not child.level, f"line {child.lineno}: a relative import"
            package = str(child.module)
            names = [
                f"{package}.{n}" if {f"{package}.{n}", f"{package}.{n}.__init__"} & {*MODULES} else package
                for n in names
            ]
        names = [name for name in names if name.split(".")[0] == "judgetrain"]
        yield from (name if name in MODULES else f"{name}.__init__" for name in names)
        yield from imports(child, at_once)


def test_imports_point_to_the_same_room_or_a_lower_floor() -> None:
    for module, path in MODULES.items():
        for name in imports(ast.parse(path.read_text(encoding="utf-8"))):
            room, other = module.split(".")[1], name.split(".")[1]
            same = room == other or {room, other} <= ROOT
            assert same or FLOOR[other] < FLOOR[room], f"{module} imports {name}"


def test_no_modules_import_each_other() -> None:
    """:class:`graphlib.CycleError` names the circle."""
    sources = {module: ast.parse(path.read_text(encoding="utf-8")) for module, path in MODULES.items()}
    TopologicalSorter({module: {*imports(tree, at_once=True)} for module, tree in sources.items()}).prepare()


def test_there_are_at_most_ten_rooms_on_seven_floors_and_the_root_is_nearly_empty() -> None:
    rooms = {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    assert len(rooms) <= 11 and len(FLOORS) <= 8
    assert rooms | {p.stem for p in PACKAGE.glob("*.py")} == set(FLOOR)


LOADED = "import json, sys\n{}\nprint(json.dumps(sorted(m for m in sys.modules if m.startswith('judgetrain.'))))"


def loaded(code: str) -> list[str]:
    """The package's modules that a process has after it ran some code."""
    done = subprocess.run([sys.executable, "-c", LOADED.format(code)], capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_help_imports_no_room() -> None:
    code = "sys.argv = ['judgetrain', '--help']\nfrom judgetrain.pipeline.cli import main\nmain()"
    assert {name.split(".")[1] for name in loaded(code)} <= {"rooms", "pipeline"}


def test_every_stage_reads_only_sections_that_there_are_and_every_section_loads() -> None:
    for stage in STAGES.values():
        for field in dataclasses.fields(stage.settings):
            name = field.metadata["key"].partition(".")[0]
            assert name in rooms.sections() or name in {f.name for f in dataclasses.fields(RunConfig)}
    assert all(dataclasses.is_dataclass(section.load()) for section in rooms.sections().values())
