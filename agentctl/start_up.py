"""What other packages do when they start, and we need not pay for."""

from __future__ import annotations

import gc

_OBJECTS = 50_000  # between two looks for garbage: rows of a log and imported modules are none


def look_for_garbage_rarely() -> None:
    gc.set_threshold(_OBJECTS)


def import_numba_without_scipy() -> None:
    """numba's first kernel imports scipy.linalg, 0.3 s and 20 MB, to see whether it is there; it is required.

    Kernels that do linear algebra import it when they are compiled or called, as ever.
    """
    import numba.np.linalg as linalg

    ask = linalg.ensure_blas
    linalg.ensure_blas = lambda: None
    try:
        import numba.np.arraymath  # noqa: F401
    finally:
        linalg.ensure_blas = ask
