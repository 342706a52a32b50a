"""The books of a simulated cluster: whatever must be true of its state between two kernels.

Plain loops over plain lists; nothing is taken from the kernels but the meaning of the fields
(agentctl.sim.state). A block is (run, place in the line).
"""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

from agentctl.sim.state import FREE_HOLD, N_HOLDS, NO_NEWS, NONE, State


def check(s: State) -> None:
    """Raises AssertionError when anything is lost, counted twice or out of order."""
    jobs, path = columns(s.jobs), columns(s.path)
    holds = columns(s.holds[: s.counts[N_HOLDS]])
    held_by_requests: list[int] = []
    for e in range(s.engines.size):
        check_engine(Engine(s, e, jobs, holds, path))
        on_engine = [*s.running[e, : s.engines[e].n_running], *chain(jobs.next_waiting, first_waiting(s, e))]
        held_by_requests += [entry for r in on_engine for entry in chain(holds.below, jobs.top[r])]
    free = chain(holds.below, int(s.counts[FREE_HOLD]))
    assert sorted(held_by_requests + free) == list(range(len(holds.below))), "every hold is in one place"


def first_waiting(s: State, e: int) -> int:
    return int(s.engines[e].first_waiting)


def columns(records) -> SimpleNamespace:
    """One list per field: much quicker to read than records."""
    return SimpleNamespace(**{name: records[name].tolist() for name in records.dtype.names})


def row(record) -> SimpleNamespace:
    return SimpleNamespace(**{name: record[name].item() for name in record.dtype.names})


class Engine:
    """One engine's part of the state, as lists."""

    def __init__(
        self, s: State, e: int, jobs: SimpleNamespace, holds: SimpleNamespace, path: SimpleNamespace
    ):
        self.engine, self.limits, self.routes = row(s.engines[e]), row(s.limits[e]), columns(s.routes[:, e])
        self.runs, self.lines = columns(s.runs[e]), columns(s.lines[:, e])
        self.jobs, self.holds, self.path = jobs, holds, path
        self.is_busy = s.ends_at[e] < float("inf")
        self.known = s.known[:, e].tolist()  # when all news has arrived that is under way
        for i in range(s.router[0].n_late):
            late = s.late[(s.router[0].first_late + i) % s.late.size]
            if late.engine == e:
                self.known[late.line] = int(late.held)
        self.running = s.running[e, : self.engine.n_running].tolist()
        self.planned = s.planned[e, : self.engine.n_running].tolist()
        self.waiting = chain(jobs.next_waiting, self.engine.first_waiting)


def chain(follow: list[int], first: int) -> list[int]:
    """Indices from `first` on, each followed by its entry of `follow`; a loop is an error."""
    found, at = [], first
    while at != NONE:
        found.append(at)
        assert at >= 0 and len(found) <= len(follow), "a chain leaves its array or bites its tail"
        at = follow[at]
    return found


def check_engine(of: Engine) -> None:
    assert len({*of.running, *of.waiting}) == len(of.running) + len(of.waiting), "a request is in one place"
    check_queue(of)
    check_counters(of)
    check_batch(of)
    check_blocks(of)
    check_lines(of)


def check_queue(of: Engine) -> None:
    engine, jobs, waiting = of.engine, of.jobs, of.waiting
    assert engine.n_waiting == engine.waiting_requests == len(waiting)
    assert engine.last_waiting == (waiting[-1] if waiting else NONE)
    for r in waiting:
        assert jobs.n_blocks[r] == jobs.n_named[r] == jobs.computed[r] == 0 and jobs.top[r] == NONE
    if of.limits.by_priority:
        ranks = [(jobs.priority[r], jobs.arrival[r], r) for r in waiting]
        assert ranks == sorted(ranks)


def check_counters(of: Engine) -> None:
    """The router's numbers are sums over the requests that are there."""
    engine, jobs, here = of.engine, of.jobs, of.running + of.waiting
    length = {r: jobs.prompt[r] + jobs.emitted[r] for r in here}
    assert engine.running_requests == engine.n_running == len(of.running) <= of.limits.max_num_seqs
    assert engine.pending_prefill_tokens == sum(jobs.owed[r] for r in here)
    assert engine.pending_prefill_pairs == sum(jobs.owed[r] * (length[r] - jobs.owed[r] / 2) for r in here)
    in_run = engine.run_ended * len(of.running) if engine.run_steps else 0
    assert engine.context_tokens == sum(length.values()) + in_run
    for g, (inflight, tokens) in enumerate(
        zip(of.routes.inflight_requests, of.routes.inflight_prefill_tokens, strict=True)
    ):
        mine = [r for r in here if jobs.gateway[r] == g]
        assert inflight == len(mine)
        assert tokens == sum(jobs.prompt[r] - jobs.dispatch_hit[r] for r in mine if jobs.emitted[r] == 0)
    for r in of.running:
        left = length[r] - jobs.computed[r]
        assert left > 0
        assert jobs.owed[r] == (0 if jobs.emitted[r] and left == 1 else left)


