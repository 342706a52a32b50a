"""What `agentctl synth` says about the workload that it made."""

from __future__ import annotations

from typing import Any

from agentctl.analyzers.words import count
from agentctl.present import Fact, Section
from agentctl.synth.model import Model

COMMON = (
    "there are no latencies: they belong to the cluster that served a log, not to the workload",
    "lengths are drawn in strata, so that a small workload has the same marginals as a large one",
)
KEPT = (
    "kept: by class of session (turns, then tokens) the distributions of turns, first prompts, outputs, "
    "growth, gaps and service times; kinds of gaps; how often and how far contexts are cut; prefixes that "
    "many sessions share; rate and burstiness of starts"
)
NOT_KEPT = (
    "not kept: ids, hashes, text, names, statuses, single values, the order of a session's turns, "
    "prefixes of few sessions, daily cycles, sub-agents"
)


def describe(document: dict[str, Any], model: Model) -> tuple[Section, ...]:
    """Sections for people from the document of a made workload."""
    least = document["min_sessions_per_number"]
    sentence = (
        f"{count(document['requests'], 'request')} of {count(document['sessions'], 'session')} drawn from "
        f"{model.name}, {document['sessions_per_min']:.4g} session starts per minute, seed {document['seed']}"
    )
    facts = [
        Fact("classes of sessions", document["classes"], "count"),
        Fact("shared prefixes", document["shared_prefixes"], "count"),
        Fact("left out: after the last start", document["after_the_end"], "count", "as a log ends"),
    ]
    private: tuple[str, ...] = ()
    if least is not None:
        facts.append(Fact("sessions behind every number", least, "count", "at least"))
        private = (KEPT, NOT_KEPT, "grouping, not differential privacy")
    return (Section("synth", "Synth", sentence, facts=tuple(facts), assumptions=(*private, *COMMON)),)
