"""Where independent runs are computed: in this process, in processes beside it, or on a Ray cluster.

The same results from all of them: a run follows from its specification alone, and who folds results sorts
them first. What is shared by all runs (traces, candidates) goes along with the function, once per worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from agentctl.errors import UsageError

ENGINES = ("processes", "serial", "ray")

T = TypeVar("T")
R = TypeVar("R")


class Engine(Protocol):
    """`workers` is how many runs are computed at a time."""

    @property
    def workers(self) -> int: ...

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[int, R]]:
        """(place, function(item)) of every item, as they come. An error of one is raised, and the others are
        given up; a worker that dies is replaced and its items are computed again."""
        ...

    def close(self) -> None:
        """End what was started."""
        ...


class Serial:
    """In this process, one after the other."""

    workers = 1

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[int, R]]:
        for place, item in enumerate(items):
            yield place, function(item)

    def close(self) -> None:
        """Nothing was started."""


def in_order(function: Callable[[T], R], items: Sequence[T], engine: Engine) -> Iterator[R]:
    """function(item) of each item, in their order."""
    waiting: dict[int, Any] = {}
    next_place = 0
    for place, result in engine.map(function, items):
        waiting[place] = result
        while next_place in waiting:
            yield waiting.pop(next_place)
            next_place += 1


def engine_of(
    name: str | None = None, workers: int | None = None, address: str | None = None, *, forks: bool = True
) -> Engine:
    """
    name     one of ENGINES; None: processes
    workers  of processes, or of a Ray that is started here; None: the cores that this process may use
    address  of a Ray cluster that runs already
    forks    processes are forked; else they start anew, and what they compute must be sent to them

    Raises UsageError for a name that is none, and for options that do not go with it.
    """
    from agentctl.engines.forked import Forked, Spawned

    name = name or ENGINES[0]
    if name not in ENGINES:
        raise UsageError(f"is {name!r}", place="--engine", expected=" or ".join(ENGINES))
    if address is not None and name != "ray":
        raise UsageError("is of a Ray cluster", place="--address", expected="--engine ray")
    if workers is not None and (name == "serial" or address is not None):
        raise UsageError("cannot be chosen here", place="--workers", expected="--engine processes")
    if name == "serial":
        return Serial()
    if name == "ray":
        from agentctl.engines.ray_core import RayCore

        return RayCore(address, workers)
    return Forked(workers) if forks else Spawned(workers)
