from __future__ import annotations

import json

import numpy as np
import pytest

from agentctl.cluster import cluster_of
from agentctl.estimators.batch_time import BatchTime
from agentctl.ingest.build import IngestOptions, ingest
from agentctl.logged import LoggedRun
from agentctl.profile import Profile

PROFILE = Profile(BatchTime("hinge", 1e-3, 1e-5, 1e-5), kv_blocks=1000, block_tokens=16)
MAP = {
    "request_id": "id", "session_id": "session", "arrival_s": "at", "prompt_tokens": "in",
    "output_tokens": "out", "ttft_s": "ttft", "e2e_s": "e2e", "cached_tokens": "cached",
}  # fmt: skip


def hits(tmp_path, requests, profile=PROFILE):
    """Simulated hits of requests (session, prompt, output, cached), one a second."""
    rows = [
        {"id": f"r{k}", "session": session, "at": 1.0 + k, "in": prompt, "out": output, "cached": cached,
         "ttft": 0.01, "e2e": 0.1}
        for k, (session, prompt, output, cached) in enumerate(requests)
    ]  # fmt: skip
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    trace = ingest([path], tmp_path / "log.trace", IngestOptions(format="generic", map=MAP)).trace
    run = LoggedRun(trace, cluster_of(profile))
    assert run.hits_as_logged == any(cached for *_, cached in requests)
    return run.simulate().hit_tokens.tolist()


def test_a_request_finds_what_its_log_says_was_cached(tmp_path):
    assert hits(tmp_path, [("a", 100, 1, 0), ("b", 200, 1, 0), ("a", 150, 1, 96), ("b", 210, 1, 64)]) == [
        0, 0, 96, 64,
    ]  # fmt: skip


def test_hits_are_whole_blocks_and_never_the_whole_prompt(tmp_path):
    assert hits(tmp_path, [("a", 96, 1, 0), ("a", 96, 1, 96), ("a", 96, 1, 50)]) == [0, 80, 48]


def test_a_next_turn_finds_the_output_before_it(tmp_path):
    """100 + 40 tokens less the last have KV: 8 blocks, two of them of output."""
    assert hits(tmp_path, [("a", 100, 40, 0), ("a", 160, 1, 128), ("a", 170, 1, 160)]) == [0, 128, 160]


def test_what_nobody_before_can_have_left_is_no_hit(tmp_path):
    assert hits(tmp_path, [("a", 50, 1, 32), ("b", 40, 1, 0), ("c", 500, 1, 400)]) == [0, 0, 0]


def test_without_cached_tokens_there_are_no_hits(tmp_path):
    assert hits(tmp_path, [("a", 100, 1, 0), ("a", 100, 1, 0)]) == [0, 0]


def test_what_is_evicted_is_no_hit(tmp_path):
    small = Profile(PROFILE.batch_time, kv_blocks=10, block_tokens=16)
    assert hits(tmp_path, [("a", 130, 1, 0), ("b", 130, 1, 0), ("a", 140, 1, 128)], small)[2] < 128


@pytest.mark.parametrize("seed", range(3))
def test_hits_of_a_simulated_log_are_found_again(tmp_path, seed):
    """Sessions of growing prompts: what each turn finds of the one before is known."""
    rng = np.random.default_rng(seed)
    requests, left = [], {}
    for _ in range(40):
        session = f"s{rng.integers(5)}"
        before, output = left.get(session, (0, 0))
        prompt, cached = before + output + int(rng.integers(20, 200)), max(before + output - 1, 0) // 16 * 16
        requests.append((session, prompt, int(rng.integers(1, 60)), cached))
        left[session] = prompt, requests[-1][2]
    assert hits(tmp_path, requests) == [cached for *_, cached in requests]
