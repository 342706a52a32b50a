"""A switchback plan: periods of the new and of today's configuration in turn, to confirm a winner online.

Requests of one cluster interfere, so that splitting them would compare two policies inside each other's load.
Whole periods do not, once what the other one left behind is discarded. Rules: a period is at least three
median session lifetimes; its beginning, as long as sessions or cached KV live, is not counted; the order is
random and balanced over the hour of day; the number of periods follows from the simulated effect and the
spread of the replicates; the analysis is by period means.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, NamedTuple

HOUR, DAY = 3600.0, 86_400.0
# Lengths that fit whole times into a day, so that every hour of day sees both arms.
PERIODS = tuple(DAY / n for n in (96, 72, 48, 24, 16, 12, 8, 6, 4, 3, 2, 1))
LIFETIMES = 3
ALPHA_Z, POWER_Z = 1.959964, 0.841621  # two-sided 5 %, and 80 % that a true effect of this size is seen
LEAST_EFFECT = 0.10  # of today's value: what is looked for when the simulated effect is within its error
LEAST_PER_ARM = 4
MOST_PERIODS = 1000  # more is no plan that anybody follows


class Effect(NamedTuple):
    """What is measured in each period, as simulated at the trace's load. Spreads are of whole replicates."""

    metric: str
    today: float
    new: float
    sd_today: float
    sd_new: float
    is_clear: bool  # the interval of the difference does not hold 0


class Switchback(NamedTuple):
    """Times in seconds. `periods` is their number, None when it cannot be planned; `why` says how.

    schedule  (day, hour of its start, "new" | "today"), in order; empty without a number of periods, or with
              more than MOST_PERIODS
    """

    period_s: float
    burn_in_s: float
    periods: int | None
    days: int | None
    why: str
    schedule: tuple[tuple[int, float, str], ...]


def switchback(
    lifetime_s: float,
    long_lifetime_s: float,
    residency_s: float | None,
    span_s: float,
    effect: Effect | None,
    seed: int,
) -> Switchback:
    """The plan for sessions that live `lifetime_s` (median) and `long_lifetime_s` (nine in ten are shorter).

    residency_s  how long KV stays in an engine; None: unknown
    span_s       of the trace, over which a replicate's spread is taken
    """
    burn_in = max(long_lifetime_s, residency_s or 0.0)
    least = max(LIFETIMES * lifetime_s, 2 * burn_in)
    period = next((one for one in PERIODS if one >= least), math.ceil(least / DAY) * DAY)
    per_arm, why = _number_of_periods(effect, span_s / (period - burn_in))
    if per_arm is None:
        return Switchback(period, burn_in, None, None, why, ())
    slots = max(round(DAY / period), 1)
    pairs = math.ceil(per_arm / slots)  # of days (or of longer periods), each slot once with each arm
    total = 2 * pairs * slots
    days = math.ceil(total * period / DAY)
    if total > MOST_PERIODS:
        why += f"; {total:,} periods are {days:,} days: too small a difference to be confirmed this way"
        return Switchback(period, burn_in, total, days, why, ())
    return Switchback(period, burn_in, total, days, why, _schedule(period, slots, pairs, seed))


def _number_of_periods(effect: Effect | None, stretch: float) -> tuple[int | None, str]:
    """Periods of each arm. A period's mean spreads more than the trace's, by the root of `stretch`."""
    if effect is None:
        return None, "today's configuration was not simulated at the trace's load: the number is not known"
    wanted = abs(effect.new - effect.today)
    why = f"to see the simulated difference of {effect.metric}"
    if not effect.is_clear or wanted == 0:
        wanted = LEAST_EFFECT * abs(effect.today)
        why = f"the simulated difference of {effect.metric} is within its error; to see {LEAST_EFFECT:.0%}"
    if wanted == 0:
        return None, f"{effect.metric} is 0 today: the number is not known"
    variance = (effect.sd_today**2 + effect.sd_new**2) * max(stretch, 0.0)
    n = math.ceil((ALPHA_Z + POWER_Z) ** 2 * variance / wanted**2)
    return max(n, LEAST_PER_ARM), f"{why} with 80 % power at the 5 % level"


def _schedule(period: float, slots: int, pairs: int, seed: int) -> tuple[tuple[int, float, str], ...]:
    """Every slot of the day has as many periods of either arm; within a pair of days the order is drawn."""
    length = max(round(period / DAY), 1)  # days of a period that is longer than one
    found = []
    for pair in range(pairs):
        for turn in (0, 1):
            for slot in range(slots):
                drawn = hashlib.sha256(f"{seed}:{pair}:{slot}".encode()).digest()[0] & 1
                day = (2 * pair + turn) * length
                found.append((day, slot * period / HOUR, "new" if drawn ^ turn else "today"))
    return tuple(found)


def document(plan: Switchback, effect: Effect | None) -> dict[str, Any]:
    return {
        "schema": "agentctl/switchback/1",
        "period_s": plan.period_s,
        "burn_in_s": plan.burn_in_s,
        "periods": plan.periods,
        "days": plan.days,
        "why": plan.why,
        "effect": None if effect is None else effect._asdict(),
        "analysis": "difference of the means of period means without burn-in; periods are the sample",
        "schedule": [{"day": day, "start_hour": hour, "arm": arm} for day, hour, arm in plan.schedule],
    }
