"""What a made workload is drawn from: classes of sessions, the prefixes they share, and how they start.

A session takes one class and one prefix. Its first prompt is the prefix and text of its own. A later prompt
extends the longest one so far and its answer by `growth_tokens`, or, in `cut_share` of the turns, keeps only
the beginning of that prompt (a compacted context, a sub-agent): `kept_share` of it, and `cut_tokens` of new
text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


class Distribution(Protocol):
    def at(self, share: F64) -> F64:
        """The values that these shares (0..1) of the distribution do not exceed."""


class Lognormal(NamedTuple):
    """Cut to low..high: what lies outside counts as the limit."""

    median: float
    sigma: float  # of the logarithm
    low: float
    high: float

    def at(self, share: F64) -> F64:
        from scipy.special import ndtri

        return np.clip(self.median * np.exp(self.sigma * ndtri(share)), self.low, self.high)


class Table(NamedTuple):
    """A sorted sample in groups: only the mean of each group is known, and how much of the sample it is.

    A group is spread evenly around its mean, half-way to the nearer neighbour: the means stay what they were.
    """

    means: F64  # rising
    upper: F64  # share of the sample up to and with each group; the last is 1

    def at(self, share: F64) -> F64:
        group = np.minimum(np.searchsorted(self.upper, share, side="right"), self.means.size - 1)
        lower = np.concatenate([[0.0], self.upper[:-1]])
        within = (share - lower[group]) / (self.upper - lower)[group]  # 0..1
        step = np.diff(self.means) / 2
        if not step.size:
            return self.means[group]
        spread = np.minimum(np.append(step, step[-1:]), np.append(step[:1], step))
        return self.means[group] + (2 * within - 1) * spread[group]


class Gap(NamedTuple):
    """From the end of a request to the next one; `overlap`: from its start. kind None: not known apart."""

    kind: str | None  # schema.GAP_KINDS
    share: float  # of the later turns
    seconds: Distribution


@dataclass(frozen=True)
class SessionClass:
    """Sessions of one kind. None: not known, or there are none."""

    share: float  # of the sessions
    turns: Distribution
    first_tokens: Distribution  # of the first prompt, behind the shared prefix
    output_tokens: Distribution | None
    growth_tokens: Distribution | None = None
    service_s: Distribution | None = None  # from a request's arrival to its end, as placed in the trace
    gaps: tuple[Gap, ...] = ()
    cut_share: float = 0.0
    kept_share: Distribution | None = None
    cut_tokens: Distribution | None = None
    # Of sessions of two or more turns: the longest prompt less the first, to which growth is scaled.
    gain_tokens: Distribution | None = None


class Prefix(NamedTuple):
    """A beginning that sessions share: what its parent has and `blocks` more."""

    parent: int  # an earlier prefix, -1: none
    blocks: int
    share: float  # of the sessions: those that share this and nothing longer


@dataclass(frozen=True)
class Model:
    """A workload. `name` says where it comes from; shares of classes and of prefixes add up to 1."""

    name: str
    block_tokens: int | None  # None: no block chains
    classes: tuple[SessionClass, ...]
    prefixes: tuple[Prefix, ...]
    longest_prompt: int  # tokens; a longer one loses the end of what it keeps
    sessions: int  # how many there are unless said otherwise
    sessions_per_min: float
    start_scv: float = 1.0  # squared coefficient of variation between starts; 1: Poisson
    ends_with_starts: bool = False  # the log ends with the last start, and what would come later is not in it
    hash_scope: str = "global"  # session: what sessions share is not known
    min_sessions: int | None = None  # each number of the model is of at least so many sessions; None: of none


def shared_tokens(prefixes: tuple[Prefix, ...], block_tokens: int | None) -> NDArray[np.int64]:
    """Tokens of each prefix; the last entry is that of none (-1)."""
    tokens = np.zeros(len(prefixes) + 1, np.int64)
    for number, each in enumerate(prefixes):
        tokens[number] = tokens[each.parent] + each.blocks * (block_tokens or 0)
    return tokens