def check_batch(of: Engine) -> None:
    engine, jobs, size = of.engine, of.jobs, of.limits.block_tokens
    if engine.run_steps:
        assert 0 <= engine.run_ended <= engine.run_begun <= min(engine.run_ended + 1, engine.run_steps)
        for r in of.running:
            assert jobs.computed[r] + engine.run_begun <= jobs.n_blocks[r] * size
            assert jobs.emitted[r] + engine.run_steps <= jobs.output[r]
    elif of.is_busy:
        assert 0 < sum(of.planned) <= of.limits.max_num_batched_tokens
        for r, tokens in zip(of.running, of.planned, strict=True):
            assert 0 <= tokens <= jobs.prompt[r] + jobs.emitted[r] - jobs.computed[r]
            assert tokens == 0 or jobs.computed[r] + tokens <= jobs.n_blocks[r] * size


def check_blocks(of: Engine) -> None:
    """used + free = all; runs are in use or in the queue, and hold a block at least."""
    engine, runs, jobs = of.engine, of.runs, of.jobs
    free = chain(runs.next, engine.oldest)
    assert free == chain(runs.previous, engine.newest)[::-1]
    with_content = [x for first in of.lines.first_run for x in chain(runs.sibling, first)]
    without = [x for x in free if runs.line[x] == NONE]
    slots = chain(runs.next, engine.first_slot)
    assert sorted(slots + with_content + without) == list(range(len(runs.line))), "every slot is in one place"
    size = {x: runs.high[x] - runs.low[x] for x in with_content + without}
    assert all(n > 0 for n in size.values())
    assert sorted(free) == sorted(x for x in size if runs.users[x] == 0)
    assert engine.n_free == sum(size[x] for x in free)
    nameless = sum(jobs.n_blocks[r] - jobs.n_named[r] for r in of.running)
    used = sum(n for x, n in size.items() if runs.users[x] > 0) + nameless
    assert used + engine.n_free == of.limits.usable_blocks
    users = Counter({(x, i): runs.users[x] for x in with_content for i in range(runs.low[x], runs.high[x])})
    assert +users == Counter(block for r in of.running for block in used_blocks(of, r))


def used_blocks(of: Engine, r: int) -> list[tuple[int, int]]:
    """All that r's stack uses: exactly the blocks with content of its path, in order."""
    runs, holds, jobs, path = of.runs, of.holds, of.jobs, of.path
    found = []
    for entry in reversed(chain(holds.below, jobs.top[r])):
        x, high = holds.run[entry], holds.high[entry]
        at = runs.low[x]
        while at < high:
            assert runs.low[x] == at, "parts of a run follow one another"
            found += [(x, i) for i in range(at, min(runs.high[x], high))]
            at, x = runs.high[x], runs.part[x]
        assert at == high
    whole = range(jobs.path_start[r], jobs.path_stop[r])
    content = [(path.line[at], i) for at in whole for i in range(path.length[at])]
    assert [(runs.line[x], i) for x, i in found] == content[: jobs.n_named[r]]
    return found


def check_lines(of: Engine) -> None:
    """An engine holds a beginning of each line, and the router will hear of every change."""
    runs, lines, news, at = of.runs, of.lines, set(), of.engine.first_news
    while at != NONE:
        assert at not in news
        news.add(at)
        at = lines.news[at]
    for line, first in enumerate(lines.first_run):
        here = chain(runs.sibling, first)
        assert all(runs.line[x] == line for x in here)
        copies = [(runs.born[x], i) for x in here for i in range(runs.low[x], runs.high[x])]
        assert len(set(copies)) == len(copies), "copies of a block have an order"
        assert sorted({i for _, i in copies}) == list(range(lines.held[line]))
        assert (line in news) == (lines.news[line] != NO_NEWS)
        assert of.known[line] == lines.held[line] or line in news
