"""Calibration from inside: what an engine in this process was measured to do, fitted.

The fit is that of step logs (agentctl/calibrate.py): what is measured is a step log. The profile also says
what was measured: engine, device, clock, and the mode that it holds for (graphs, asynchronous scheduling,
chunking).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from agentctl.calibrate import Calibration, Engine, calibrate_steps
from agentctl.calibrate_engine_sections import engine_section
from agentctl.inprocess.step_file import WARM, StepFile
from agentctl.profile import Profile


def calibrate_engine(
    file: StepFile,
    model: str = "hinge",
    terms: list[str] | None = None,
    named: Engine | None = None,
    prior: Profile | None = None,
) -> Calibration:
    """Fit what was measured. named: names of model and GPU for the profile, else what the engine says."""
    facts, named = file.facts, named or Engine()
    limits = facts["limits"]
    on_gpu = facts["device"] != "cpu"
    engine = Engine(
        named.model, named.gpu or (facts["device"] if on_gpu else None), facts["asked"]["gpus"],
        limits["kv_blocks"], limits["block_tokens"], limits["kv_bytes_per_token"],
        limits["max_num_batched_tokens"], limits["max_num_seqs"],
    )  # fmt: skip
    # Waits for a core are in the log only where its clock holds them.
    found = calibrate_steps([file.path], model, terms, engine, prior)
    told = told_of(file)
    tables = found.profile
    if tables is not None:
        tables = {**tables, "max_model_len": limits["max_model_len"]}
        tables["provenance"] = {
            **tables["provenance"], "method": "engine", "engine": facts["engine"], "device": facts["device"],
            "clock": told["clock"], "mode": {k: v for k, v in facts["mode"].items() if v is not None},
        }  # fmt: skip
    document = {**found.document, "source": "engine", "engine": {**told, "limits": limits}}
    sections = (found.sections[0], engine_section(told, limits), *found.sections[1:])
    return replace(found, document=document, sections=sections, profile=tables)


def told_of(file: StepFile) -> dict[str, Any]:
    """Engine, device, clock, mode, and how much of the steps' wall time that clock saw."""
    seconds = wall = 0.0
    for line in file.path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["scene"] != WARM:
            seconds, wall = seconds + row["seconds"], wall + row["wall_clock_s"]
    facts = file.facts
    return {
        "engine": facts["engine"], "device": facts["device"], "clock": facts["clock"], "mode": facts["mode"],
        "share_of_wall": seconds / wall if wall else None,
    }  # fmt: skip
