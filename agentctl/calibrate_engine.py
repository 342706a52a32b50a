"""Calibration from inside: what an engine in this process was measured to do, fitted.

The fit is that of step logs (agentctl/calibrate.py): what is measured is a step log. The profile also says
what was measured: engine, device, clock, and the mode that it holds for (graphs, asynchronous scheduling,
chunking).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentctl.calibrate import Calibration, Engine, calibrate_steps
from agentctl.calibrate_engine_sections import dense_section, engine_section
from agentctl.calibrate_lps_sections import power_section
from agentctl.estimators.batch_time import BatchTime
from agentctl.estimators.power import phase_power, power_table
from agentctl.estimators.power_samples import read_power
from agentctl.inprocess.step_file import WARM, StepFile
from agentctl.present import Section
from agentctl.profile import Profile, parse_profile
from agentctl.profile_file import without_none

MEMORY = ("kv_blocks", "block_tokens", "kv_bytes_per_token")


def calibrate_engine(
    file: StepFile,
    model: str = "hinge",
    terms: list[str] | None = None,
    named: Engine | None = None,
    power: Path | None = None,
) -> Calibration:
    """Fit what was measured of an engine.

    named  names of model and GPU for the profile, else what the engine says of itself
    power  samples of its GPUs, if that file exists
    """
    limits = file.facts["limits"]
    engine = Engine(**{key: value for key, value in limits.items() if key != "max_model_len"})
    found = calibrate_steps([file.path], model, terms, _named(engine, file, named or Engine()))
    more: dict[str, Any] = {"max_model_len": limits["max_model_len"]}
    sections = [engine_section(told_of(file), limits)]
    if power is not None and power.is_file():
        samples = read_power([power])
        watts = phase_power(samples, None, "phase")
        more["power"] = power_table(watts, samples.inputs)
        sections.append(power_section(watts))
    return _with(found, file, more, sections)


def calibrate_dense(
    file: StepFile, prior: Profile, model: str = "hinge", named: Engine | None = None
) -> Calibration:
    """Fit what was measured of dense layers alone; terms of attention and KV memory are the prior's."""
    c = prior.batch_time
    attention = BatchTime(
        "hinge", 0.0, 0.0, 0.0, c.b_context, c.b_context_mixed, c.b_attention, 0.0, 0.0, 0.0
    )
    memory = {key: getattr(prior, key) for key in MEMORY}
    engine = _named(Engine(**memory), file, named or Engine())
    found = calibrate_steps([file.path], model, [], engine, replace(prior, batch_time=attention))
    taken = [key for key, value in memory.items() if value is not None]
    return _with(found, file, {}, [dense_section(told_of(file), prior.name, taken)], taken)


def _named(engine: Engine, file: StepFile, named: Engine) -> Engine:
    device = file.facts["device"]
    return replace(
        engine, model=named.model, gpu=named.gpu or (None if device == "cpu" else device),
        tensor_parallel=file.facts["asked"]["gpus"],
    )  # fmt: skip


def _with(
    found: Calibration,
    file: StepFile,
    more: dict[str, Any],
    sections: list[Section],
    from_prior: Sequence[str] = (),
) -> Calibration:
    """The calibration of a step log, with what is known of the engine in its document, profile and words."""
    told = told_of(file)
    tables = found.profile
    if tables is not None:
        mode = {key: value for key, value in told["mode"].items() if value is not None}
        provenance = tables["provenance"]
        both = [*(provenance["from_prior"] or []), *from_prior]
        provenance |= {
            "method": "engine", "engine": told["engine"], "device": told["device"], "clock": told["clock"],
            "mode": mode, "from_prior": both or None,
        }  # fmt: skip
        tables = {**tables, **more, "provenance": provenance}
        parse_profile(without_none(tables), "profile", "calibrated")
    document = {
        **found.document, "source": "engine",
        "engine": {**told, "limits": file.facts["limits"]}, "power": more.get("power"),
    }  # fmt: skip
    everything = (found.sections[0], *sections, *found.sections[1:])
    return replace(found, document=document, sections=everything, profile=tables)


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
