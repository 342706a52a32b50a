"""Many policies and sizes on resampled workloads: the decision, its uncertainty and its reasons."""

from agentctl.recommend.compare import recommend

__all__ = ["recommend"]
