"""How far the simulator is from what was measured: a log's own run simulated, and compared with the log."""

from agentctl.validate.back_test import BackTest, back_test
from agentctl.validate.run import validate

__all__ = ["BackTest", "back_test", "validate"]
