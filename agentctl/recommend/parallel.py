"""Independent runs side by side: the same results in the same order for any number of workers."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

PR_SET_PDEATHSIG = 1  # of Linux, <sys/prctl.h>

T = TypeVar("T")
R = TypeVar("R")

_function: Callable[[Any], Any] | None = None  # of a worker, inherited when it was forked


def n_workers() -> int:
    """Cores this process may use; 1 where processes cannot be forked."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(function: Callable[[T], R], items: Sequence[T], workers: int) -> Iterator[R]:
    """function(item) of each item, in their order, in `workers` processes; 1 stays in this one.

    Workers are forked, so that `function` may be a closure over a whole workload; results are sent back.
    """
    workers = min(workers, len(items))
    if workers <= 1:
        yield from map(function, items)
        return
    fork, others = multiprocessing.get_context("fork"), set(multiprocessing.active_children())
    with ProcessPoolExecutor(workers, mp_context=fork, initializer=_start, initargs=(function,)) as pool:
        try:
            yield from pool.map(_call, items)
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
