"""The house: which rooms there are, that no import points up or to a neighbour, and that none go in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import judgetrain

PACKAGE = Path(judgetrain.__file__).parent
ROOT = {"__init__", "errors", "schema", "keys"}
FLOORS = [
    ROOT,
    {"artifacts"},
    {"engines"},
    {"data", "scorers"},
    {"judges"},
    {"label", "train", "evaluate", "serving"},
    {"pipeline"},
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
    assert len(rooms) <= 10 and len(FLOORS) <= 7
    assert rooms | {p.stem for p in PACKAGE.glob("*.py")} == set(FLOOR)
