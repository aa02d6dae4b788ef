"""The stage graph, planning and running it, and the command line; the shipped recipes, and conf/'s groups."""

from pathlib import Path

from judgetrain.rooms import shipped

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130

CONF = shipped("conf")
RECIPES = shipped("recipes")


def recipes() -> dict[str, Path]:
    """The shipped recipes by name; a sub-folder is part of the name."""
    return {str(p.relative_to(RECIPES).with_suffix("")): p for p in sorted(RECIPES.rglob("*.yaml"))}


def groups() -> dict[str, list[str]]:
    """The options of every group of conf/, and the recipes."""
    found: dict[str, list[str]] = {}
    for path in sorted(CONF.glob("*/*.yaml")):
        found.setdefault(path.parent.name, []).append(path.stem)
    return found | {"recipe": list(recipes())}
