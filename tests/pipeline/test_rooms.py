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
from judgetrain.pipeline.config import STAGES, RunConfig
from tests.builders.house import FLOORS, PICTURE, ROOT, draw

PACKAGE = Path(judgetrain.__file__).parent
FLOOR = {room: number for number, rooms in enumerate([*FLOORS, {"__main__"}], start=1) for room in rooms}
MODULES = {".".join(p.relative_to(PACKAGE.parent).with_suffix("").parts): p for p in PACKAGE.rglob("*.py")}


def imports(node: ast.AST, at_once: bool = False) -> Iterator[str]:
    """Yield the modules of this package that a piece of code imports; ``at_once``: when it is itself imported."""
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
        # The package's front names what lies in any room, and imports it when somebody uses the name.
        if module == "judgetrain.__init__":
            assert [*imports(ast.parse(path.read_text(encoding="utf-8")), at_once=True)] == ["judgetrain.lazy_names"]
            continue
        for name in imports(ast.parse(path.read_text(encoding="utf-8"))):
            room = module.split(".")[1]
            other = name.split(".")[1]
            same = room == other or {room, other} <= ROOT
            assert same or FLOOR[other] < FLOOR[room], f"{module} imports {name}"


BUILT_ON = {("server", "judge_reward"), ("probdiff_studies", "selfeval"), ("correlate", "selfeval")}
"""Extras that build on another: scores of responses are made in one place, an LLM's own scores in another."""


def test_extras_know_the_core_and_not_each_other() -> None:
    for module, path in MODULES.items():
        if module.startswith("judgetrain.extras."):
            own_extra = module.split(".")[2]
            for name in imports(ast.parse(path.read_text(encoding="utf-8"))):
                other = name.split(".")[2] if name.startswith("judgetrain.extras.") else own_extra
                assert own_extra == other or (own_extra, other) in BUILT_ON, f"{module} imports {name}"


def test_the_core_names_no_extra() -> None:
    core = [path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".yaml") and "extras" not in path.parts]
    assert PACKAGE / "train" / "run.py" in core
    assert not [path for path in core if "judgetrain.extras" in path.read_text(encoding="utf-8")]


def test_nobody_asks_for_a_kind_of_judge_by_its_name() -> None:
    """But the kinds themselves, the parser of methods' names, and an extra for its own."""
    for module, path in MODULES.items():
        if module == "judgetrain.judges.method" or module.startswith("judgetrain.judges.kinds."):
            continue
        room = module.rpartition(".")[0]
        others = {name for name, code in rooms.kinds().items() if not code.startswith(f"{room}.")}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare) and ".kind" in ast.unparse(node):
                constants = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
                assert not constants & others, f"{module}: {ast.unparse(node)}"
            names = [name.name for name in node.names] if isinstance(node, ast.ImportFrom) else []
            assert not {"BRANCHING", "BASELINE"} & {*names}, f"{module} imports {names}"


def test_every_extra_says_what_it_is() -> None:
    folders = [path for path in (PACKAGE / "extras").iterdir() if (path / "__init__.py").is_file()]
    assert PACKAGE / "extras" / "server" in folders
    room_of = {room.name: room for room in rooms.rooms()}
    for folder in folders:
        readme = (folder / "README.md").read_text(encoding="utf-8")
        stability = room_of[f"extras/{folder.name}"].stability
        assert stability in ("stable", "experimental") and f"({stability})" in readme.splitlines()[0]


def test_no_modules_import_each_other() -> None:
    """:class:`graphlib.CycleError` names the circle."""
    sources = {module: ast.parse(path.read_text(encoding="utf-8")) for module, path in MODULES.items()}
    TopologicalSorter({module: {*imports(tree, at_once=True)} for module, tree in sources.items()}).prepare()


def test_every_room_stands_on_a_floor_and_the_root_holds_nothing_else() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders | {path.stem for path in PACKAGE.glob("*.py")} == set(FLOOR)


def test_the_picture_of_the_house_is_drawn_from_the_code_as_it_is() -> None:
    """``python -m tests.builders.house`` draws it anew."""
    assert (PACKAGE.parent / PICTURE).read_text(encoding="utf-8") == draw()


LOADED = "import json, sys\n{}\nprint(json.dumps(sorted(m for m in sys.modules if m.startswith('judgetrain.'))))"


def loaded(code: str) -> list[str]:
    """Return the package's modules that a process has after it ran some code."""
    done = subprocess.run([sys.executable, "-c", LOADED.format(code)], capture_output=True, text=True, check=True)
    modules: list[str] = json.loads(done.stdout.splitlines()[-1])
    return modules


def test_help_imports_no_room() -> None:
    code = "sys.argv = ['judgetrain', '--help']\nfrom judgetrain.pipeline.cli import main\nmain()"
    assert {name.split(".")[1] for name in loaded(code)} <= {"rooms", "errors", "amounts", "lazy_names", "pipeline"}


def test_training_a_judge_loads_no_extra_no_evaluation_and_no_judging() -> None:
    code = (
        "from hydra import compose, initialize_config_dir\n"
        "from hydra.core.config_store import ConfigStore\n"
        "from pkgutil import resolve_name\n"
        "from judgetrain.pipeline.compose import register, typed\n"
        "from judgetrain.pipeline.config import STAGES\n"
        "from judgetrain.pipeline import CONF\n"
        "from judgetrain.pipeline.run import Pipeline\n"
        "words = ['stage=dpo', 'recipe=debug']\n"
        "register(ConfigStore.instance(), words)\n"
        "with initialize_config_dir(str(CONF), version_base='1.3'):\n"
        "    pipeline = Pipeline(typed(compose('config', overrides=words), words))\n"
        "pipeline.check('dpo')\n"
        "pipeline.plan('dpo')\n"
        "for name in pipeline.needed('dpo'):\n"
        "    resolve_name(STAGES[name].code)"
    )
    loaded_rooms = {name.split(".")[1] for name in loaded(code)}
    assert loaded_rooms <= ROOT | {"artifacts", "engines", "data", "scorers", "judges", "label", "train", "pipeline"}


def test_every_stage_reads_only_sections_that_there_are_and_every_section_loads() -> None:
    for stage in STAGES.values():
        for field in dataclasses.fields(stage.settings):
            name = field.metadata["key"].partition(".")[0]
            assert name in rooms.sections() or name in {f.name for f in dataclasses.fields(RunConfig)}
    assert all(dataclasses.is_dataclass(section.load()) for section in rooms.sections().values())
