"""The block pool against the judge's, operation by operation."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.reference_simulator import Pool as JudgePool

from agentctl.sim.pool import BlockPool

N_BLOCKS, N_NAMES = 6, 5


def state(pool: BlockPool) -> tuple:
    window = pool._log[pool._front : pool._end]
    queue = window[pool._entry[window] == np.arange(pool._front, pool._end)].tolist()
    found = {}
    for name in range(N_NAMES):
        if pool._block[name] >= 0:
            found[name] = [int(pool._block[name]), *pool._copies.get(name, [])]
    return queue, pool._users.tolist(), found, pool.n_free


def judged(pool: JudgePool) -> tuple:
    return pool.free, pool.users, pool.found, len(pool.free)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_pool_equals_the_judges_after_any_history(data):
    pool, judge = BlockPool(N_BLOCKS, N_NAMES), JudgePool(N_BLOCKS)
    judge.users = [0] * N_BLOCKS
    held: list[list[int]] = []  # sequences: their blocks
    for _ in range(data.draw(st.integers(1, 60))):
        do = data.draw(st.sampled_from(["take", "hit", "release"]))
        if do == "take" and judge.free:
            n = data.draw(st.integers(1, len(judge.free)))
            blocks = pool.take(n).tolist()
            assert blocks == [judge.take() for _ in range(n)]
            names = data.draw(st.lists(st.integers(0, N_NAMES - 1), max_size=n))
            for block, name in zip(blocks, names, strict=False):
                judge.cache(block, name)
            if names:
                pool.cache(np.array(blocks[: len(names)]), np.array(names))
            held.append(blocks)
        elif do == "hit":
            names = data.draw(st.permutations(range(N_NAMES)))[: data.draw(st.integers(1, N_NAMES))]
            hit = pool.lookup(np.array(names))
            assert hit.tolist() == judge.lookup(names)
            assert pool.n_idle(hit) == judge.needed(hit.tolist(), 0)
            pool.use(hit)
            judge.touch(hit.tolist())
            held.append(hit.tolist())
        elif do == "release" and held:
            blocks = held.pop(data.draw(st.integers(0, len(held) - 1)))
            pool.release(np.array(blocks, dtype=np.int32))
            judge.release(blocks)
        assert state(pool) == judged(judge)
    pool.announce()
    assert pool._known.tolist() == [len(judge.found.get(name, [])) for name in range(N_NAMES)]


def test_the_router_hears_of_blocks_only_when_they_are_announced():
    pool = BlockPool(3, 2)
    pool.cache(pool.take(1), np.array([0]))
    assert pool.n_known(np.array([0, 1])) == 0
    pool.announce()
    assert pool.n_known(np.array([0, 1])) == 1


def test_a_long_history_does_not_outgrow_the_log():
    pool = BlockPool(4, N_NAMES)
    for _ in range(1000):
        pool.release(pool.take(3))
    assert pool.n_free == 4
    assert sorted(state(pool)[0]) == [0, 1, 2, 3]
