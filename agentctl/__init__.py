"""agentctl: from the request logs of an LLM cluster for agents to a routing and capacity decision."""

import os

__version__ = "0.1.0"


def _give_numba_a_cache() -> None:
    """Compiled code goes to the user's cache, apart for every version.

    Beside the sources, where numba puts it by default, a read-only image has no room, and an upgrade finds
    compiled code that describes types of the version before. Without a writable home (numba then refuses to
    start) a fresh private folder serves: a shared one under /tmp would let others plant code that we load.
    """
    if "NUMBA_CACHE_DIR" in os.environ:
        return
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  (start-up time)
    folder = os.path.join(home, "agentctl", f"numba-{__version__}")  # noqa: PTH118
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        usable = os.access(folder, os.W_OK)
    except OSError:
        usable = False
    if not usable:
        import atexit
        import shutil
        import tempfile

        folder = tempfile.mkdtemp(prefix="agentctl-numba-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["NUMBA_CACHE_DIR"] = folder


_give_numba_a_cache()
