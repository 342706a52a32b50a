"""A policy asked request by request, as one gateway of a router would."""

from types import SimpleNamespace

import numpy as np
from numba.extending import is_jitted
from oracles.state_x import PROMPT

from agentctl.estimators.batch_time import BatchTime
from agentctl.policies.base import load_policy
from agentctl.sim.state import RANGE

# 60 us per token and 1 ns per pair, nothing else: state X costs 0.158 / 2.066 / 1.343 / 1.400 s of prefill.
ONLY_PREFILL = BatchTime(b_prefill=60e-6, b_attention=1e-9)


class Router:
    """Requests are given by lists, one value for all or one each; later turns of session 0 where not."""

    def __init__(
        self,
        name,
        n_engines=4,
        prompts=(PROMPT,),
        sessions=(0,),
        turns=(1,),
        outputs=(1,),
        tie="policy",
        batch_time=ONLY_PREFILL,
        **params,
    ):
        self.policy = load_policy(name, params, tie=tie, batch_time=batch_time)
        n = max(map(len, (prompts, sessions, turns, outputs)))
        columns = (np.array(given) if len(given) == n else np.full(n, *given)
                   for given in (prompts, sessions, turns, outputs))  # fmt: skip
        names = ("prompt_tokens", "session", "turn", "output_tokens")
        self.requests = SimpleNamespace(**dict(zip(names, columns, strict=True)))
        n_sessions = int(self.requests.session.max()) + 1
        size = self.policy.memory(n, n_sessions, n_engines) if self.policy.memory else 0
        self.memory, self.last = np.zeros(size), -1

    def choose(self, view, r=0, **fields):
        self.last = int(plain(self.policy.choose)(self._seen(view, fields), self.requests, r, self.policy.my))
        return self.last

    def cost(self, view, r=0, **fields):
        return plain(self.policy.cost)(self._seen(view, fields), self.requests, r, self.policy.my)

    def _seen(self, view, fields):
        arrays = {key: np.array(value) if isinstance(value, list) else value for key, value in fields.items()}
        return view._replace(memory=self.memory, last_chosen=self.last, **arrays)


def plain(function):
    """A compiled function as Python."""
    return function.py_func if is_jitted(function) else function


def path_of(*ranges):
    """Fields of the view for a prompt of these (line, length) ranges of blocks."""
    return {
        "path": np.array(list(ranges), RANGE).view(np.recarray),
        "path_start": 0,
        "path_stop": len(ranges),
    }
