"""Real engines: measured from inside, probed from outside, and both compared. Takes a quarter of an hour."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from live.conftest import document
from live.report import Bar
from live.servers import ENGINE_CORE, VLLM, llama_server, vllm_server

from agentctl.profile import load_profile

pytestmark = pytest.mark.live

LIMITS = {"max_num_batched_tokens": 1024, "max_num_seqs": 64, "dtype": "float32"}
ENGINE_SECONDS = 100
DENSE_SECONDS = 40
PROBES = 3
COMPARED = ("b_prefill", "b_context", "b_attention")


@pytest.fixture(scope="module")
def engine_command(hf_model):
    arguments = [word for name, value in LIMITS.items() for word in ("--engine-arg", f"{name}={value}")]
    return (
        "calibrate", "engine", "--model", hf_model / "config.json", "--eager", *arguments,
        "--budget", ENGINE_SECONDS, "--measured", "engine.steps.jsonl",
    )  # fmt: skip


def test_an_engine_in_process_is_calibrated_and_an_interrupted_run_goes_on(
    agentctl, engine_command, folder, bars
):
    kept = interrupted(engine_command, folder)
    found = document(agentctl(*engine_command, "-o", "engine.toml", starts_engine=True))
    steps = (folder / "engine.steps.jsonl").read_text()
    assert steps.startswith(kept) and len(steps) > len(kept)
    profile = load_profile(folder / "engine.toml")
    assert (profile.max_num_batched_tokens, profile.max_num_seqs) == (1024, 64)
    assert profile.kv_blocks and profile.block_tokens == 128 and profile.max_model_len == 8192
    assert profile.provenance["mode"]["async_scheduling"] is False
    bar = Bar(
        "engine in process, held-out error", found["held_out"]["mape"], 0.11,
        note=f"{found['steps']['fitted']} steps, median {100 * found['held_out']['median_ape']:.1f} %",
    )  # fmt: skip
    bars.append(bar)
    assert bar.is_met


def test_dense_layers_alone_cost_about_what_they_do_in_the_engine(agentctl, hf_model, bars):
    inside = document(agentctl("calibrate", "steps", "engine.steps.jsonl"))
    found = document(agentctl(
        "calibrate", "engine", "--backend", "torch", "--model", hf_model, "--prior", "engine.toml",
        "--engine-arg", "dtype=float32", "--budget", DENSE_SECONDS, "--measured", "dense.jsonl",
        "-o", "dense.toml", starts_engine=True,
    ))  # fmt: skip
    assert found["coefficients"]["b_attention"]["status"] == "prior"
    for name in ("b_prefill", "b_decode"):
        here, there = (one["coefficients"][name]["value"] for one in (found, inside))
        bars.append(Bar(f"--backend torch, {name} against the engine's", abs(here / there - 1), None))


def interrupted(command, folder: Path) -> str:
    """What a run keeps that is stopped by Ctrl-C in its first seconds of stepping."""
    file = folder / "engine.steps.jsonl"
    running = subprocess.Popen(
        [sys.executable, "-m", "agentctl.cli.main", *map(str, command)], cwd=folder,
        env={**os.environ, **VLLM}, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {ENGINE_CORE}),
    )  # fmt: skip
    until = time.monotonic() + 180
    while not (file.exists() and file.read_text().count("\n") > 40) and time.monotonic() < until:
        assert running.poll() is None, running.communicate()[1][-3000:]
        time.sleep(0.2)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130 and "what was measured is in engine.steps.jsonl" in errors
    return file.read_text()


@pytest.fixture(scope="module")
def served(hf_model, folder):
    """vLLM behind HTTP: its URL, and the log of its own steps."""
    log = folder / "http.steps.jsonl"
    with vllm_server(hf_model, log, {name: str(value) for name, value in LIMITS.items()}) as url:
        yield url, log


def test_an_endpoint_alone_gives_the_coefficients_of_the_engine_behind_it(agentctl, served, folder, bars):
    url, log = served
    probes, inside, took, refused = [], [], [], 0
    while len(probes) < PROBES:
        i = len(probes)
        began, begin = time.monotonic(), log.stat().st_size if log.exists() else 0
        files = ("--measured", f"{i}-{refused}.probe.jsonl", "-o", f"endpoint-{i}.toml")
        done = agentctl("calibrate", "endpoint", url, "--max-num-batched-tokens", 1024, *files)
        if done.returncode == 1 and "does not show" in done.stderr:  # so busy that it claims nothing
            refused += 1
            assert refused <= PROBES, done.stderr[-3000:]
            continue
        probes.append(document(done))
        took.append(time.monotonic() - began)
        steps = folder / f"http-{i}.steps.jsonl"  # of the same minutes: others slow both
        steps.write_bytes(log.read_bytes()[begin:])
        inside.append(document(agentctl("calibrate", "steps", steps)))
    bars.append(_bar("engine behind HTTP, held-out error of its own steps",
                     [one["held_out"]["mape"] for one in inside], 0.11))  # fmt: skip
    for name in COMPARED:
        far = [
            _far(_value(found, name), _value(own, name)) for found, own in zip(probes, inside, strict=True)
        ]
        bars.append(_bar(f"endpoint alone, {name} against its own steps", far, 0.15))
    # What a client sees of a batch holds the loop between two, which is no part of a step.
    loops = [own["steps"]["loop_s"] for own in inside]
    steps_b0 = [_value(own, "b0") for own in inside]
    seen = [_value(found, "b0") for found in probes]
    far = [_far(b0, step + loop) for b0, step, loop in zip(seen, steps_b0, loops, strict=True)]
    alone = statistics.median(_far(b0, step) for b0, step in zip(seen, steps_b0, strict=True))
    bars.append(replace(
        _bar("endpoint alone, b0 against that of its own steps and the loop between", far, 0.15),
        note=f"a loop of {1e3 * statistics.median(loops):.1f} ms beside "
        f"{1e3 * statistics.median(steps_b0):.1f} ms; against the step alone {100 * alone:.1f} %",
    ))  # fmt: skip
    mixed = [found["mixed_load"] for found in probes]
    bars.append(_bar("mixed load, not fitted: TTFT error", [one["ttft_mape"] for one in mixed], 0.15))
    shares = [one["ttft_mape"] / one["ttft_mape_alone"] for one in mixed]
    bars.append(_bar("the same over that without interference", shares, 1 / 3))
    bars.append(_bar("mixed load: duration error", [one["e2e_mape"] for one in mixed], None))
    bars.append(Bar("probes that refused to claim anything, beside these", refused, None, ""))
    bars.append(_bar("probing, seconds", took, 300, "s"))
    bars.append(_bar("probing, requests", [found["requests"]["read"] for found in probes], 200, ""))
    missed = [bar.row() for bar in bars[-10:] if not bar.is_met]
    assert not missed, "\n".join(missed)


def test_a_trace_replayed_at_the_server_is_compared_with_its_simulation(agentctl, served, folder, bars):
    url, _ = served
    (folder / "day.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in sessions()))
    mapped = {"request_id": "id", "session_id": "s", "arrival_s": "at", "prompt_tokens": "in",
              "output_tokens": "out", "e2e_s": "e2e", "hash_ids": "ids"}  # fmt: skip
    maps = [word for pair in mapped.items() for word in ("--map", "=".join(pair))]
    document(
        agentctl(
            "ingest", "day.jsonl", "--format", "generic", "--block-tokens", BLOCK, "-o", "day.trace", *maps
        )
    )
    command = (
        "validate",
        "--endpoint",
        url,
        "--trace",
        "day.trace",
        "--profile",
        "endpoint-0.toml",
        "-o",
        "run",
    )
    done = agentctl(*command)
    assert done.returncode in (0, 3), done.stderr[-3000:]  # 3: the simulator is far from it; then it says so
    found = json.loads(done.stdout)
    assert found["endpoint"]["compared"] == found["endpoint"]["sent"] == len(list(sessions()))
    assert found["hit_ratio"]["logged"] > 0.2
    for name, metric in (("TTFT", "ttft_s"), ("duration", "e2e_s")):
        error = found["latencies"][metric]["mape"]["value"]
        bars.append(Bar(f"validate --endpoint: {name} error, request by request", error, None))
    gap = abs(found["hit_ratio"]["gap"]["value"])
    bars.append(Bar("validate --endpoint: gap of hits, points of the prompt tokens", gap, 0.02))
    assert bars[-1].is_met


BLOCK = 128  # tokens, as vLLM's on a CPU


def sessions():
    """Sixteen sessions of three turns, each prompt the one before and more; all share their first block."""
    for s in range(16):
        at, blocks = 0.8 * s, 3 + s % 4
        for turn in range(3):
            ids = [1, *range(100 * (s + 1), 100 * (s + 1) + blocks - 1)]
            yield {
                "id": f"{s}-{turn}",
                "s": s,
                "at": at,
                "in": BLOCK * blocks - 20,
                "out": 16,
                "e2e": 1.0,
                "ids": ids,
            }
            at, blocks = at + 3.0, blocks + 2


def _value(found: dict[str, Any], name: str) -> float:
    return found["coefficients"][name]["value"]


def _far(value: float, truth: float) -> float:
    return abs(value / truth - 1)


def _bar(what: str, runs: list[float], limit: float | None, unit: str = "%") -> Bar:
    return Bar(what, statistics.median(runs), limit, unit, tuple(runs))


def test_a_server_of_another_make_is_probed_within_the_limits(agentctl, gguf_model, folder, bars):
    with llama_server(gguf_model, folder / "llama.log") as url:
        began = time.monotonic()
        done = agentctl("calibrate", "endpoint", url, "--measured", "llama.probe.jsonl", "-o", "llama.toml")
        seconds = time.monotonic() - began
    rows = [json.loads(line) for line in (folder / "llama.probe.jsonl").read_text().splitlines()]
    bars.append(Bar("llama.cpp: probing, seconds", seconds, 300, "s"))
    bars.append(Bar("llama.cpp: probing, requests", sum("request" in row for row in rows), 200, ""))
    assert bars[-1].is_met and bars[-2].is_met
    if done.returncode == 0:
        found = json.loads(done.stdout)
        bars.append(Bar("llama.cpp: held-out error", found["held_out"]["mape"], None))
        if found["mixed_load"]["ttft_mape"] is not None:
            bars.append(Bar("llama.cpp: mixed load, TTFT error", found["mixed_load"]["ttft_mape"], None))
    else:  # a busy machine may hide a coefficient: then it says which
        assert done.returncode == 1 and "does not show" in done.stderr, done.stderr[-3000:]
