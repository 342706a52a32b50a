"""What a router believes of a request on engines with different models, when it places it.

Accuracy and cost are those of the fleet; the time to the first token is estimated from what engines publish
and from what the gateway has sent since (agentctl.estimators.ttft says what each estimator does, in Python).
Lengths of answers are predicted ones. The rules stand in the place of agentctl.sim.keeping's.
"""

from __future__ import annotations

import math

import numpy as np

from agentctl.estimators.sfs_replay import first_token
from agentctl.estimators.sfs_simulated import see
from agentctl.sim import keeping
from agentctl.sim.fleet_state import ARRIVED, ENDED, LPS, SCORE_PROXY, SFS, THROUGHPUT
from agentctl.sim.handle import lodged
from agentctl.sim.jit import kernel, rule
from agentctl.sim.queue import fits
from agentctl.sim.sight import SEES_TTFT
from agentctl.sim.state import NONE

LONGEST_S = 60.0  # what the paper's code answers where its queue is unstable
WINDOW_S, WEIGHT = 1.0, 0.2  # of moving averages of rates
STEP = 0.05  # by which a margin moves, in log seconds


@rule
def ask(s, r, now):
    """As agentctl.sim.keeping's, and what the gateway of request r believes of every engine."""
    keeping.ask(s, r, now)
    g, asks = np.int64(s.jobs[r].gateway), s.router[0].sees & SEES_TTFT and s.fleet[0].estimator >= 0
    for e in range(s.engines.size):
        offer, belief = s.offers[r, s.limits[e].pool], s.beliefs[g, e]
        belief.accuracy, belief.cost = offer.accuracy, offer.cost
        if asks:
            n_seen, n_late = _picture(s, g, e, now)
            belief.ttft = _ttft(s, g, e, r, now, s.fleet[0].estimator, n_seen, n_late)
            belief.ttft_high = belief.ttft * math.exp(s.means[e].margin)
    return 0


@rule
def note(s, r, now):
    """Request r was sent to its engine, or has ended there; -2 - row: engines publish."""
    if r <= -2:
        _shoot(s, -2 - r, now)
        return 0
    keeping.note(s, r, now)
    job = s.jobs[r]
    g, e = np.int64(job.gateway), np.int64(job.engine)
    if math.isnan(job.finish):
        _sent(s, g, e, r, now)
    else:
        _add(s.pulses[e, ENDED], now)
        _learn(s, e, r)
    return 0


# What happened


@kernel
def _sent(s, g, e, r, now):
    forecast, offer = s.forecasts[r], s.offers[r, s.limits[e].pool]
    forecast.predicted = offer.predicted
    if s.router[0].sees & SEES_TTFT and s.fleet[0].estimator >= 0:
        forecast.ttft = s.beliefs[g, e].ttft
    if s.fleet[0].audits:
        n_seen, n_late = _picture(s, g, e, now)
        for estimator in range(s.audits.shape[1]):
            s.audits[r, estimator] = _ttft(s, g, e, r, now, np.int64(estimator), n_seen, n_late)
    if not fits(s.limits[e], s.jobs[r]):
        return
    _add(s.pulses[e, ARRIVED], now)
    ends = s.sent_ends[g, e]
    if ends[0] == NONE:
        ends[0] = r
    else:
        s.forecasts[ends[1]].next_sent = r
    ends[1] = r


@kernel
def _learn(s, e, r):
    """Quantile tracking (Angelopoulos and others 2023, "Conformal PID Control", arXiv 2307.16895): the margin
    grows by STEP * (1 - share) after a request that came later than it, and else shrinks by STEP * share, so
    that in the long run just that share comes later, whatever the load does."""
    share, job, believed = s.fleet[0].miss_share, s.jobs[r], s.forecasts[r].ttft
    took = job.first_token - job.arrival
    if math.isnan(share) or not 0 < believed < math.inf or took <= 0:
        return
    is_late = math.log(took / believed) > s.means[e].margin
    s.means[e].margin += STEP * (1 - share if is_late else -share)


@kernel
def _roll(pulse, now):
    """Averages over the windows that have ended by `now`; agentctl.estimators.ttft.EventRate."""
    ended = math.floor((now - pulse.begin) / WINDOW_S)
    if ended > 0:
        pulse.per_s += WEIGHT * (pulse.count / WINDOW_S - pulse.per_s)
        pulse.per_s *= (1 - WEIGHT) ** (ended - 1)  # windows without any
        pulse.begin += ended * WINDOW_S
        pulse.count = 0
    return pulse.per_s


@kernel
def _add(pulse, now):
    _roll(pulse, now)
    pulse.count += 1


# What is known of one engine


@kernel
def _shoot(s, row, at):
    """Engines publish who runs and who waits on them."""
    if s.shots.shape[2] == 1 and s.shots.shape[0] == 1:
        return  # nobody looks
    for e in range(s.engines.size):
        n = s.engines[e].n_running + s.engines[e].n_waiting
        if n > s.numbers.size:
            s.fleet[0].lost = n
            return
        see(s, e, at, s.forecasts.predicted, s.shot_heads[row, e], s.shots[row, e], s.numbers)
        for i in range(n):
            _outlive(s, s.shots[row, e, i])
        for g in range(s.routes.shape[0]):
            s.shot_sent[row, g, e] = s.sent_ends[g, e, 1]


