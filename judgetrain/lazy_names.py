"""Names of a package that are imported at their first use."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(package: str, places: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package, so that importing it loads nothing of them.

    Args:
        package: the package's ``__name__``.
        places: its public names by the module that has them, as seen from ``judgetrain``.
    """

    def getattr_of_package(name: str) -> Any:
        for place, names in places.items():
            if name in names:
                return getattr(import_module(f"judgetrain.{place}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return getattr_of_package
