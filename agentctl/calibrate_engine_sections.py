"""What a calibration from inside says of the engine that it measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentctl.analyzers.words import percent
from agentctl.inprocess.clocks import MEANING
from agentctl.present import Fact, Section

BUSY = 0.9  # of the wall time on the core, below which the machine was busy


def engine_section(told: Mapping[str, Any], limits: Mapping[str, Any]) -> Section:
    """told: engine, device, clock, mode, share_of_wall."""
    mode = told["mode"]
    sentence = (
        f"{told['engine']} on {told['device']}, in this process, with weights of no meaning; "
        f"steps are timed by {MEANING[told['clock']]}."
    )
    facts = [
        Fact(
            "KV blocks",
            limits["kv_blocks"],
            "blocks",
            f"of {limits['block_tokens']} tokens, as the engine says",
        ),
        Fact("tokens of a batch", limits["max_num_batched_tokens"], "tokens", "max_num_batched_tokens"),
        Fact("sequences of a batch", limits["max_num_seqs"], "count", "max_num_seqs"),
        Fact("longest request", limits["max_model_len"], "tokens", "max_model_len"),
        Fact("clock over wall time", told["share_of_wall"], "ratio", _of_wall(told["clock"])),
    ]
    assumptions = [
        f"calibrated for this mode: {', '.join(f'{k} {_word(v)}' for k, v in mode.items() if v is not None)}"
    ]
    if not mode.get("async_scheduling"):
        assumptions.append(
            "asynchronous scheduling was off: with it, as vLLM serves by default, the host's work hides "
            "behind the GPU's"
        )
    return Section(
        "engine", "The engine that was measured", sentence, facts=tuple(facts),
        warnings=tuple(_warnings(told)), assumptions=tuple(assumptions),
    )  # fmt: skip


def _of_wall(clock: str) -> str:
    return {
        "cpu": "the rest was waiting for a core, and is left out",
        "events": "the rest is the host's scheduling and output, and is left out",
        "wall": "",
    }[clock]


def _warnings(told: Mapping[str, Any]) -> list[str]:
    share = told["share_of_wall"]
    if told["clock"] == "cpu" and share is not None and share < BUSY:
        return [
            f"the engine had its core for {percent(share)} of the time: others' caches slow it all the same"
        ]
    if told["clock"] == "wall" and told["device"] == "cpu":
        return ["several threads compute, and times hold their waits for a core: OMP_NUM_THREADS=1 has none"]
    return []


def _word(value: Any) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def dense_section(told: Mapping[str, Any], prior: str, memory: Sequence[str]) -> Section:
    """Of layers without attention. memory: keys of the profile that are the prior's, too."""
    mode = told["mode"]
    sentence = (
        f"The model's dense layers alone, with random weights, by {told['engine']} on {told['device']}, "
        f"timed by {MEANING[told['clock']]}; what attention costs is the prior's."
    )
    return Section(
        "engine",
        "What was measured, and what was not",
        sentence,
        warnings=(
            f"b_context and b_attention were not measured: they are those of the prior {prior}, since a "
            "measurement of attention without the engine's own kernels does not transfer",
        ),
        assumptions=(
            *([f"{', '.join(memory)} are the prior's, too"] if memory else []),
            f"{mode['layers_measured']} layers were timed, and count for all",
            "launches of kernels are in the times, as in an engine without graphs; scheduling, sampling "
            "beyond the likeliest token and the host's work are not: b0 is a lower bound",
        ),
    )
