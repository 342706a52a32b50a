"""Loads from KV tiers and stores to them: what is found, what begins, and what ends.

A load pins the units that it reads; a store brings units in, which can be found from its end on. What a
transfer's bandwidth is says agentctl.sim.transfer, what a tier keeps agentctl.sim.tier_store. Everything is
modified in place. Indices: t tier, k store, e engine, r request.
"""

from __future__ import annotations

import math

import numpy as np

from agentctl.sim import transfer
from agentctl.sim.jit import kernel
from agentctl.sim.tier_store import arrive, path_units, put, read, units_here, use


@kernel
def store_of(s, t, e):
    return s.tiers[t].first_store + (e if s.tiers[t].by_engine else 0)


# Looking


@kernel
def search(s, e, r, hit, most):
    """What r can have from tiers beyond its first `hit` tokens, before token `most`: fills `s.found`, from
    the root on. Returns how many entries, and up to which token."""
    left_out = np.int64(0)
    while True:
        n, reach = _walk(s, e, r, hit, most, left_out)
        slow = np.int64(0)
        for t in range(s.tiers.size):
            if s.tiers[t].use_if_faster and _is_not_worth_it(s, e, t, n):
                slow |= 1 << t
        if slow == 0:
            return n, reach
        left_out |= slow


@kernel
def see(s, e, r, hit, most):
    """Tokens of r behind its first `hit`, before token `most`: in tiers of engine e, and of the cluster."""
    host, cluster = np.int64(0), np.int64(0)
    n, _ = _walk(s, e, r, hit, most, np.int64(0))
    for i in range(n):
        if s.tiers[s.found[i].tier].by_engine:
            host += s.found[i].tokens
        else:
            cluster += s.found[i].tokens
    return host, cluster


