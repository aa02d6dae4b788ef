"""As much of Ray as the executor uses, in this process: actors that die when they are told to."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import cloudpickle


class ActorDied(Exception):
    """Stands for ``ray.exceptions.RayActorError``."""


class FakeRay(ModuleType):
    """Whoever waits is given one of the results at random.

    Args:
        dies: given the number of a shard and how often it was begun, whether its worker dies over it.
        resources: of the cluster.
    """

    def __init__(self, dies: Callable[[int, int], bool], resources: dict[str, float] | None = None) -> None:
        super().__init__("ray")
        self.dies, self.resources = dies, resources or {"CPU": 4.0}
        self.chance = random.Random(1)
        self.begun: list[int] = []
        self.alive: list[Actor] = []
        self.asked: dict[str, Any] = {}
        self.under_way = self.most = 0
        self.cloudpickle = cloudpickle
        self.exceptions = ModuleType("ray.exceptions")
        self.exceptions.RayActorError = ActorDied  # type: ignore[attr-defined]
        self.exceptions.OutOfMemoryError = MemoryError  # type: ignore[attr-defined]

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return self.resources

    def put(self, value: Any) -> Any:
        return value

    def remote(self, kind: type) -> Any:
        outer = self

        class Remote:
            def options(self, **asked: Any) -> Remote:
                outer.asked = asked
                return self

            def remote(self, *arguments: Any) -> Actor:
                outer.alive.append(Actor(outer, kind(*arguments)))
                return outer.alive[-1]

        return Remote()

    def wait(self, futures: Sequence[Future], num_returns: int) -> tuple[list[Future], list[Future]]:
        chosen = self.chance.choice(futures)
        return [chosen], [each for each in futures if each is not chosen]

    def get(self, future: Future) -> Any:
        self.under_way -= 1
        if self.dies(future.index, self.begun.count(future.index)):
            self.alive.remove(future.actor)
            raise ActorDied("the actor died")
        return cloudpickle.loads(cloudpickle.dumps(future.actor.worker.shard(*future.arguments)))

    def kill(self, actor: Actor) -> None:
        self.alive.remove(actor)


class Actor:
    """A worker, one call of which is under way at a time."""

    def __init__(self, ray: FakeRay, worker: Any) -> None:
        self.ray, self.worker = ray, worker
        self.shard = self

    def remote(self, *arguments: Any) -> Future:
        ray = self.ray
        ray.begun.append(arguments[2])
        ray.under_way += 1
        ray.most = max(ray.most, ray.under_way)
        return Future(self, arguments)


class Future:
    """A call's result to come."""

    def __init__(self, actor: Actor, arguments: tuple[Any, ...]) -> None:
        self.actor, self.arguments, self.index = actor, arguments, arguments[2]
