"""Draw the requests of a workload from its model: sessions, times and lengths.

Every quantity is drawn in strata, one value from each n-th of its distribution in random order, so that a
small workload already has the marginals of its model. Randomness comes from the seed alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.schema import GAP_KINDS
from agentctl.synth.model import Distribution, Model, SessionClass, shared_tokens

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
I8 = NDArray[np.int8]

DECIMALS = 6  # times are written to the microsecond
NO_LIMIT = 1 << 40  # tokens
OVERLAP = GAP_KINDS.index("overlap")


class Requests(NamedTuple):
    """One value per request, in order of arrival; rows are places in this order, -1: none."""

    session: I64  # numbered by start
    turn: I64  # from 0
    arrival: F64  # s
    prompt: I64  # tokens
    output: I64 | None
    before: I64  # the row before it in its session
    base: I64  # the row whose prompt it begins with: the session's longest so far
    held: I64  # tokens of that prompt that it begins with; in a first turn those of the shared prefix
    prefix: I64  # number of the session's shared prefix, -1: none
    gap: F64  # s, NaN: unknown
    gap_kind: I8  # index into schema.GAP_KINDS, -1: unknown


class Dice:
    """Random numbers of a workload."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def strata(self, n: int) -> F64:
        """n shares in (0, 1), one in each n-th, in random order."""
        return (self.random.permutation(n) + self.random.random(n) * (1 - 2**-20) + 2**-21) / max(n, 1)

    def choose(self, shares: list[float], n: int) -> I64:
        """n numbers of choices, as often as their shares say."""
        upper = np.cumsum(shares)
        return np.minimum(np.searchsorted(upper / upper[-1], self.strata(n), side="right"), len(shares) - 1)


def draw(model: Model, sessions: int, sessions_per_min: float, seed: int) -> tuple[Requests, int]:
    """The requests, and how many more would have come after the end of the log."""
    dice = Dice(seed)
    start = starts_of(dice, sessions, sessions_per_min, model.start_scv)
    kind = dice.choose([each.share for each in model.classes], sessions)
    prefix: I64 = (
        dice.choose([each.share for each in model.prefixes], sessions)
        if model.prefixes
        else np.full(sessions, -1)
    )
    n_turns = _whole(_by_class(model, kind, lambda c: c.turns, dice))
    fresh = _whole(_by_class(model, kind, lambda c: c.first_tokens, dice))

    first = np.cumsum(n_turns) - n_turns
    session = np.repeat(np.arange(sessions), n_turns)
    turn = np.arange(session.size) - first[session]
    of = kind[session]
    output = _whole(_by_class(model, of, lambda c: c.output_tokens, dice))
    growth = np.rint(_by_class(model, of, lambda c: c.growth_tokens, dice)).astype(np.int64)
    cut = dice.strata(session.size) < np.array([each.cut_share for each in model.classes])[of]
    kept = _by_class(model, of, lambda c: c.kept_share, dice)
    cut_tokens = _whole(_by_class(model, of, lambda c: c.cut_tokens, dice))
    service = np.maximum(_by_class(model, of, lambda c: c.service_s, dice), 0.0)
    gap, gap_kind = _gaps(model, of, dice)

    shared = shared_tokens(model.prefixes, model.block_tokens)[prefix]
    lengths = (turn, session, shared, fresh, output, growth, cut, kept, cut_tokens)
    factor = np.ones(sessions)
    prompt, held, base = _prompts(*lengths, factor, NO_LIMIT)
    extends = (turn > 0) & ~cut
    gains = np.bincount(session, np.where(extends, prompt - held, 0), sessions)
    factor = _growth_factor(model, kind, dice, gains, n_turns)
    prompt, held, base = _prompts(*lengths, factor, model.longest_prompt)
    step = np.where(gap_kind == OVERLAP, 0.0, np.roll(service, 1)) + gap  # service of the turn before
    step[first] = 0.0
    since = np.cumsum(step)
    arrival = np.round(start[session] + since - since[first][session], DECIMALS)
    unknown = (turn == 0) | (gap_kind < 0)
    gap, gap_kind = np.where(unknown, np.nan, np.round(gap, DECIMALS)), np.where(unknown, -1, gap_kind)

    order = np.lexsort((turn, session, arrival))
    if model.ends_with_starts:
        order = order[arrival[order] <= start[-1]]
    place = np.full(session.size, -1)
    place[order] = np.arange(order.size)
    before = np.where(turn > 0, place[np.maximum(np.arange(session.size) - 1, 0)], -1)
    base = np.where(base >= 0, place[base], -1)
    columns = (session, turn, arrival, prompt, output, before, base, held, prefix[session], gap, gap_kind)
    drawn = Requests(*(column[order] for column in columns))  # type: ignore[arg-type]
    if all(each.output_tokens is None for each in model.classes):
        drawn = drawn._replace(output=None)
    return drawn, session.size - order.size


