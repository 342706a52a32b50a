"""Compiled functions as the Python they were written in."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from numba.extending import is_jitted

from agentctl.policies.base import formula_names


@contextmanager
def interpreted_policies() -> Iterator[None]:
    """Policies and what they call of each other run as plain Python: compiling them takes a minute."""
    formula_names()
    with pytest.MonkeyPatch.context() as patch:
        for name, module in sys.modules.items():
            if name.startswith("agentctl.policies.") and not name.endswith(".base"):
                for key, value in list(vars(module).items()):
                    if is_jitted(value):
                        patch.setattr(module, key, value.py_func)
        yield
