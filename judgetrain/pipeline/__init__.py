"""The stage graph, planning and running it, and the command line; the shipped recipes, and conf/'s groups."""

from pathlib import Path

from judgetrain.rooms import shipped

EXIT_ERROR = 2
"""The exit code for an expected error."""
EXIT_INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it: 128 and the signal's number."""
EXIT_TERMINATED = 143
"""The exit code after SIGTERM or SIGUSR1."""

CONF = shipped("conf")
"""The directory of Hydra's groups."""
RECIPES = shipped("recipes")
"""The directory of the shipped recipes."""


def recipes() -> dict[str, Path]:
    """Return the files of the shipped recipes by name; a sub-folder is part of the name."""
    return {str(path.relative_to(RECIPES).with_suffix("")): path for path in sorted(RECIPES.rglob("*.yaml"))}


def groups() -> dict[str, list[str]]:
    """Return the options of every group of conf/, and the recipes as those of group ``recipe``."""
    options: dict[str, list[str]] = {}
    for path in sorted(CONF.glob("*/*.yaml")):
        options.setdefault(path.parent.name, []).append(path.stem)
    options["recipe"] = list(recipes())
    return options
