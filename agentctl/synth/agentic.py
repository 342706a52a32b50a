"""The frozen agentic workload: numbers that were fixed before any policy was run on it, each with its source.

What it must reproduce is published (FACTS): findings F1-F6 on two coding-agent traces of Alibaba's model
platform (SMetric, arXiv 2607.08565). The traces are not public, and neither are their turns and lengths:
these come from other published figures where there are some, and were otherwise chosen so that the facts
hold. Nothing here was tuned against a simulation. A change of any number is a new VERSION.
"""

from __future__ import annotations

from typing import NamedTuple

from agentctl.synth.model import Gap, Lognormal, Model, Prefix, SessionClass

VERSION = 1
NAME = f"agentic/{VERSION}"


class Fact(NamedTuple):
    """A published finding and the range in which `agentctl analyze` must find it."""

    name: str
    finding: str
    low: float
    high: float


FACTS = (
    Fact("F1", "more than 80 % of the prompt tokens are reuse, with an infinite cache", 0.80, 0.90),
    Fact("F2", "more than 65 % of the reuse is within the session", 0.65, 1.0),
    Fact("F3", "the system prompt gives 18-20 %: what first turns can reuse", 0.18, 0.20),
    Fact("F4", "about 90 % of the reuses come within about 100 s", 0.88, 0.92),
    Fact("F5", "a quarter of the sessions carries more than 80 % of the tokens", 0.80, 1.0),
    Fact("F6", "requests per minute are 43-48 times the number of engines", 43.0, 48.0),
)

_LENGTHS = "mean 445, p50 80: working notes on a coder trace of the same platform, May 2026"
_TOOL = "p50 0.3 s, p90 13.6 s, p99 216 s: TraceLab, arXiv 2606.30560"


class Number(NamedTuple):
    """One parameter: its value, its unit and where it comes from."""

    value: float
    unit: str
    source: str


def chosen(value: float, unit: str, facts: str) -> Number:
    return Number(value, unit, f"chosen so that {facts} hold")


PARAMETERS = {
    # Sessions of one or two requests (a question), and tasks.
    "question_share": chosen(0.45, "of the sessions", "F1, F5"),
    "question_turns_median": chosen(1.0, "turns", "F1, F5"),
    "question_turns_sigma": chosen(0.5, "of the logarithm", "F1, F5"),
    "task_turns_median": chosen(4.6, "turns", "F1, F5"),
    "task_turns_sigma": chosen(1.2, "of the logarithm", "F1, F5"),
    "most_turns": Number(200, "turns", "a guess; one session in a thousand gets there"),
    # First prompts, behind the system prompt.
    "question_tokens_median": chosen(8_000, "tokens", "F3"),
    "question_tokens_sigma": chosen(1.2, "of the logarithm", "F3"),
    "task_tokens_median": chosen(16_500, "tokens", "F3, F5"),
    "task_tokens_sigma": chosen(1.25, "of the logarithm", "F3, F5"),
    "least_tokens": Number(200, "tokens", "a guess"),
    "most_tokens": Number(120_000, "tokens", "so that the first prompt fits"),
    "longest_prompt": Number(131_072, "tokens", "requests of 128K occur (SMetric)"),
    # Answers, and what tools and users add to them.
    "output_median": Number(80, "tokens", _LENGTHS),
    "output_sigma": Number(1.85, "of the logarithm", _LENGTHS),
    "output_most": Number(16_384, "tokens", "a common limit of clients"),
    "growth_median": chosen(100, "tokens", "F1, F3"),
    "growth_sigma": chosen(1.3, "of the logarithm", "F1, F3"),
    "growth_least": Number(8, "tokens", "a guess"),
    "growth_most": Number(32_768, "tokens", "a guess"),
    # Time to the next turn: what the answer took when the arrivals were fixed, then a tool or a user.
    "service_median": Number(3.0, "s", "a guess; only replay by timestamps sees it"),
    "service_sigma": Number(0.8, "of the logarithm", "a guess"),
    "service_least": Number(0.3, "s", "a guess"),
    "service_most": Number(120.0, "s", "a guess"),
    "tool_gap_median": Number(0.3, "s", _TOOL),
    "tool_gap_sigma": Number(2.9, "of the logarithm", _TOOL),
    "tool_gap_least": Number(0.01, "s", "a guess"),
    "tool_gap_most": Number(600.0, "s", "a guess: a tool's time-out"),
    "user_share": chosen(0.28, "of the later turns", "F4"),
    "user_gap_median": Number(100.0, "s", "p50 about 86 s (TraceLab), rounded"),
    "user_gap_sigma": Number(2.0, "of the logarithm", "p90 about 21 min (TraceLab)"),
    "user_gap_least": Number(1.0, "s", "a guess"),
    "user_gap_most": Number(3600.0, "s", "a guess: later messages begin a session of their own"),
    # System prompts: four applications.
    "system_1_tokens": chosen(5_888, "tokens", "F3"),
    "system_2_tokens": chosen(5_632, "tokens", "F3"),
    "system_3_tokens": chosen(5_504, "tokens", "F3"),
    "system_4_tokens": chosen(5_120, "tokens", "F3"),
    "system_1_share": Number(0.4, "of the sessions", "a guess"),
    "system_2_share": Number(0.3, "of the sessions", "a guess"),
    "system_3_share": Number(0.2, "of the sessions", "a guess"),
    "system_4_share": Number(0.1, "of the sessions", "a guess"),
    # Load.
    "engines": Number(8, "engines", "a cluster of SMetric's larger model"),
    "sessions": Number(4_000, "sessions", "enough for the facts to hold whatever the seed"),
    "sessions_per_min": chosen(85.0, "session starts per minute", "F6 on these engines"),
    "block_tokens": Number(64, "tokens", "a multiple of the block sizes of engines (16, 32, 64)"),
}


def agentic() -> Model:
    """The workload as a model. Sessions start as a Poisson process, and the log ends with the last start."""
    p = {name: number.value for name, number in PARAMETERS.items()}

    def lognormal(name: str, low: str, high: str) -> Lognormal:
        return Lognormal(p[f"{name}_median"], p[f"{name}_sigma"], p[low], p[high])

    def sessions(name: str, share: float) -> SessionClass:
        return SessionClass(
            share=share,
            turns=Lognormal(p[f"{name}_turns_median"], p[f"{name}_turns_sigma"], 1, p["most_turns"]),
            first_tokens=lognormal(f"{name}_tokens", "least_tokens", "most_tokens"),
            output_tokens=Lognormal(p["output_median"], p["output_sigma"], 1, p["output_most"]),
            growth_tokens=lognormal("growth", "growth_least", "growth_most"),
            service_s=lognormal("service", "service_least", "service_most"),
            gaps=(
                Gap("tool", 1 - p["user_share"], lognormal("tool_gap", "tool_gap_least", "tool_gap_most")),
                Gap("user", p["user_share"], lognormal("user_gap", "user_gap_least", "user_gap_most")),
            ),
        )

    block_tokens = int(p["block_tokens"])
    return Model(
        name=NAME,
        block_tokens=block_tokens,
        classes=(sessions("question", p["question_share"]), sessions("task", 1 - p["question_share"])),
        prefixes=tuple(
            Prefix(-1, int(p[f"system_{n}_tokens"]) // block_tokens, p[f"system_{n}_share"])
            for n in (1, 2, 3, 4)
        ),
        longest_prompt=int(p["longest_prompt"]),
        sessions=int(p["sessions"]),
        sessions_per_min=p["sessions_per_min"],
        ends_with_starts=True,
    )
