"""Engines made from their configuration, and models that are loaded when first needed and closed at the end."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pkgutil import resolve_name
from typing import Generic, Protocol, TypeVar, cast

from judgetrain.artifacts.executor import HELD
from judgetrain.engines.answers import AnswerStore, Budget
from judgetrain.engines.base import Engine
from judgetrain.engines.config import EngineConfig


def make_engine(
    config: EngineConfig,
    model_path: str | None = None,
    name: str | None = None,
    answers: AnswerStore | None = None,
    budget: Budget | None = None,
) -> Engine:
    """The engine of a configuration: what it names in ``makes`` (EngineError: a missing package, or a model or
    server that cannot be used).

    ``model_path`` stands in for the model that it names (a stage's trained model), ``name`` for its name. ``answers``
    and ``budget`` are for models that are paid for: where their answers are kept, and what may be sent.
    """
    if model_path is not None:
        config = config.with_model(str(model_path))
    if name is not None:
        config = replace(config, name=name)
    engine: Engine = resolve_name(config.makes)(config, *((answers, budget) if config.paid else ()))
    return engine


class Closable(Protocol):
    """What holds a model or a connection."""

    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class Loaded(Generic[C]):
    """A function that loads when it is first called and gives the same again; ``close`` frees what it loaded.

    Sent to another process, it is a function that loads there. A process that was sent several has one of them loaded,
    the one that it called last: its memory is a model's.
    """

    def __init__(self, load: Callable[[], C], name: str | None = None) -> None:
        self._load, self._name = load, name or uuid.uuid4().hex
        self._held: C | None = None

    def __call__(self) -> C:
        """What was loaded."""
        if self._held is None:
            for other in _SENT.values() if self._name in _SENT else ():
                other.close()
            self._held = self._load()
        return self._held

    def close(self) -> None:
        """Free it; another call loads it again."""
        held, self._held = self._held, None
        if held is not None:
            held.close()

    def __reduce__(self) -> tuple[object, ...]:
        """How to load it, not what was loaded."""
        return _sent, (self._load, self._name)


_SENT: dict[str, Loaded] = {}
"""What other processes sent to this one, by name."""


def _sent(load: Callable[[], C], name: str) -> Loaded[C]:
    """What has been sent under this name: the same again, so that it is loaded once for all that it is sent with."""
    if name not in _SENT:
        _SENT[name] = Loaded(load, name)
        HELD.append(_SENT[name].close)
    return cast(Loaded[C], _SENT[name])


@contextmanager
def loaded_once(load: Callable[[], C]) -> Iterator[Callable[[], C]]:
    """A function that loads when it is first called, so that a stage whose shards are all there loads nothing.

    What it loaded is closed at the end. It can be sent to other processes (:class:`Loaded`).
    """
    loaded = Loaded(load)
    try:
        yield loaded
    finally:
        loaded.close()
