import pytest
from oracles.interpreted import interpreted_policies


@pytest.fixture(autouse=True, scope="package")
def interpreted():
    with interpreted_policies():
        yield
