"""Make engines from their configuration, and load models when they are first needed."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pkgutil import resolve_name
from typing import Generic, Protocol, TypeVar, cast

from judgetrain.artifacts.executor import HELD
from judgetrain.artifacts.heartbeat import doing
from judgetrain.engines.answers import AnswerStore, Budget
from judgetrain.engines.base import Engine
from judgetrain.engines.config import EngineConfig, LocalEngineConfig
from judgetrain.engines.gguf import announce_unpacking
from judgetrain.engines.loading import resolve_path


def make_engine(
    config: EngineConfig,
    model_path: str | None = None,
    name: str | None = None,
    answers: AnswerStore | None = None,
    budget: Budget | None = None,
) -> Engine:
    """Return the engine of a configuration, which names the engine's class in ``makes``.

    Args:
        config: the engine's configuration.
        model_path: takes the place of the configured model, as a stage's trained model.
        name: takes the place of the configured name.
        answers: keeps the answers of a model that is paid for.
        budget: limits what is sent to a model that is paid for.

    Raises:
        EngineError: a package is missing, or the model or server cannot be used.
    """
    if model_path is not None:
        config = config.with_model(str(model_path))
    if name is not None:
        config = replace(config, name=name)

    # Before the libraries are imported, which takes seconds in which nothing else would be said.
    if isinstance(config, LocalEngineConfig) and config.model.path:
        announce_unpacking(*resolve_path(config.model))
    with doing("loading the libraries"):
        engine_class = resolve_name(config.makes)
    engine: Engine
    if config.paid:
        engine = engine_class(config, answers, budget)
    else:
        engine = engine_class(config)
    return engine


class Closable(Protocol):
    """An object that holds a model or a connection."""

    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class Loaded(Generic[C]):
    """A function that loads a model when it is first called, and returns the same model afterwards.

    Sent to another process, it loads the model there. A process that was sent several of these functions holds one
    model at a time, that of the last call, since its memory has room for one.

    Args:
        load: loads the model.
        name: the same for a function and its copies in other processes; by default, a random one.
    """

    def __init__(self, load: Callable[[], C], name: str | None = None) -> None:
        self._load = load
        self._name = name or uuid.uuid4().hex
        self._model: C | None = None

    def __call__(self) -> C:
        """Return the model, loading it if that has not been done."""
        if self._model is None:
            # In the process that made them, several may be loaded: who made them knows what the memory holds.
            if self._name in _SENT:
                for other in _SENT.values():
                    other.close()
            self._model = self._load()
        return self._model

    def close(self) -> None:
        """Free the model; another call loads it again."""
        model = self._model
        self._model = None
        if model is not None:
            model.close()

    def __reduce__(self) -> tuple[object, ...]:
        """Return how to make the function in another process, without the model."""
        return _sent, (self._load, self._name)


_SENT: dict[str, Loaded] = {}
"""Functions that other processes sent to this one, by name."""


def _sent(load: Callable[[], C], name: str) -> Loaded[C]:
    """Return the function that was sent under a name; it is made the first time, so that its model is loaded once."""
    if name not in _SENT:
        _SENT[name] = Loaded(load, name)
        # The executor closes it before the worker is ended, so that a GPU or a vLLM process is given back.
        HELD.append(_SENT[name].close)
    return cast(Loaded[C], _SENT[name])


@contextmanager
def loaded_once(load: Callable[[], C]) -> Iterator[Callable[[], C]]:
    """Yield a function that loads a model when it is first called, and close the model at the end.

    A stage whose shards are all finished so loads nothing. The function can be sent to other processes
    (:class:`Loaded`).
    """
    loaded = Loaded(load)
    try:
        yield loaded
    finally:
        loaded.close()
