"""Do the real routers, started by what we write, decide as our policies do?

Each is started before four mock engines and sent a hundred turns of sessions, one by one; our policy is asked
at each what it would have done. An engine holds a request until it is told to answer, so that what the router
has in flight is known. Where the router draws or hashes addresses, its choice must be one that the policy
could make. The order of its registry is observed: it is another one in every process.
"""

from __future__ import annotations

import json
import random
import time
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import pytest
from conformance.engines import Engine
from conformance.ours import Ours
from conformance.routers import Client, deployed, running, told, wait_until_ready, written

from agentctl.policies.base import load_policy

N_ENGINES, N_DECISIONS, N_SESSIONS, MOST_HELD = 4, 100, 12, 14
POLL_S = 3.0  # between polls of smg
EVENTS_S = 0.1  # until the router has heard of new blocks


class Case(NamedTuple):
    policy: str
    params: Mapping[str, float] = MappingProxyType({})
    engines: str = "sglang"  # what engines say of themselves
    streams: bool = False  # half of the requests get their first token at once
    more: tuple[str, ...] = ()  # flags besides ours

    def __str__(self) -> str:
        params = ",".join(f"{key}={value:g}" for key, value in self.params.items())
        return f"{self.policy}{params and ':'}{params} before {self.engines}"

    @property
    def polls(self) -> bool:
        return self.policy in ("smg:least_load", "smg:cache_aware", "sglang-router:power_of_two")


