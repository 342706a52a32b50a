"""Our policy object, told what the real router knows: what it sent where, what it has in flight, what engines
last said of themselves."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from itertools import permutations
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from conformance.engines import BLOCK, Engine

from agentctl.policies.base import Policy

SEEDS = 60  # a choice that no seed makes is none of the tied ones
KV = 1000  # blocks that stand for the share of the KV in use
RINGS = {"prefix-hash": "prefix_hash", "consistent-hash": "consistent_hash"}  # formula -> its file


class Ours:
    """Engines are numbered by `order`, the router's own registry.

    precise  hits come from the engines' events and are whole blocks; else from what was sent, to the token
    """

    def __init__(self, policy: Policy, order: list[int], engines: Sequence[Engine], sizes: tuple[int, int]):
        self.policy, self.order = policy, order
        self.engines = [engines[number] for number in order]
        assert policy.file is not None
        self.formula, self.precise = policy.file.formula, policy.file.signals.index == "precise"
        n = len(order)
        self.memory = np.zeros(policy.memory(*sizes, n) if policy.memory else 0)
        self.last = -1
        self.sent: list[list[list[int]]] = [[] for _ in order]
        self.requests = np.zeros(n, np.int64)  # in flight
        self.prefill = np.zeros(n, np.int64)  # tokens in flight, uncached when sent
        self.since = np.zeros(n, np.int64)  # requests since the engine last spoke
        self.said = [engine.said for engine in self.engines]
        # Registries that are possible where keys are hashed and the order was not seen, each with the homes
        # that are possible by key.
        self.rings: dict[tuple[int, ...], dict[Any, set[int]]] = {o: {} for o in permutations(range(n))}

    def hits(self, tokens: list[int]) -> np.ndarray:
        if self.precise:
            return np.array([engine.events.hit(tokens) for engine in self.engines])
        return np.array([max((common(tokens, other) for other in sent), default=0) for sent in self.sent])

    def sees(self, tokens: list[int]) -> SimpleNamespace:
        for k, engine in enumerate(self.engines):
            if engine.said is not self.said[k]:
                self.said[k], self.since[k] = engine.said, 0
        return SimpleNamespace(
            now=0.0, seed=0, last_chosen=self.last, memory=self.memory, hit_tokens=self.hits(tokens),
            inflight_requests=self.requests, inflight_prefill_tokens=self.prefill, block_tokens=BLOCK,
            waiting_requests=np.array([said.waiting for said in self.said]),
            context_tokens=np.array([said.tokens for said in self.said]),
            running_requests=np.array([said.running for said in self.said]),
            pending_prefill_tokens=np.array([said.waiting_tokens for said in self.said]),
            kv_used_blocks=np.array([round(KV * said.usage) for said in self.said]),
            kv_total_blocks=np.full(len(self.said), KV), unpublished_requests=self.since,
            path=None, path_start=0, path_stop=0,
        )  # fmt: skip

    def agrees(self, tokens: list[int], session: int, real: int) -> bool:
        """Whether the policy can choose what the router chose; both go on from the router's choice."""
        view, place = self.sees(tokens), self.order.index(real)
        requests = SimpleNamespace(prompt_tokens=np.array([len(tokens)]), session=np.array([session]))
        if self.formula in RINGS:
            agreed = self.fits_a_ring(view, requests, self.key(tokens, session), place)
        else:
            agreed = self.fits_a_seed(view, requests, place)
        self.last = place
        self.requests[place] += 1
        self.since[place] += 1
        self.prefill[place] += len(tokens) - view.hit_tokens[place]
        self.sent[place].append(tokens)
        return agreed

    def fits_a_seed(self, view: SimpleNamespace, requests: SimpleNamespace, place: int) -> bool:
        before = self.memory
        for seed in range(SEEDS):
            view.seed, view.memory = seed, before.copy()
            if self.choose(view, requests) == place:
                self.memory = view.memory
                return True
        return False

    def fits_a_ring(self, view: SimpleNamespace, requests: SimpleNamespace, key: Any, place: int) -> bool:
        """Where a key lies on the ring depends on addresses: one registry and one home for each key must
        explain all that was seen."""
        module = importlib.import_module(f"agentctl.policies.{RINGS[self.formula]}")
        left, load = {}, view.inflight_requests
        for registry, homes in self.rings.items():
            view.inflight_requests = load[list(registry)]
            fit = set()
            for home in homes.get(key, range(len(registry))):
                view.memory = np.zeros_like(self.memory)
                with patch.multiple(module, **on_the_ring(module, registry.index(home), len(registry))):
                    if registry[self.choose(view, requests)] == place:
                        fit.add(home)
            if fit:
                left[registry] = homes | {key: fit}
        view.inflight_requests = load
        self.rings = left or self.rings
        return bool(left)

    def key(self, tokens: list[int], session: int) -> Any:
        """What the router hashes: the session, or the first characters, four for a token."""
        if self.formula == "consistent-hash":
            return session
        return tuple(tokens[: 4 * int(self.policy.params["prefix_tokens"])])

    def choose(self, view: SimpleNamespace, requests: SimpleNamespace) -> int:
        choose: Any = self.policy.choose
        return int(choose.py_func(view, requests, 0, self.policy.my))

    def first_token(self, real: int, tokens: int) -> None:
        """The engine has computed the prompt, `tokens` of which were new."""
        self.prefill[self.order.index(real)] -= tokens

    def finished(self, real: int) -> None:
        self.requests[self.order.index(real)] -= 1


def on_the_ring(module: ModuleType, home: int, engines: int) -> dict[str, Any]:
    """What stands for the hashes of a policy's file: any key lies at `home`."""
    distances = (np.arange(engines) != home).astype(np.int64)
    return {
        "ring_distances": lambda *_: distances,
        **({"prefix_key": lambda *_: 0} if hasattr(module, "prefix_key") else {}),
    }


def common(a: list[int], b: list[int]) -> int:
    return next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
