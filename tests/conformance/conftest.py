"""Checks against the real routers. They run only when asked for:

    pip install -e '.[test,conformance]'
    AGENTCTL_CONFORMANCE=1 python -m pytest tests/conformance

which installs the programs, each into an environment of its own (benchmarks/environments.py), and starts them
on the loopback.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

import pytest
from oracles.interpreted import interpreted_policies

ASKED = "AGENTCTL_CONFORMANCE"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if "conformance" in item.path.parts]
    if os.environ.get(ASKED, "0") in ("", "0"):
        skip = pytest.mark.skip(reason=f"needs the real routers: {ASKED}=1 installs and starts them")
    elif importlib.util.find_spec("zmq") is None:
        skip = pytest.mark.skip(reason="mock engines publish over ZMQ: pip install 'agentctl[conformance]'")
    else:
        return
    for item in here:
        item.add_marker(skip)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was measured, one line a test."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        if report.when == "call" and "conformance" in report.nodeid:
            said = ", ".join(f"{key} {value}" for key, value in report.user_properties)
            if said:
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {said}")


@pytest.fixture(autouse=True)
def interpreted() -> Iterator[None]:
    """Policies run as plain Python, on what the test says that the router sees."""
    with interpreted_policies():
        yield
