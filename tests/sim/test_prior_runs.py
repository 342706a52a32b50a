"""Two runs of vLLM that were measured, predicted from physics alone: no number of these runs is in the prior.

Kernels of the same GPU and of the first model are among the thirteen that its shares were chosen on.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agentctl.calibrate_prior import RUNS, calibrate_prior
from agentctl.cluster import cluster_of
from agentctl.ingest.build import ingest
from agentctl.policies.base import load_policy
from agentctl.profile import parse_profile
from agentctl.sim.driver import simulate
from agentctl.workload import compile_workload

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize(
    ("run", "model", "engines", "known", "ttft"),
    [
        ("measured_llama", "llama-3.1-8b", 1, RUNS[0], 0.10),
        ("measured_qwen", "qwen3-30b-a3b", 2, RUNS[1], 0.36),
    ],
)
def test_a_measured_run_is_predicted_within_the_error_that_is_told(
    run, model, engines, known, ttft, tmp_path
):
    """The limits, 128 sequences and 2,048 tokens a batch, are the engines' own; the rest is physics."""
    path = DATA / "llmserving" / f"{run}.jsonl.gz"
    rows = sorted(
        map(json.loads, gzip.decompress(path.read_bytes()).splitlines()), key=lambda row: row["queued_ts"]
    )
    prior = calibrate_prior(DATA / "prior" / f"{model}.json", "rtx-pro-6000-server")
    profile = parse_profile(prior.profile, "profile", "prior")
    cluster = cluster_of(replace(profile, max_num_seqs=128, max_num_batched_tokens=2048), engines)
    workload = compile_workload(ingest([path], tmp_path / "run.trace").trace, replay="timestamps")
    table = simulate(workload, cluster, load_policy("round-robin")).table().sort_by("arrival_s")
    for column, stamp, error in (
        ("finish_s", "last_token_ts", known),
        ("first_token_s", "first_token_ts", ttft),
    ):
        simulated = table[column].to_numpy() - table["arrival_s"].to_numpy()
        measured = np.array([row[stamp] - row["queued_ts"] for row in rows])
        assert np.abs(simulated / measured - 1).mean() == pytest.approx(error, abs=0.005), stamp
