"""A trace made ready for the simulator: its requests, who waits for whom, their blocks, their load."""

from agentctl.workload.arrays import (
    AFTER_END,
    AFTER_START,
    AT_ARRIVAL,
    REPLAYS,
    Requests,
    Workload,
)
from agentctl.workload.arriving import arrange, at_rate, compile_arriving
from agentctl.workload.compile import compile_workload
from agentctl.workload.fleet import LAM_PER_MICRODOLLAR, Fleet, PoolMeans, Remaining
from agentctl.workload.load import resample, scale_load, take_sessions
from agentctl.workload.process import Process, parse_process

__all__ = [
    "AFTER_END",
    "AFTER_START",
    "AT_ARRIVAL",
    "LAM_PER_MICRODOLLAR",
    "REPLAYS",
    "Fleet",
    "PoolMeans",
    "Process",
    "Remaining",
    "Requests",
    "Workload",
    "arrange",
    "at_rate",
    "compile_arriving",
    "compile_workload",
    "parse_process",
    "resample",
    "scale_load",
    "take_sessions",
]
