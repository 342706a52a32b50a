"""How kernels are compiled."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from numba import njit

# A kernel that only changes arrays in place needs no reference counts. They cost more than the work: every
# array of a tuple is counted up and down in every call. Not for functions that return or make arrays.
_NO_REFERENCE_COUNTS: dict[str, Any] = {"_nrt": False}

kernel = njit(cache=True, nogil=True, **_NO_REFERENCE_COUNTS)


def is_compiled_here() -> bool:
    """Whether this version's simulator was compiled before, so that it only has to be loaded."""
    folder = os.environ.get("NUMBA_CACHE_DIR", "")
    return bool(folder) and any(Path(folder).rglob("compiled.replay-*.nbi"))
