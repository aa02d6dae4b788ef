"""As much of Ray as the executor uses, in this process: nodes with room for so many actors, which die when told to."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import cloudpickle


class RayError(Exception):
    """Stands for ``ray.exceptions.RayError``."""


class RayTaskError(RayError):
    """Stands for ``ray.exceptions.RayTaskError``: what was called has raised."""


class ActorDied(RayError):
    """Stands for ``ray.exceptions.RayActorError``."""


class FakeRay(ModuleType):
    """Whoever waits is given one of the results at random.

    Args:
        dies: given the number of a shard and how often it was begun, whether its worker dies over it.
        nodes: what each has.
        lingers: seconds from the killing of an actor to its death.
        starts: whether actors can be started.
        barren: nodes on which none can be, and where that is known before any shard is finished.
    """

    def __init__(
        self,
        dies: Callable[[int, int], bool] = lambda index, times: False,
        nodes: Sequence[dict[str, float]] = ({"CPU": 4.0},),
        lingers: float = 0.0,
        starts: bool = True,
        barren: Collection[int] = (),
    ) -> None:
        super().__init__("ray")
        self.dies, self.lingers, self.starts, self.barren = dies, lingers, starts, barren
        self.has = [dict(node) for node in nodes]
        self.lost: set[int] = set()
        self.chance = random.Random(1)
        self.begun: list[int] = []
        self.actors: list[Actor] = []
        self.asked: dict[str, Any] = {}
        self.under_way = self.most = 0
        self.cloudpickle = cloudpickle
        kinds = {"RayError": RayError, "RayTaskError": RayTaskError, "RayActorError": ActorDied}
        self.exceptions = ModuleType("ray.exceptions")
        vars(self.exceptions).update(kinds)

    @property
    def alive(self) -> list[Actor]:
        """Actors that nobody has killed: at work, or waiting for room."""
        return [actor for actor in self.actors if actor.died is None]

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeManagerAddress": f"10.0.0.{i}", "Alive": i not in self.lost, "Resources": has}
            for i, has in enumerate(self.has)
        ]

    def available_resources(self) -> dict[str, float]:
        return {"CPU": sum(self._free(i, "CPU") for i in range(len(self.has)) if i not in self.lost)}

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "here")

    def lose(self, node: int) -> None:
        """The node and its actors are gone."""
        self.lost.add(node)
        for actor in self.alive:
            if actor.node == node:
                actor.died = 0.0

    def put(self, value: Any) -> Any:
        return value

    def remote(self, kind: type) -> Any:
        outer = self

        class Remote:
            def options(self, **asked: Any) -> Remote:
                outer.asked = asked
                return self

            def remote(self, *arguments: Any) -> Actor:
                outer.actors.append(Actor(outer, kind(*arguments)))
                return outer.actors[-1]

        return Remote()

    def wait(self, calls: Sequence[Call], num_returns: int, timeout: float | None) -> tuple[list[Call], list[Call]]:
        assert calls, "Ray refuses to wait for nothing"
        until = time.monotonic() + (timeout or 3600)
        while len(answered := [call for call in calls if self._answered(call)]) < num_returns:
            if time.monotonic() > until:
                break
            time.sleep(0.001)
        answered = [call for call in answered if call.actor.node in self.barren] or answered
        chosen = self.chance.sample(answered, min(num_returns, len(answered)))
        return chosen, [call for call in calls if call not in chosen]

    def get(self, call: Call) -> Any:
        actor, is_shard = call.actor, call.method == "shard"
        self.under_way -= is_shard
        if is_shard and self.dies(call.arguments[2], self.begun.count(call.arguments[2])):
            actor.died = 0.0
        if actor.died is not None or not self.starts or actor.node in self.barren:
            actor.died = 0.0
            raise ActorDied("the actor died")
        return call.result()

    def kill(self, actor: Actor) -> None:
        if actor.died is None:
            actor.died = time.monotonic() + self.lingers

    def _answered(self, call: Call) -> bool:
        if call.actor.died is not None:
            return time.monotonic() >= call.actor.died
        return call.actor.placed()

    def _free(self, node: int, what: str) -> float:
        taken = {"CPU": "num_cpus", "GPU": "num_gpus"}[what]
        return self.has[node].get(what, 0.0) - sum(a.node == node for a in self.alive) * self.asked.get(taken, 0.0)

    def rooms(self) -> Iterator[int]:
        """Nodes that have room for one more."""
        for node in {*range(len(self.has))} - self.lost:
            if self._free(node, "CPU") >= self.asked["num_cpus"] and self._free(node, "GPU") >= self.asked["num_gpus"]:
                yield node


class Actor:
    """A worker, one call of which is under way at a time."""

    def __init__(self, ray: FakeRay, worker: Any) -> None:
        self.ray, self.worker = ray, worker
        self.died: float | None = None
        self.node: int | None = None
        self.shard, self.ready, self.free = (Method(self, name) for name in ("shard", "ready", "free"))

    def placed(self) -> bool:
        """Whether it has a node, if need be from now on."""
        if self.node is None:
            self.node = next(self.ray.rooms(), None)
        return self.node is not None


class Method:
    """A method of an actor."""

    def __init__(self, actor: Actor, name: str) -> None:
        self.actor, self.name = actor, name

    def remote(self, *arguments: Any) -> Call:
        ray = self.actor.ray
        if self.name == "shard":
            assert self.actor.node is not None, "a worker that is not placed gets no shard"
            ray.begun.append(arguments[2])
            ray.under_way += 1
            ray.most = max(ray.most, ray.under_way)
        call = Call(self.actor, self.name, arguments)
        if self.name == "free" and self.actor.died is None:
            call.result()
        return call


class Call:
    """A call's result to come."""

    def __init__(self, actor: Actor, method: str, arguments: tuple[Any, ...]) -> None:
        self.actor, self.method, self.arguments = actor, method, arguments

    def result(self) -> Any:
        """What the worker gives, as if from another process."""
        if self.method == "ready":
            return "elsewhere", 0
        try:
            return cloudpickle.loads(cloudpickle.dumps(getattr(self.actor.worker, self.method)(*self.arguments)))
        except Exception as error:
            raise RayTaskError(str(error)) from error
