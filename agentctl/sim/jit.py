"""How kernels are compiled.

Python may call an `entry`. A `rule` is handed to compiled code as a first-class function. A `kernel` is
called by compiled code only and stays a part of its callers (agentctl.sim.lean), which are cached with it.
Called from Python, rules and kernels crash the process; tests go through an entry of their own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from numba import njit

from agentctl.sim.lean import KernelCompiler
from agentctl.start_up import import_numba_without_scipy

import_numba_without_scipy()

# A kernel that only changes arrays in place needs no reference counts. They cost more than the work: every
# array of a tuple is counted up and down in every call. Not for functions that return or make arrays.
IN_PLACE: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}
INTERNAL: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

entry = njit(**IN_PLACE)
kernel = njit(**{**IN_PLACE, "cache": False}, **INTERNAL, pipeline_class=KernelCompiler)
rule = njit(**{**IN_PLACE, "no_cpython_wrapper": True})


def is_compiled_here() -> bool:
    """Whether this version's simulator was compiled before, so that it only has to be loaded."""
    folder = os.environ.get("NUMBA_CACHE_DIR", "")
    return bool(folder) and any(Path(folder).rglob("compiled.replay-*.nbi"))
