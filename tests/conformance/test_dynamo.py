"""Does Dynamo take what we write for it, and does its router decide as our policy in its own offline replay?

The replay is Dynamo's: its router, its event stream, engines that it simulates. It says of each request which
engine was chosen, how many blocks hit, when its first token and its last came. From these our policy is told
what the router knew at each arrival, and the choice must be one of the engines that it would take. The replay
hears events of KV blocks whatever `use_kv_events` says: dynamo:kv_approximate cannot be held against it.
"""

from __future__ import annotations

import json
import random
import shlex
import subprocess
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from conformance.ours import common
from conformance.routers import deployed
from environments import scripts_of

from agentctl.policies.base import Policy, load_policy, policy_names

OWN = [name for name in policy_names() if name.startswith("dynamo:")]
BLOCK, N_ENGINES, N_REQUESTS = 16, 4, 200
SEEDS = 60

PARSE = """
import argparse, json, sys
from dynamo.common.configuration.groups.router_args import RouterConfigBase
from dynamo.frontend.frontend_args import FrontendArgGroup, FrontendConfig
parser = argparse.ArgumentParser()
FrontendArgGroup().add_arguments(parser)
config = FrontendConfig.from_cli_args(parser.parse_args(sys.argv[3:]))
config.validate()
if config.router_policy_config:
    config.apply_router_config()
"""
REPLAY = (
    PARSE
    + """
import dynamo._core as core
log, engines = sys.argv[1:3]
is_kv = config.router_mode == "kv"
engine = {"block_size": BLOCK, "num_gpu_blocks": 60000, "max_num_seqs": 64, "max_num_batched_tokens": 8192,
          "enable_prefix_caching": True, "enable_chunked_prefill": True}
result = core.run_mocker_trace_replay(
    [log], extra_engine_args=core._normalize_mocker_config({"engine": engine}), num_workers=int(engines),
    router_mode="kv_router" if is_kv else config.router_mode.replace("-", "_"), trace_block_size=BLOCK,
    router_config=core.KvRouterConfig(**config.kv_router_kwargs()) if is_kv else None,
    capture_per_request=True)
print(json.dumps(list(result.per_request)))
""".replace("BLOCK", str(BLOCK))
)


def frontend(name: str, params: dict[str, float], folder) -> list[str]:
    """The arguments of the frontend that we write; its files lie in `folder`."""
    emitted, _ = deployed(name, params, N_ENGINES)
    for file, text in emitted.files.items():
        (folder / file).write_text(text)
    return shlex.split(emitted.files["frontend.sh"].replace("\\\n", ""))[3:]


