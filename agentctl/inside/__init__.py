"""What went on inside one run, or several side by side: latencies, where prompt tokens came from, the load of
engines over time, hot spots, and what other engines would have given.

Curves stay in the sections, which a run folder keeps; the document has their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentctl.inside.engines import engines
from agentctl.inside.hits import hits
from agentctl.inside.hot import hot
from agentctl.inside.latency import latencies
from agentctl.inside.look import Look, document, look_at
from agentctl.inside.regret import regrets
from agentctl.present import Section

__all__ = ["Look", "document", "look_at", "sections"]


def sections(looks: Sequence[Look], at: str) -> tuple[Section, ...]:
    """How runs differ inside; the first one is that of which the sentences tell. at: the load, in words."""
    compared = [look for look in looks if look.regret and look.regret["requests"]]
    lost = (regrets(compared),) if compared else ()
    return latencies(looks, at), hits(looks), engines(looks), hot(looks), *lost
