"""agentctl: from the request logs of an LLM cluster for agents to a routing and capacity decision."""

import os

__version__ = "0.1.0"


def _give_numba_a_cache() -> None:
    """In a read-only image without a home numba finds no place for compiled code and refuses to start.

    A fresh private folder then: a shared one under /tmp would let others plant code that we load.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  (start-up time)
    while home != os.path.dirname(home) and not os.path.exists(home):  # noqa: PTH110, PTH120
        home = os.path.dirname(home)  # noqa: PTH120
    places = (os.path.dirname(__file__), home)  # noqa: PTH120
    if "NUMBA_CACHE_DIR" in os.environ or any(os.access(place, os.W_OK) for place in places):
        return
    import atexit
    import shutil
    import tempfile

    folder = os.environ["NUMBA_CACHE_DIR"] = tempfile.mkdtemp(prefix="agentctl-numba-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)


_give_numba_a_cache()
