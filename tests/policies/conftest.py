import pytest
from oracles.interpreted import interpreted_policies


@pytest.fixture(autouse=True)
def interpreted():
    with interpreted_policies():
        yield
