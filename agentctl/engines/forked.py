"""Runs in processes of this machine: forked, which see everything that this one has without a copy, or
started anew, where a fork would copy the locks of threads that run."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from agentctl.engines import Serial
from agentctl.errors import AgentctlError

PR_SET_PDEATHSIG = 1  # of Linux, <sys/prctl.h>
MOST_DEATHS = 2  # of workers, one after the other, without a result in between

T = TypeVar("T")
R = TypeVar("R")

_function: Callable[[Any], Any] | None = None  # of a worker, inherited when it was forked


def n_cores() -> int:
    """Cores this process may use; 1 where processes cannot be forked."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Forked:
    """`workers` processes for each call of `map`; 1 stays in this one."""

    method = "fork"  # so that `function` may be a closure over a whole workload

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or n_cores()

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[int, R]]:
        if min(self.workers, len(items)) <= 1:
            yield from Serial().map(function, items)
            return
        left, deaths = dict(enumerate(items)), 0
        while left:
            n_before = len(left)
            try:
                for place, result in _pooled(self.method, function, dict(left), min(self.workers, len(left))):
                    del left[place]
                    yield place, result
            except BrokenProcessPool as error:
                deaths = 1 if len(left) < n_before else deaths + 1
                if deaths > MOST_DEATHS:
                    raise AgentctlError(
                        f"a worker process was killed {deaths} times, whatever it was given",
                        hint="memory may be short: --engine serial needs the least",
                    ) from error

    def close(self) -> None:
        """Every call has ended its workers."""


class Spawned(Forked):
    """The same with processes that share nothing: function and items are sent to them."""

    method = "spawn"


def _pooled(
    method: str, function: Callable[[T], R], items: dict[int, T], workers: int
) -> Iterator[tuple[int, R]]:
    context, others = multiprocessing.get_context(method), set(multiprocessing.active_children())
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=(function,)) as pool:
        try:
            # A terminal interrupts all of its processes; those started while it is blocked never hear of it.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                submitted = [(pool.submit(_call, item), place) for place, item in items.items()]
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            running: dict[Future[R], int] = dict(submitted)
            while running:
                for future in sorted(
                    wait(running, return_when=FIRST_COMPLETED).done, key=running.__getitem__
                ):
                    yield running.pop(future), future.result()
        except BaseException:  # also Ctrl-C: nobody waits for runs that nobody wants
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()
            raise


def _start(function: Callable[[Any], Any]) -> None:
    """Of a worker: an interrupt is the parent's business, an end is an end."""
    global _function
    _function = function
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _end_with_parent()


def _end_with_parent() -> None:
    """A killed parent cannot end its workers, and they would wait for it for ever (Linux ends them then)."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:  # it was killed just before
        os._exit(1)


def _call(item: Any) -> Any:
    assert _function is not None, "a worker is started with its function"
    return _function(item)
