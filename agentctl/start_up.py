"""What other packages do when they start, and we need not pay for."""

from __future__ import annotations

import ctypes
import gc

_M_MMAP_THRESHOLD = -3  # malloc.h
_LARGE_BYTES = 1 << 20
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


def return_freed_memory() -> None:
    """From here on arrays of a megabyte or more go back to the system when they are freed.

    glibc otherwise learns to keep arrays of up to 32 MB in its heap, where what is freed between others stays
    (mallopt(3), M_MMAP_THRESHOLD; numpy.org/doc: arrays come from malloc). Other C libraries do not need it.
    """
    libc = ctypes.CDLL(None)
    if (mallopt := getattr(libc, "mallopt", None)) and (trim := getattr(libc, "malloc_trim", None)):
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        trim(0)
