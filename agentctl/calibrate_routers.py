"""The part of a calibration that goes into routers' own settings, for the terminal and the HTML report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentctl.emit.engine_costs import peak_prefill_tokens_per_s, program_scheduling
from agentctl.present import Section, Table, Unit
from agentctl.profile import parse_profile
from agentctl.profile_file import without_none


def router_settings_of(tables: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """By router, from the tables of a profile; None without one."""
    if tables is None:
        return None
    profile = parse_profile(without_none(tables), "profile", "calibrated")
    return {
        "llm-d": {"peakPrefillThroughput": round(peak_prefill_tokens_per_s(profile))},
        "vllm-router": program_scheduling(profile),
    }


def routers_section(settings: Mapping[str, Any] | None) -> tuple[Section, ...]:
    if settings is None:
        return ()
    costs = json.dumps(_short(settings["vllm-router"]))
    rows = (
        ("llm-d", "peakPrefillThroughput", str(settings["llm-d"]["peakPrefillThroughput"])),
        ("vllm-router", "program-scheduling-config-json", costs),
    )
    sentence = "Where routers keep these numbers; peak prefill: batches full of one prompt."
    head: tuple[tuple[str, Unit], ...] = (("router", ""), ("setting", ""), ("value", ""))
    return (Section("routers", "What routers want to be told", sentence, tables=(Table(head, rows),)),)


def _short(costs: Any) -> Any:
    """Four digits are more than are known."""
    if isinstance(costs, Mapping):
        return {key: _short(value) for key, value in costs.items()}
    return float(f"{costs:.4g}") if isinstance(costs, float) else costs