EVEN = {"balance_abs_threshold": 2, "balance_rel_threshold": 1.5, "cache_threshold": 0.3}
SMG = ("--worker-wedge-secs", "600")  # mock engines hold requests for ever
CASES = [
    Case("sglang-router:cache_aware", EVEN),
    Case("sglang-router:manual"),
    Case("sglang-router:manual_min_load"),
    Case("sglang-router:power_of_two"),
    Case("sglang-router:round_robin"),
    Case("smg:cache_aware", EVEN, more=SMG),
    Case("smg:cache_aware", EVEN, "vllm", more=SMG),
    Case("smg:consistent_hashing", more=SMG),
    Case("smg:least_load", {"throughput": 300, "mean_prefill_tokens": 100}, more=SMG),
    Case("smg:least_load", {"throughput": 300, "mean_prefill_tokens": 100}, "vllm", more=SMG),
    Case("smg:manual", more=SMG),
    Case("smg:manual", {"assignment_mode": 1}, more=SMG),
    Case("smg:prefix_hash", {"prefix_tokens": 10, "load_above": 1}, more=SMG),
    Case("smg:round_robin", more=SMG),
    Case("vllm-router:cache_aware", EVEN, "vllm"),
    Case("vllm-router:consistent_hash", {}, "vllm"),
    Case("vllm-router:kv_aware", {}, "vllm", streams=True, more=("--kv-event-model", "mock")),
    Case("vllm-router:power_of_two", {}, "vllm"),
    Case("vllm-router:round_robin", {}, "vllm"),
    Case("vllm-router:sticky_least_loaded", {}, "vllm"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_hundred_decisions_are_those_of_our_policy(case, tmp_path, record_property):
    arrived: deque[tuple[int, str]] = deque()
    engines = [Engine(number, arrived, case.engines) for number in range(N_ENGINES)]
    by_engine = "queue_tokens" in load_policy(case.policy).params
    tokens = {"queue_tokens": float(case.engines == "sglang")} if by_engine else {}
    every = {"metrics_interval_s": POLL_S} if case.polls else {}
    emitted, policy = deployed(case.policy, {**case.params, **tokens}, N_ENGINES, **every)
    script = written(dict(emitted.files), tmp_path, [f"{e.url} {e.events.endpoint}" for e in engines])
    try:
        with running(case.policy.partition(":")[0], script, *case.more) as router:
            wait_until_ready(router, engines, case.polls)
            client = Client(router.port, engines, arrived, emitted.headers)
            differ = Run(case, client, policy).decisions()
    finally:
        for engine in engines:
            engine.close()
    record_property("decisions", f"{N_DECISIONS - len(differ)} of {N_DECISIONS}")
    assert differ == []


class Run:
    """One router, its client and our policy."""

    def __init__(self, case: Case, client: Client, policy) -> None:
        self.case, self.client, self.rng = case, client, random.Random(7)
        self.is_text = not case.policy.startswith("vllm-router:")
        sizes = N_DECISIONS + 20, N_SESSIONS + 1
        self.ours = Ours(policy, self.registry_order(), client.engines, sizes)
        self.held: list[tuple[str, int, int]] = []  # name, engine, uncached tokens that it still counts

    def registry_order(self) -> list[int]:
        """Four requests with nothing in common, all held: routers that look at load or at nothing go in
        order."""
        prompts = [self.prompt([10**6 + k] * 40) for k in range(N_ENGINES)]
        order = [self.client.send(f"probe {k}", prompt, 10**6 + k) for k, prompt in enumerate(prompts)]
        for k, engine in enumerate(order):
            self.client.release(f"probe {k}", engine)
        return order if len(set(order)) == N_ENGINES else list(range(N_ENGINES))

    def prompt(self, tokens: list[int]) -> object:
        return "".join(chr(0x10000 + token) for token in tokens) if self.is_text else tokens

    def decisions(self) -> list[int]:
        """Numbers of those that our policy would never have made."""
        prompt = list(range(50_000, 50_080))  # of every other session
        history = [
            prompt * (session % 2) + [1000 * session + k for k in range(40)] for session in range(N_SESSIONS)
        ]
        differ = []
        if self.case.policy == "sglang-router:cache_aware":
            differ += self.six_at_once()
        for k in range(N_DECISIONS):
            while self.held and (len(self.held) > MOST_HELD or self.rng.random() < 0.45):
                self.release(self.rng.randrange(len(self.held)))
            session = min(int(self.rng.expovariate(0.3)), N_SESSIONS - 1)
            history[session] += [10**5 + 1000 * k + j for j in range(self.rng.randrange(5, 60))]
            if not self.decide(f"r{k}", list(history[session]), session):
                differ.append(k)
        while self.held:
            self.release(0)
        return differ

    def decide(self, name: str, tokens: list[int], session: int) -> bool:
        self.wait_between_polls()
        stream = self.case.streams and self.rng.random() < 0.5
        hits = self.ours.hits(tokens)
        engine = self.client.send(name, self.prompt(tokens), session, stream)
        agreed = self.ours.agrees(tokens, session, engine)
        new = len(tokens) - int(hits[self.ours.order.index(engine)])
        if stream:
            self.ours.first_token(engine, new)
        self.held.append((name, engine, 0 if stream else new))
        if self.case.policy == "vllm-router:kv_aware":
            if self.rng.random() < 0.8:
                self.client.engines[engine].events.store(tokens)
            time.sleep(EVENTS_S)
        return agreed

    def release(self, at: int) -> None:
        name, engine, counted = self.held.pop(at)
        self.client.release(name, engine)
        self.ours.first_token(engine, counted)
        self.ours.finished(engine)

    def wait_between_polls(self) -> None:
        """A decision in the middle of a poll could see it or not."""
        if not self.case.polls:
            return
        for engine in self.client.engines:
            due = engine.said.at + POLL_S
            if time.monotonic() > due - 0.3:
                while engine.said.at < due - 0.5 and time.monotonic() < due + POLL_S:
                    time.sleep(0.01)
        time.sleep(0.05)

    def six_at_once(self) -> list[int]:
        """Six requests of one session at once, then none: the gate opens in the middle of them."""
        tokens = [900_000 + k for k in range(60)]
        for k in range(6):
            self.decide(f"six {k}", tokens, N_SESSIONS)
        places = [self.ours.order.index(engine) for _, engine, _ in self.held]
        while self.held:
            self.release(0)
        return [] if places == [0, 0, 0, 1, 2, 3] else [-1]


def test_program_scheduling_knows_sessions_by_the_header_that_we_ask_for(tmp_path):
    """Its default takes a field of the body alone; without programs it has no ranks to tell of."""
    arrived: deque[tuple[int, str]] = deque()
    engines = [Engine(number, arrived, "vllm") for number in range(2)]
    emitted, _ = deployed("vllm-router:sticky_least_loaded", {}, 2)
    script = written(dict(emitted.files), tmp_path, [engine.url for engine in engines])
    try:
        with running("vllm-router", script, PROGRAM_SCHEDULING="1") as router:
            wait_until_ready(router, engines, polls=False)
            client = Client(router.port, engines, arrived, emitted.headers)
            engine = client.send("one", [1] * 40, session=5)
            ranks = told(router.port, "/scheduling/diagnostics")["ranks"]
            client.release("one", engine)
    finally:
        for one in engines:
            one.close()
    used = {rank["target_id"]: rank["router_estimated_used_tokens"] for rank in ranks}
    assert used[engines[engine].url] > 0 and len(used) == 2
    written_capacity = json.loads(emitted.files["program-scheduling.json"])["token_capacity_per_dp_rank"]
    assert {rank["configured_token_capacity"] for rank in ranks} == {written_capacity}
