"""Hypothesis: the same examples on every run, and no deadline, since a kernel's first call compiles it."""

from hypothesis import settings

settings.register_profile("agentctl", deadline=None, derandomize=True)
settings.load_profile("agentctl")
