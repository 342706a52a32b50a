"""Runs of blocks against the judge's blocks one by one, operation by operation."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.kernels import from_python
from oracles.random_clusters import cluster_of, workload_of
from oracles.reference_simulator import Limits, Request
from oracles.reference_simulator import Pool as JudgePool

from agentctl.sim import cache, news
from agentctl.sim.content import Content
from agentctl.sim.make_state import make_limits, make_state
from agentctl.sim.state import CLOCK, FREE_HOLD, N_HOLDS, NO_NEWS, NONE, State

announce, cache_blocks, count_idle, release, take, use = map(
    from_python,
    (news.announce, cache.cache_blocks, cache.count_idle, cache.release, cache.take, cache.use),
)

E = 0  # the only engine
N_SEQUENCES = 6  # at a time

Block = tuple[int, int]  # line, place in it
Path = list[tuple[int, int]]  # (line, how many of its first blocks) from the root


def empty_pool(n_blocks: int, n_lines: int) -> State:
    limits = make_limits(cluster_of([Limits(kv_blocks=n_blocks + 1, max_num_seqs=N_SEQUENCES)]))
    nothing = np.zeros(0, np.int32)
    content = Content(np.zeros(2, np.int64), nothing, nothing, n_lines)
    return make_state(limits, content, workload_of([Request(1, 1)], None).requests)


@dataclass(eq=False)
class Sequence:
    """Blocks that are used by one request: along its path, then some without content."""

    path: Path
    blocks: list[int] = field(default_factory=list)  # the judge's
    n_named: int = 0
    top: int = NONE


class Both:
    """The kernels and the judge, which must agree on every look-up and after every operation."""

    def __init__(self, n_blocks: int, n_lines: int):
        self.s, self.judge, self.n_lines = empty_pool(n_blocks, n_lines), JudgePool(n_blocks), n_lines
        self.announced: dict[Block, int] = {}
        self.sequences: list[Sequence] = []

    def begin(self, path: Path, most: int) -> None:
        """A new sequence uses what is there of its path, at most `most` blocks of it."""
        names = names_of(path)[:most]
        hit = self.judge.lookup(names)
        idle, left, sequence = 0, len(names), Sequence(path, hit, len(hit))
        for line, length in path:
            part = min(int(self.s.lines[line, E].held), length, left)
            idle += count_idle(self.s, E, line, part)
            sequence.top = use(self.s, E, line, part, sequence.top)
            left -= part
            if part < length:
                break
        assert len(names) - left == len(hit)
        assert idle == self.judge.needed(hit, 0)
        self.judge.touch(hit)
        self.sequences.append(sequence)

    def grow(self, sequence: Sequence, n_new: int, n_full: int) -> None:
        """Take `n_new` free blocks, then give content to `n_full` of those without."""
        sequence.blocks += [self.judge.take() for _ in range(n_new)]
        take(self.s, E, n_new)
        for j in range(sequence.n_named, sequence.n_named + n_full):
            self.judge.cache(sequence.blocks[j], names_of(sequence.path)[j])
        done, start = sequence.n_named, 0
        sequence.n_named += n_full
        for line, length in sequence.path:
            low, high = max(done - start, 0), min(sequence.n_named - start, length)
            if low < high:
                sequence.top = cache_blocks(self.s, E, line, low, high, sequence.top)
            start += length

    def end(self, sequence: Sequence) -> None:
        self.sequences.remove(sequence)
        self.judge.release(sequence.blocks)
        release(self.s, E, sequence.top, len(sequence.blocks) - sequence.n_named)

    def announce(self) -> None:
        for name, copies in self.judge.events:
            self.announced[name] = self.announced.get(name, 0) + copies
        self.judge.events = []
        announce(self.s, E, 0.0)

    def check(self) -> None:
        engine, lines = self.s.engines[E], self.s.lines[:, E]
        judge, place = self.judge, {block: i for i, block in enumerate(self.judge.free)}
        assert queue(self.s) == [judge.name[block] for block in judge.free]
        assert engine.n_free == len(judge.free)
        judged = {
            name: [(judge.users[block], place.get(block)) for block in found]
            for name, found in judge.found.items()
        }
        assert copies(self.s) == judged
        for line in range(self.n_lines):
            assert lines[line].held == beginning(line, judge.found)
            assert self.s.known[line, E] == beginning(line, {n for n, c in self.announced.items() if c > 0})
        assert self.s.counts[N_HOLDS] == len(self.holds_in_use()) + len(self.free_holds())

    def holds_in_use(self) -> set[int]:
        return {entry for sequence in self.sequences for entry in chain(self.s.holds.below, sequence.top)}

    def free_holds(self) -> set[int]:
        return set(chain(self.s.holds.below, self.s.counts[FREE_HOLD]))


def names_of(path: Path) -> list[Block]:
    return [(line, i) for line, length in path for i in range(length)]


def chain(follow, first: int) -> list[int]:
    entries, at = [], int(first)
    while at != NONE:
        entries.append(at)
        at = int(follow[at])
    return entries


def queue(s: State) -> list[Block | None]:
    """Content of the free blocks, the one to be taken next in front; the queue reads the same backwards."""
    engine, runs = s.engines[E], s.runs[E]
    order = chain(runs.next, engine.oldest)
    assert order == chain(runs.previous, engine.newest)[::-1]
    free: list[Block | None] = []
    for x in order:
        assert runs[x].users == 0 and runs[x].low < runs[x].high
        at = range(int(runs[x].high) - 1, int(runs[x].low) - 1, -1)
        free += [None if runs[x].line == NONE else (int(runs[x].line), i) for i in at]
    return free


def copies(s: State) -> dict[Block, list[tuple[int, int | None]]]:
    """(users, place in the queue) of every copy of a block, the one cached first in front."""
    runs = s.runs[E]
    place, n = {}, 0
    for x in chain(runs.next, s.engines[E].oldest):
        for i in range(int(runs[x].high) - 1, int(runs[x].low) - 1, -1):
            place[x, i] = n
            n += 1
    found: dict[Block, list[tuple[int, int, int | None]]] = {}
    for line in range(s.lines.shape[0]):
        for x in chain(runs.sibling, s.lines[line, E].first_run):
            assert runs[x].line == line and runs[x].born <= s.counts[CLOCK]
            for i in range(int(runs[x].low), int(runs[x].high)):
                copy = (int(runs[x].born), int(runs[x].users), place.get((x, i)))
                found.setdefault((line, i), []).append(copy)
    for block, born in found.items():
        assert len({when for when, _, _ in born}) == len(born), f"two copies of {block} from the same instant"
    return {block: [copy[1:] for copy in sorted(born)] for block, born in found.items()}


def beginning(line: int, there) -> int:
    n = 0
    while (line, n) in there:
        n += 1
    return n


def tree(rng: Random) -> list[Path]:
    """For every line, the path to its last block."""
    paths: list[Path] = []
    for line in range(rng.choice([1, 2, 4])):
        above: Path = []
        if paths and rng.random() < 0.7:
            *before, (parent, length) = rng.choice(paths)
            above = [*before, (parent, rng.randint(1, length))]
        paths.append([*above, (line, rng.randint(1, 6))])
    return paths


def step(both: Both, paths: list[Path], rng: Random) -> None:
    do = rng.choice(["begin", "begin", "grow", "grow", "grow", "end", "end", "announce"])
    if do == "begin" and len(both.sequences) < N_SEQUENCES:
        path = rng.choice(paths)
        whole = len(names_of(path))  # 0: it will cache copies of what is there
        both.begin(path, rng.choice([0, whole, rng.randint(0, whole)]))
    elif do == "grow" and both.sequences:
        sequence = rng.choice(both.sequences)
        n_new = rng.randint(0, min(len(both.judge.free), 6))
        nameless = len(sequence.blocks) + n_new - sequence.n_named
        most = min(nameless, len(names_of(sequence.path)) - sequence.n_named)
        both.grow(sequence, n_new, rng.choice([most, rng.randint(0, most)]))
    elif do == "end" and both.sequences:
        both.end(rng.choice(both.sequences))
    elif do == "announce":
        both.announce()
    both.check()


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32), st.integers(1, 100), st.sampled_from([6, 10, 16, 24]))
def test_blocks_are_found_used_and_lost_as_the_judges_after_any_history(seed, n_steps, n_blocks):
    """Histories are drawn by a generator of their own: hypothesis prefers those in which little happens."""
    rng = Random(seed)
    paths = tree(rng)
    both = Both(n_blocks, len(paths))
    for _ in range(n_steps):
        step(both, paths, rng)
    for sequence in list(both.sequences):
        both.end(sequence)
        both.check()
    both.announce()
    both.check()
    assert both.s.engines[E].n_free == len(both.judge.free) == both.judge.usable


@pytest.fixture
def both():
    return Both(8, 2)


def begun(both: Both, path: Path, most: int = 99, n_new: int = 0, n_full: int = 0) -> Sequence:
    both.begin(path, most)
    both.grow(both.sequences[-1], n_new, n_full)
    return both.sequences[-1]


def test_a_sequence_loses_its_end_first_and_its_beginning_can_still_be_found(both):
    both.end(begun(both, [(0, 4)], n_new=4, n_full=4))
    begun(both, [(1, 4)], n_new=6)  # 4 empty blocks are older
    assert queue(both.s) == [(0, 1), (0, 0)]
    assert both.s.lines[0, E].held == 2
    both.check()


def test_a_copy_is_used_only_when_the_block_cached_first_is_gone(both):
    first = begun(both, [(0, 2)], n_new=2)
    second = begun(both, [(0, 2)], n_new=2, n_full=2)
    both.grow(first, 0, 2)
    assert copies(both.s)[0, 0] == [(1, None), (1, None)]
    third = begun(both, [(0, 2)])
    assert copies(both.s)[0, 0] == [(2, None), (1, None)]  # that of `second` came first
    both.end(third)
    both.end(second)
    begun(both, [(1, 1)], n_new=6)  # all that is free
    begun(both, [(0, 2)])
    assert copies(both.s)[0, 0] == [(2, None)]
    both.check()


def test_who_shares_a_beginning_cuts_the_run_and_the_parts_are_freed_in_order(both):
    whole = begun(both, [(0, 4)], n_new=4, n_full=4)
    part = begun(both, [(0, 4)], most=2)
    both.end(whole)
    assert queue(both.s)[-2:] == [(0, 3), (0, 2)]
    assert copies(both.s)[0, 1] == [(1, None)]
    both.end(part)
    assert queue(both.s)[-4:] == [(0, 3), (0, 2), (0, 1), (0, 0)]
    both.check()


def test_both_parts_of_a_run_are_as_old_as_it_was():
    both = Both(16, 1)
    old, new = begun(both, [(0, 4)], n_new=4), begun(both, [(0, 4)], n_new=4)
    both.grow(old, 0, 4)
    both.grow(new, 0, 4)
    begun(both, [(0, 4)], most=2)
    begun(both, [(0, 4)])
    assert [copies(both.s)[0, i] for i in (1, 2)] == [[(3, None), (1, None)], [(2, None), (1, None)]]
    both.check()


def test_a_copy_from_the_middle_on_is_passed_to_where_the_older_one_begins():
    """`old` has lost its end and caches it anew after `new` did: blocks 0 and 1 are found in `old`, 2 and 3
    in `new`."""
    both = Both(16, 1)
    old, new = begun(both, [(0, 4)], n_new=4, n_full=2), begun(both, [(0, 4)], most=0, n_new=4, n_full=4)
    both.grow(old, 0, 2)
    begun(both, [(0, 4)])
    assert copies(both.s)[0, 1] == [(2, None), (1, None)]
    assert copies(both.s)[0, 2] == [(2, None), (1, None)]
    assert sorted(s.top == NONE for s in (old, new)) == [False, False]
    both.check()


def test_the_router_hears_of_blocks_only_when_they_are_announced(both):
    line = both.s.lines[0, E]
    both.end(begun(both, [(0, 3)], n_new=3, n_full=3))
    assert (line.held, both.s.known[0, E]) == (3, 0)
    both.announce()
    assert (line.held, both.s.known[0, E], line.news) == (3, 3, NO_NEWS)
    begun(both, [(1, 1)], n_new=7)
    assert (line.held, both.s.known[0, E]) == (1, 3)
    both.announce()
    assert both.s.known[0, E] == 1


def test_a_long_history_does_not_outgrow_the_slots_or_the_holds(both):
    for i in range(300):
        a = begun(both, [(i % 2, 4)], most=i % 5, n_new=1)
        b = begun(both, [(i % 2, 4)], n_new=2)
        both.grow(a, 0, len(a.blocks) - a.n_named if len(a.blocks) <= 4 else 0)
        both.end(a)
        both.end(b)
    both.check()
    assert both.s.engines[E].n_free == 8
    assert both.s.counts[N_HOLDS] <= 8