def starts_of(dice: Dice, sessions: int, per_min: float, scv: float) -> F64:
    """Starts from 0 with gamma-distributed time between them."""
    mean = 60 / per_min
    between = dice.random.gamma(1 / scv, scv * mean, sessions) if scv > 0 else np.full(sessions, mean)
    return np.round(np.cumsum(between) - between[:1], DECIMALS)


def _whole(values: F64) -> I64:
    """Counts of at least 1."""
    return np.maximum(np.rint(values), 1).astype(np.int64)


def _by_class(
    model: Model,
    of: I64,
    pick: Callable[[SessionClass], Distribution | None],
    dice: Dice,
) -> F64:
    """A value for each entry of `of` (numbers of classes) from its class's distribution; 0 without one."""
    values = np.zeros(of.size)
    for number, each in enumerate(model.classes):
        mine = np.flatnonzero(of == number)
        shares, distribution = dice.strata(mine.size), pick(each)
        if distribution is not None:
            values[mine] = distribution.at(shares)
    return values


def _growth_factor(model: Model, kind: I64, dice: Dice, gains: NDArray[Any], n_turns: I64) -> F64:
    """What to multiply each session's growth by, so that the sessions of a class gain what their model says:
    the one that drew most per turn gets most. 1 where it does not say, or nothing was drawn."""
    factor = np.ones(gains.size)
    for number, each in enumerate(model.classes):
        if each.gain_tokens is not None:
            mine = np.flatnonzero((kind == number) & (gains > 0))
            mine = mine[np.argsort(gains[mine] / n_turns[mine], kind="stable")]
            wanted = each.gain_tokens.at(np.sort(dice.strata(mine.size)))
            factor[mine] = np.maximum(wanted, 0.0) / gains[mine]
    return factor


def _gaps(model: Model, of: I64, dice: Dice) -> tuple[F64, I8]:
    """Seconds before each turn and their kind."""
    gap, kinds = np.zeros(of.size), np.full(of.size, -1, np.int8)
    for number, each in enumerate(model.classes):
        mine = np.flatnonzero(of == number)
        if not each.gaps:
            continue
        chosen = dice.choose([one.share for one in each.gaps], mine.size)
        for place, one in enumerate(each.gaps):
            rows = mine[chosen == place]
            gap[rows] = np.maximum(one.seconds.at(dice.strata(rows.size)), 0.0)
            kinds[rows] = -1 if one.kind is None else GAP_KINDS.index(one.kind)
    return gap, kinds


@njit(cache=True, nogil=True)
def _prompts(turn, session, shared, fresh, output, growth, cut, kept, cut_tokens, factor, longest):
    """(prompt, held, base) of all turns, session by session; shared, fresh and factor are per session."""
    n = turn.size
    prompt, held, base = np.empty(n, np.int64), np.empty(n, np.int64), np.full(n, -1, np.int64)
    main = -1  # row of the session's longest prompt
    for row in range(n):
        if turn[row] == 0:
            keeps, new = shared[session[row]], fresh[session[row]]
        elif cut[row]:
            new = cut_tokens[row]
            keeps = min(np.int64(max(kept[row], 0.0) * prompt[main]), max(prompt[main] - new, 0))
        else:
            keeps = prompt[main]
            new = max(np.int64(np.rint(max(output[main] + growth[row], 1) * factor[session[row]])), 1)
        new = min(new, longest)
        held[row] = max(min(keeps, longest - new), 0)
        prompt[row] = held[row] + new
        if turn[row] > 0:
            base[row] = main
        if turn[row] == 0 or prompt[row] >= prompt[main]:
            main = row
    return prompt, held, base
