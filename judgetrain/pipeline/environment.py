"""Settings that come from the environment, as ``${oc.env:NAME}``: they are never written resolved.

They may be secrets, which would end in manifests, trackers and judges that are shared. What is written in place of a
setting names the variable, with a few digits of a hash, so that runs with different values do not look alike.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from judgetrain.artifacts.environment import TEXTS
from judgetrain.artifacts.fingerprint import by_key, fingerprint
from judgetrain.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig, ListConfig

KeyParts = tuple[str, ...]
"""A key of the configuration in parts: names, and places in lists."""


class _Reading:
    """Notes what is read while a configuration is resolved.

    Attributes:
        names: the variables that were read since somebody cleared the list.
        gives_names: the names of variables take the place of their values.
    """

    names: ClassVar[list[str]] = []
    gives_names: ClassVar[bool] = False


def _variable(name: str, *default: Any, _node_: Any) -> Any:
    """Return a variable's value, as OmegaConf's ``oc.env`` does, and note that it was read.

    Args:
        name: of the variable.
        default: is returned where the variable is not set.
        _node_: the place in the configuration, which OmegaConf passes.

    Raises:
        ConfigError: names are to be given, and the place is that of a number.
    """
    from omegaconf.nodes import BooleanNode, FloatNode, IntegerNode
    from omegaconf.resolvers import oc

    value = os.environ.get(name)
    if value is None:
        return oc.env(name, *default)
    text = f"${{oc.env:{name}}}"
    _Reading.names.append(name)
    TEXTS[value] = text
    # To compute with, the value is needed; its name takes its place only in what is shown.
    if not _Reading.gives_names:
        return value
    if isinstance(_node_, (IntegerNode, FloatNode, BooleanNode)):
        key = _node_._get_full_key(None)
        raise ConfigError(f"{key}={text}: what comes from the environment is not shown: leave out --resolve")
    return text


def read_environment_here() -> None:
    """Have OmegaConf read the environment through this module; whoever composes a configuration calls it first."""
    # OmegaConf is imported where it is needed: completing a word of the shell imports this module, and has no time.
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("oc.env", _variable, replace=True)


@contextmanager
def by_name() -> Iterator[None]:
    """Have configurations resolve to the names of variables in place of their values, to be shown."""
    before = _Reading.gives_names
    _Reading.gives_names = True
    try:
        yield
    finally:
        _Reading.gives_names = before


@dataclass(frozen=True)
class FromEnvironment:
    """The values that a configuration took from the environment.

    Args:
        settings: what is written in place of a setting, by its key.
        texts: what is written in place of a value in messages and requests, by the value.
    """

    settings: Mapping[KeyParts, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, composed: "DictConfig") -> "FromEnvironment":
        """Return what a composed configuration takes from the environment, looked at key by key."""
        return cls(dict(_taken(composed, ())), dict(TEXTS))

    def adopt(self) -> None:
        """Have this process know the values too, which another one may have read."""
        TEXTS.update(self.texts)

    def shown(self, settings: Any) -> dict[str, Any]:
        """Return a stage's settings by their configuration keys, as manifests and trackers have them."""
        values: dict[str, Any] = {}
        for key, value in by_key(settings).items():
            parts = tuple(key.split("."))
            values[key] = self._written(value, parts)
            # A section as a whole may come from one variable.
            for length in range(1, len(parts)):
                values[key] = self.settings.get(parts[:length], values[key])
        return values

    def written(self, value: Any, key: str) -> Any:
        """Return the setting under a dotted key, as JSON values, without what came from the environment."""
        return self._written(value, tuple(key.split(".")))

    def _written(self, value: Any, parts: KeyParts) -> Any:
        """Return the setting under a key in parts without what came from the environment."""
        if parts in self.settings:
            return self.settings[parts]
        if isinstance(value, Mapping):
            return {name: self._written(part, (*parts, name)) for name, part in value.items()}
        if isinstance(value, list):
            return [self._written(part, (*parts, str(place))) for place, part in enumerate(value)]
        return value


def _taken(node: "DictConfig | ListConfig", parts: KeyParts) -> Iterator[tuple[KeyParts, str]]:
    """Yield the keys below a node whose values depend on variables that are set, and what is written for these."""
    from omegaconf import DictConfig, ListConfig

    for name, child in _children(node):
        child_parts = (*parts, name)
        value: Any = child

        # Reading the value shows which variables it depends on, also through other keys that it names.
        if child._is_interpolation():
            _Reading.names.clear()
            value = child._dereference_node()
            if _Reading.names:
                yield child_parts, f"{_named(child)} ({_digest(value)})"
                continue
        if isinstance(value, (DictConfig, ListConfig)):
            yield from _taken(value, child_parts)


def _children(node: "DictConfig | ListConfig") -> Iterator[tuple[str, Any]]:
    """Yield the nodes in a mapping or list by their names or places; none of one that is null or missing."""
    from omegaconf import ListConfig

    if node._is_none() or node._is_missing():
        return
    names: Any = range(len(node)) if isinstance(node, ListConfig) else node.keys()
    for name in names:
        yield str(name), node._get_node(name)


def _named(node: Any) -> str:
    """Return the text of an interpolation with the names of variables in place of their values."""
    from omegaconf.errors import OmegaConfBaseException

    try:
        with by_name():
            return str(node._dereference_node()._value())
    except (OmegaConfBaseException, ConfigError):
        # A name is no number; then the interpolation itself is shown.
        return str(node._value())


def _digest(node: Any) -> str:
    """Return a few digits that differ for other values, and do not say which they are."""
    from omegaconf import OmegaConf

    value: Any
    if OmegaConf.is_config(node):
        value = OmegaConf.to_container(node, resolve=True)
    else:
        value = str(node._value())
    return fingerprint({"value": value})[:8]