@kernel
def _picture(s, g, e, now):
    """Fill `heads`, `seen` and `late_seen` with what the gateway knows of engine e; returns how many of each.
    -1: there are too many."""
    router = s.router[0]
    if router.interval == 0:
        n = s.engines[e].n_running + s.engines[e].n_waiting
        if n > s.seen.size:
            s.fleet[0].lost = n
            return np.int64(-1), np.int64(0)
        see(s, e, now, s.forecasts.predicted, s.heads[0], s.seen, s.numbers)
        for i in range(n):
            _outlive(s, s.seen[i])
        return n, np.int64(0)
    number = min(math.floor((now - router.delay) / router.interval), router.next_publish - 1)
    if number < 0:  # nothing was published yet
        head = s.heads[0]
        head.n_running, head.n_waiting, head.executed, head.batch_started = 0, 0, 0, math.nan
        head.free_blocks, head.taken = s.limits[e].usable_blocks, min(now, 0.0)
        return np.int64(0), _sent_since(s, g, e, np.int64(s.sent_ends[g, e, 0]))
    row = number % (s.published.shape[0] - 1)
    s.heads[0] = s.shot_heads[row, e]
    n = s.heads[0].n_running + s.heads[0].n_waiting
    for i in range(n):
        s.seen[i] = s.shots[row, e, i]
    last = s.shot_sent[row, g, e]
    first = s.sent_ends[g, e, 0] if last == NONE else np.int64(s.forecasts[last].next_sent)
    return n, _sent_since(s, g, e, first)


@kernel
def _sent_since(s, g, e, r):
    """The ledger: what the gateway sent from request r on, without those that have ended."""
    n = np.int64(0)
    while r != NONE:
        job, q = s.jobs[r], s.late_seen[n]
        if math.isnan(job.finish) and n < s.late_seen.size - 1:
            q.prompt, q.output, q.hit = job.prompt, s.forecasts[r].predicted, job.dispatch_hit
            q.emitted = q.computed = q.in_flight = q.own_blocks = 0
            q.priority, q.arrival = job.priority, job.arrival
            n += 1
        r = np.int64(s.forecasts[r].next_sent)
    return n


@kernel
def _outlive(s, q):
    """An answer that is longer than predicted gets what such ones still got; without a table the replay
    doubles the prediction. agentctl.estimators.remaining_length has the same in Python."""
    points, last = s.left_emitted, s.left_emitted.size - 1
    if q.emitted < q.output or last < 0:
        return
    row = max(int(np.searchsorted(s.left_predicted, np.float64(q.output), "right")) - 1, 0)
    k = max(int(np.searchsorted(points, np.float64(q.emitted), "right")) - 1, 0)
    left = s.left_tokens[row, k]
    if k < last:
        share = (q.emitted - points[k]) / (points[k + 1] - points[k])
        left += share * (s.left_tokens[row, k + 1] - left)
    q.output = q.emitted + max(np.int64(left), 1)


# Estimators


@kernel
def _ttft(s, g, e, r, now, estimator, n_seen, n_late):
    """Seconds to the first token of request r if it is sent to engine e now; infinite: never."""
    offer, mean, probe = s.offers[r, s.limits[e].pool], s.means[e], s.late_seen[n_late]
    if not fits(s.limits[e], offer) or n_seen < 0:
        return math.inf
    hit = s.routes[g, e].hit_tokens
    if estimator == SFS:
        probe.prompt, probe.output, probe.hit = offer.prompt, offer.predicted, hit
        probe.emitted = probe.computed = probe.in_flight = probe.own_blocks = 0
        probe.priority, probe.arrival = s.jobs[r].priority, now
        scratch = lodged(s, mean.scratch)
        return first_token(scratch, s.heads[0], s.seen[:n_seen], s.late_seen[: n_late + 1]) - now
    own = (offer.prompt - hit) / mean.prefill_tokens_per_s
    if estimator in (THROUGHPUT, SCORE_PROXY):
        prefill, decode = np.int64(0), np.int64(0)
        for i in range(n_seen + n_late):
            q = s.seen[i] if i < n_seen else s.late_seen[i - n_seen]
            prefill += q.prompt - max(min(q.computed, q.prompt), min(q.hit, q.prompt))
            decode += max(q.output - max(q.emitted, 1), 0)
        seconds = prefill / mean.prefill_tokens_per_s + own
        if estimator == SCORE_PROXY:
            seconds += decode / mean.decode_tokens_per_s
        return seconds + mean.decode_step_s
    rate = _roll(s.pulses[e, ARRIVED], now)
    if estimator == LPS:
        return _wait(s.waits[e], rate) + own
    served, running = _roll(s.pulses[e, ENDED], now), s.heads[0].n_running
    wait = LONGEST_S if rate >= served else min((rate / served) ** running / (served - rate), LONGEST_S)
    return wait + own


@kernel
def _wait(points, rate):
    """Between the points of a curve (rates, waits); beyond the last one as where a queue is unstable."""
    rates, waits = points[0], points[1]
    if not rate < rates[-1]:
        return LONGEST_S
    k = np.searchsorted(rates, rate, "right") - 1
    if k < 0:
        return 0.0
    share = (rate - rates[k]) / (rates[k + 1] - rates[k])
    return min(waits[k] + share * (waits[k + 1] - waits[k]), LONGEST_S)
