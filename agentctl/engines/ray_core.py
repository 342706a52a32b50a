"""Runs as plain tasks of a Ray cluster: one that runs already, or one started here on this machine alone.

The function, with the traces that it closes over, is put into Ray's store once and fetched once per worker.
A few tasks per core are under way at a time; those of a node that dies are computed again elsewhere. Ray's
usage statistics and its dashboard, which asks nobody who he is, are off in what is started here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from agentctl import __version__
from agentctl.errors import AgentctlError, UsageError

IN_FLIGHT = 3  # tasks per core: the next ones wait on the workers already
RETRIES = 2

T = TypeVar("T")
R = TypeVar("R")

_fetched: dict[str, Any] = {}  # of a worker: the function that it was given last


class RayCore:
    """Raises UsageError without Ray, AgentctlError when no cluster answers."""

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        self._ray = _import_ray()
        self._is_ours = not self._ray.is_initialized()
        if self._is_ours:
            self._start(address, workers)
        self.workers = max(int(self._ray.cluster_resources().get("CPU", 1)), 1)

    def _start(self, address: str | None, workers: int | None) -> None:
        from agentctl.engines.forked import n_cores

        variables = {key: os.environ[key] for key in ("NUMBA_CACHE_DIR", "PYTHONPATH") if key in os.environ}
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        quiet["runtime_env"] = {"env_vars": variables}
        try:
            if address is None:
                self._ray.init(
                    num_cpus=workers or n_cores(),
                    include_dashboard=False,
                    _node_ip_address="127.0.0.1",
                    **quiet,
                )
            else:
                self._ray.init(address=address, **quiet)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            raise AgentctlError(
                f"no Ray cluster answers ({type(error).__name__})",
                place="--address",
                expected="HOST:PORT of a cluster's head, or `auto` on one of its nodes",
            ) from error

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[int, R]]:
        ray = self._ray
        shared = ray.put(function)
        task = ray.remote(max_retries=RETRIES, num_cpus=1)(_run)
        waiting: Iterator[tuple[int, T]] = iter(enumerate(items))
        running: dict[Any, int] = {}
        try:
            while True:
                while len(running) < IN_FLIGHT * self.workers and (one := next(waiting, None)) is not None:
                    running[task.remote(__version__, [shared], one[1])] = one[0]
                if not running:
                    return
                done, _ = ray.wait(list(running), num_returns=1)
                for ref in done:
                    yield running.pop(ref), self._result(ref)
        finally:
            for ref in running:
                ray.cancel(ref, force=True)

    def _result(self, ref: Any) -> Any:
        ray = self._ray
        try:
            return ray.get(ref)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None  # what the function raised
        except ray.exceptions.RayError as error:
            raise AgentctlError(
                f"a run was lost {RETRIES + 1} times ({type(error).__name__})",
                hint="its worker may lack memory",
            ) from error

    def close(self) -> None:
        if self._is_ours:
            self._ray.shutdown()


def _run(version: str, shared: list[Any], item: Any) -> Any:
    """On a worker. The reference comes in a list, so that Ray does not unpack it for every task."""
    import ray

    if version != __version__:  # before anything of it is unpacked: its results would be other ones
        raise AgentctlError(f"a node of the Ray cluster has agentctl {__version__}", expected=version)
    key = shared[0].hex()
    if key not in _fetched:
        _fetched.clear()
        _fetched[key] = ray.get(shared[0])
    return _fetched[key](item)


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read when it is imported
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            "is not installed", place="--engine ray", hint='pip install "agentctl[ray]"'
        ) from error
    return ray
