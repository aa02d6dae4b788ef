"""What ``engine.type=auto`` stands for in a run: chosen once, and kept in ``output_dir`` for the runs that go on."""

from functools import cached_property
from pathlib import Path

from judgetrain.artifacts.files import read_json, write_json_atomic
from judgetrain.engines.auto import TYPES, type_here
from judgetrain.errors import ConfigError

FILE = "engines.json"
"""The file in ``output_dir`` that names the engine's type for each recipe."""


class AutoEngine:
    """The type of engine that a run takes for ``auto``, resolved once, before anything is planned.

    Runs of a recipe keep the type that the first of them in this ``output_dir`` took. So a run that goes on on another
    machine makes the same artifacts. Without earlier runs it is the type for a machine of this kind
    (:func:`~judgetrain.engines.auto.type_here`).

    An object of this class is called for the type. It looks at files and at the machine when it is first called, so
    that a run whose recipe names its engines does neither.

    Args:
        output_dir: the run's.
        recipe: the run's.
    """

    def __init__(self, output_dir: str, recipe: str) -> None:
        self._path = Path(output_dir) / FILE
        self._recipe = recipe
        self._is_read = False

    def __call__(self) -> str:
        """Return the type, a key of :data:`~judgetrain.engines.auto.TYPES`.

        Raises:
            ConfigError: the file names another one.
        """
        self._is_read = True
        return self._type

    @cached_property
    def _type(self) -> str:
        return self._kept or type_here()

    @cached_property
    def _kept(self) -> str | None:
        """Return the type that earlier runs have kept, or None."""
        types = read_json(self._path)
        if not isinstance(types, dict) or self._recipe not in types:
            return None
        name = types[self._recipe]
        if name not in TYPES:
            raise ConfigError(
                f"{self._path}: {self._recipe}: {name!r} is no engine that type auto stands for: expected one of "
                f"{', '.join(TYPES)}"
            )
        return str(name)

    def keep(self) -> None:
        """Write the type down, where some engine of the run has asked for it, for the runs that go on."""
        if not self._is_read or self._kept:
            return
        from filelock import FileLock

        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Two runs that begin at once would each write what the other had not written yet.
        with FileLock(self._path.with_name(f".{FILE}.lock")):
            types = read_json(self._path)
            # Runs of other recipes keep their own.
            if not isinstance(types, dict):
                types = {}
            types[self._recipe] = self._type
            write_json_atomic(self._path, types)

    @property
    def told(self) -> str | None:
        """Return what a user is to know about the choice, in one sentence.

        It is None where no engine is ``auto``, and where the own decoder was chosen, as on every machine without a GPU.
        """
        if not self._is_read:
            return None
        if self._kept and self._kept != type_here():
            return (
                f"engine.type=auto is {self._kept}, with which runs of recipe {self._recipe} were begun "
                f"({self._path}); engine.type={type_here()} begins anew"
            )
        if self._type == "transformers":
            return None
        return f"engine.type=auto is {self._type} on this machine; engine=NAME takes another"