@kernel
def _walk(s, e, r, at, most, left_out):
    """At each unit the first tier that has it, as far as one does."""
    n, going = np.int64(0), True
    while going:
        going = False
        for t in range(s.tiers.size):
            size = s.tiers[t].unit_tokens
            unit = at // size
            if left_out >> t & 1 or (unit + 1) * size > most:
                continue
            k, blocks = store_of(s, t, e), s.tiers[t].unit_blocks
            units = min(units_here(s, k, r, blocks, unit, True), most // size - unit)
            if units == 0:
                continue
            for other in range(t):
                if not left_out >> other & 1:
                    units = min(units, _units_before(s, e, r, t, other, at, most))
            end = (unit + units) * size
            one = s.found[n]
            one.tier, one.low, one.high, one.start, one.tokens = t, unit, unit + units, at, end - at
            n += 1
            at, going = end, True
            break
    return n, at


@kernel
def _units_before(s, e, r, t, other, at, most):
    """How many units of tier t, the first of them from token `at` on, before `other` has the next one."""
    size, theirs = s.tiers[t].unit_tokens, s.tiers[other].unit_tokens
    unit = at // theirs
    unit += units_here(s, store_of(s, other, e), r, s.tiers[other].unit_blocks, unit, False)
    if (unit + 1) * theirs > most:
        return most
    return (unit * theirs + size - 1) // size - at // size


@kernel
def _is_not_worth_it(s, e, t, n):
    """Whether its part, moved alone at full speed, takes as long as computing it would, or longer."""
    tier, c = s.tiers[t], s.limits[e]
    tokens, units, recompute = np.int64(0), np.int64(0), 0.0
    for i in range(n):
        one = s.found[i]
        if one.tier == t:
            x, start = np.int64(one.tokens), np.int64(one.start)
            tokens += x
            units += one.high - one.low
            pairs = x * start + x * (x + 1) / 2
            recompute += c.b_prefill * x + c.b_attention * pairs - c.b_past * x
    if units == 0:
        return False
    work = tokens * tier.bytes_per_token / tier.read_bytes_per_s
    alone = _latency(tier, units) + work / s.links[store_of(s, t, e)].share
    return alone >= recompute


@kernel
def _latency(tier, units):
    rounds = (units + tier.parallel - 1) // tier.parallel if tier.parallel else 1
    return tier.latency_s * rounds


# Beginning


@kernel
def load(s, e, r, t, n, now):
    """Tier t's part of the n entries of `s.found` begins to move."""
    k, tier = store_of(s, t, e), s.tiers[t]
    tokens, units, n_wanted, first = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for i in range(n):
        one = s.found[i]
        if one.tier == t:
            low, high = np.int64(one.low), np.int64(one.high)
            n_wanted = path_units(s, r, tier.unit_blocks, low, high, n_wanted)
            first = _new_span(s, low, high, first)
            tokens += one.tokens
            units += high - low
    use(s, k, n_wanted)
    read(s, k, n_wanted, 1)
    bytes_moved = tokens * tier.bytes_per_token
    s.stores[k].bytes_loaded += bytes_moved
    move = _new_move(s, k, True, e, r, first, now)
    s.loads[r].n_loads += 1
    s.loads[r].began = now
    transfer.start(s, k, move, e, bytes_moved / tier.read_bytes_per_s, _latency(tier, units), now)
    s.moving[0] = min(s.moving[0], s.links[k].due)


@kernel
def store(s, e, r, t, n, now):
    """The n wanted ranges go to tier t, as far as they are not there."""
    k, tier = store_of(s, t, e), s.tiers[t]
    move = _new_move(s, k, False, e, r, np.int64(0), now)
    new = put(s, k, n, move)
    if new == 0:
        _free_move(s, k, move)
        return
    bytes_moved = new * tier.unit_tokens * tier.bytes_per_token
    s.stores[k].bytes_stored += bytes_moved
    transfer.start(s, k, move, e, bytes_moved / tier.write_bytes_per_s, 0.0, now)
    s.moving[0] = min(s.moving[0], s.links[k].due)


@kernel
def _new_move(s, k, is_load, e, r, first, now):
    store = s.stores[k]
    x = store.free_move
    if x != 0:
        store.free_move = s.moves[k, x].first
    else:
        store.n_moves += 1
        x = store.n_moves
    one = s.moves[k, x]
    one.is_load, one.engine, one.r, one.first, one.began = is_load, e, r, first, now
    return x


@kernel
def _free_move(s, k, x):
    s.moves[k, x].first = s.stores[k].free_move
    s.stores[k].free_move = x


@kernel
def _new_span(s, low, high, after):
    x = s.free_span[1]
    if x != 0:
        s.free_span[1] = s.spans[x].next
    else:
        s.free_span[0] += 1
        x = s.free_span[0]
    s.spans[x].low, s.spans[x].high, s.spans[x].next = low, high, after
    return x


# Ending


@kernel
def next_ended(s, now):
    """Take away a transfer that has ended by now: (its store, its slot), or (0, 0) when there is none.

    Units that a store has brought in can be found now; those that a load has read are free again.
    """
    if s.moving[0] > now:
        return np.int64(0), np.int64(0)
    for k in range(s.stores.size):
        if s.links[k].due <= now:
            x = np.int64(transfer.advance(s, k, now))
            if x > 0:
                if s.moves[k, x].is_load:
                    _end_load(s, k, x)
                else:
                    arrive(s, k, x)
                _free_move(s, k, x)  # its record can be read until the next transfer begins
                return np.int64(k), x
    set_moving(s)
    return np.int64(0), np.int64(0)


@kernel
def set_moving(s):
    """When the next transfer ends, or its latency."""
    s.moving[0] = math.inf
    for k in range(s.links.size):
        s.moving[0] = min(s.moving[0], s.links[k].due)


@kernel
def _end_load(s, k, x):
    one, tier = s.moves[k, x], s.tiers[s.stores[k].tier]
    n, span = np.int64(0), np.int64(one.first)
    while span != 0:
        n = path_units(s, np.int64(one.r), tier.unit_blocks, s.spans[span].low, s.spans[span].high, n)
        after = np.int64(s.spans[span].next)
        s.spans[span].next = s.free_span[1]
        s.free_span[1] = span
        span = after
    read(s, k, n, -1)
