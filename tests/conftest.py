"""Hypothesis: the same examples on every run, and no deadline, since a kernel's first call compiles it."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

import agentctl  # noqa: F401  (names the folder of compiled code, which all tests share)

settings.register_profile("agentctl", deadline=None, derandomize=True)
settings.load_profile("agentctl")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither read nor fill the user's store of workloads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
