"""A trace made ready for the simulator: its requests, who waits for whom, their blocks, their load."""

from agentctl.workload.arrays import (
    AFTER_END,
    AFTER_START,
    AT_ARRIVAL,
    REPLAYS,
    Requests,
    Workload,
)
from agentctl.workload.compile import compile_workload
from agentctl.workload.fleet import LAM_PER_MICRODOLLAR, Fleet, PoolMeans, Remaining
from agentctl.workload.load import resample, scale_load, take_sessions

__all__ = [
    "AFTER_END",
    "AFTER_START",
    "AT_ARRIVAL",
    "LAM_PER_MICRODOLLAR",
    "REPLAYS",
    "Fleet",
    "PoolMeans",
    "Remaining",
    "Requests",
    "Workload",
    "compile_workload",
    "resample",
    "scale_load",
    "take_sessions",
]