def in_dynamo(script: str, folder, *arguments: str) -> str:
    python = scripts_of("ai-dynamo") / "python"
    run = subprocess.run(
        [python, "-c", script, *arguments], cwd=folder, capture_output=True, text=True, timeout=120,
        check=False, env={"DYN_LOG": "error", "HOME": str(folder)},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout


@pytest.mark.parametrize("name", OWN)
def test_its_own_readers_take_the_command_and_the_file(name, tmp_path):
    in_dynamo(PARSE, tmp_path, "", "", *frontend(name, {}, tmp_path))


def test_its_own_reader_refuses_another_key_of_the_file(tmp_path):
    arguments = frontend("dynamo:kv", {}, tmp_path)
    file = tmp_path / "router-policy.yaml"
    file.write_text(file.read_text().replace("use_kv_events", "use_kv_event"))
    with pytest.raises(AssertionError, match="use_kv_event"):
        in_dynamo(PARSE, tmp_path, "", "", *arguments)


def trace() -> list[dict[str, Any]]:
    """Turns of sessions that share a system prompt by twos, arriving while others run."""
    rng = random.Random(3)
    system = [[10**6 * which + k for k in range(20)] for which in (1, 2)]
    history = {s: system[s % 2] + [1000 * (s + 1) + k for k in range(10)] for s in range(16)}
    rows, at = [], 0.0
    for k in range(N_REQUESTS):
        s = rng.randrange(16)
        history[s] = history[s] + [10**7 + 100 * k + j for j in range(rng.randrange(1, 40))]
        tokens = BLOCK * len(history[s]) - rng.randrange(BLOCK)
        at += rng.expovariate(1 / 12.0)
        rows.append({"timestamp": round(at, 3), "input_length": tokens, "output_length": rng.randrange(2, 60),
                     "hash_ids": history[s]})  # fmt: skip
    return rows


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("dynamo:kv", {}),
        ("dynamo:kv", {"overlap_credit": 0.5, "prefill_load_scale": 0.3, "request_weight": 4}),
        ("dynamo:kv", {"overlap_credit_decay": 1}),
        ("dynamo:round-robin", {}),
    ],
    ids=str,
)
def test_the_replays_router_decides_as_our_policy(name, params, tmp_path, record_property):
    rows, log = trace(), tmp_path / "log.jsonl"
    log.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    said = in_dynamo(REPLAY, tmp_path, str(log), str(N_ENGINES), *frontend(name, params, tmp_path))
    ran = sorted(json.loads(said.splitlines()[-1]), key=lambda one: one["arrival_time_ms"])
    assert [one["input_length"] for one in ran] == [row["input_length"] for row in rows]
    requests = [Request.of(row, one) for row, one in zip(rows, ran, strict=True)]
    policy = load_policy(name, params)
    differ = [k for k in range(N_REQUESTS) if not could_choose(policy, requests, k)]
    record_property("decisions", f"{N_REQUESTS - len(differ)} of {N_REQUESTS}")
    assert differ == []


class Request(NamedTuple):
    """As the replay played it; times in ms, hits in tokens."""

    arrival: float
    first_token: float
    end: float
    prompt: int
    blocks: list[int]  # whole ones
    engine: int
    hit: int

    @classmethod
    def of(cls, row: dict[str, Any], one: dict[str, Any]) -> Request:
        (route,) = one["routing_history"]
        return cls(
            one["arrival_time_ms"], one["first_token_ms"], one["terminal_time_ms"], row["input_length"],
            row["hash_ids"][: row["input_length"] // BLOCK], route["logical_worker_id"],
            (route["selected_overlap_blocks"] or 0) * BLOCK,
        )  # fmt: skip


def could_choose(policy: Policy, requests: list[Request], k: int) -> bool:
    """Whether the policy takes the engine of request k, or draws it from equal ones."""
    view, real = seen(requests, k), requests[k].engine
    mine = SimpleNamespace(prompt_tokens=np.array([requests[k].prompt]))
    if "hit_tokens" in policy.sees:
        assert view.hit_tokens[real] == requests[k].hit, f"{k}: the router believed in another hit"
    for seed in range(SEEDS):
        view.seed = seed
        if policy.choose.py_func(view, mine, 0, policy.my) == real:
            return True
    return False


def seen(requests: list[Request], k: int) -> SimpleNamespace:
    """What the router knows when request k arrives: it hears of blocks when the batch of a prompt ends."""
    mine, before = requests[k], requests[:k]
    hits, tokens, counts = (np.zeros(N_ENGINES, np.int64) for _ in range(3))
    active: list[set[int]] = [set(mine.blocks) for _ in range(N_ENGINES)]
    for one in before:
        if one.first_token <= mine.arrival:
            hits[one.engine] = max(hits[one.engine], BLOCK * common(one.blocks, mine.blocks))
        if one.end > mine.arrival:
            counts[one.engine] += 1
            active[one.engine] |= set(one.blocks)
            tokens[one.engine] += (one.prompt - one.hit) * (one.first_token > mine.arrival)
    return SimpleNamespace(
        now=mine.arrival, seed=0, hit_tokens=hits, inflight_prefill_tokens=tokens, inflight_requests=counts,
        block_tokens=BLOCK, active_blocks=np.array([len(blocks) for blocks in active]),
        waiting_requests=counts, last_chosen=before[-1].engine if before else -1,
    )  # fmt: skip
