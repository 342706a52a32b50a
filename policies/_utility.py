"""What a request is worth on each engine of a fleet of models, for policies that weigh quality and price."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.policies.base import RANDOM
from agentctl.sim.view import View


class Gate(NamedTuple):
    """Parameters of the policies that hold a limit."""

    lam_per_microdollar: float = math.nan
    tau_s: float = math.nan
    tie: int = RANDOM


@njit(cache=True)
def utility(view: View, lam_per_microdollar: float) -> NDArray[np.float64]:
    """Believed score less lam times the believed cost; NaN lam: the operator's."""
    lam = view.lam if math.isnan(lam_per_microdollar) else lam_per_microdollar
    return view.accuracy - lam * view.cost


@njit(cache=True)
def gated(view: View, ttft: NDArray[np.float64], lam_per_microdollar: float, tau_s: float) -> NDArray:
    """What `hard` minimises: minus the utility where `ttft` is within tau; where it is so nowhere, `ttft`."""
    tau = view.tau_s if math.isnan(tau_s) else tau_s
    worth, costs, is_any = utility(view, lam_per_microdollar), np.full(ttft.size, np.inf), False
    for e in range(ttft.size):
        if ttft[e] <= tau:
            costs[e], is_any = -worth[e], True
    return costs if is_any else ttft.copy()
