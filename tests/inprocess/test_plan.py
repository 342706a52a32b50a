"""The designed batches: what they hold for every coefficient to show, and that an engine takes them."""

import numpy as np
import pytest

from agentctl.estimators.batch_errors import identify
from agentctl.estimators.batch_fit import Coefficients
from agentctl.estimators.batch_terms import HINGE
from agentctl.estimators.steps import composed
from agentctl.inprocess.plan import KV_SHARE, ROUNDS, Room, rounds, scenes, spread

ROOMS = [
    Room(128, 512, 1024, 64, 4096, 9000),
    Room(16, 26000, 8192, 256, 32768, 400_000, (1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64)),
    Room(16, 200, 256, 8, 1024, 1024),
]


def batches(room):
    """Each scene's recorded batches, chunked as an engine with room for one token budget does."""
    found = []
    for scene in scenes(room):
        decodes = [[scene.context + 1, 1, 0]] * scene.n
        done = [0] * len(scene.fresh)
        if not scene.fresh:
            found.append(decodes)
        while sum(done) < sum(scene.fresh):
            left, chunks = room.max_num_batched_tokens - scene.n, []
            for i, tokens in enumerate(scene.fresh):
                n = min(left, tokens - done[i])
                if n:
                    chunks.append([scene.past + done[i], n, 1])
                done[i], left = done[i] + n, left - n
            found.append(decodes + chunks)
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_every_coefficient_can_be_told_from_the_others(room):
    parts = batches(room)
    steps = composed(parts, [1.0] * len(parts), list(range(len(parts))))
    names = (*HINGE, "b_past")
    found = identify(steps, Coefficients(names, np.array([1e-2, 3e-4, 3e-4, 3e-6, 3e-7, 3e-6])))
    assert found.condition < 30
    assert min(found.separable.values()) > 0.01


@pytest.mark.parametrize("room", ROOMS)
def test_no_scene_asks_for_more_than_the_engine_has(room):
    for scene in scenes(room):
        longest = max(scene.context, scene.past + max(scene.fresh, default=0))
        tokens = scene.n * scene.context + scene.past + sum(scene.fresh)
        assert longest <= room.max_context
        assert scene.n + len(scene.fresh) <= room.max_num_seqs
        assert tokens <= KV_SHARE * room.kv_blocks * room.block_tokens


@pytest.mark.parametrize("room", ROOMS)
def test_contexts_are_whole_blocks_and_one_token(room):
    contexts = {scene.context for scene in scenes(room) if scene.n} | {s.past for s in scenes(room) if s.past}
    assert contexts and all(context % room.block_tokens == 1 for context in contexts)


def test_widths_lie_at_captured_sizes_and_between_them():
    room = ROOMS[1]
    widths = {scene.n for scene in scenes(room) if scene.kind == "decode"}
    assert {8, 16, 24} <= widths and any(n not in room.captured for n in widths if n < 64)


def test_all_rounds_hold_the_same_scenes_in_orders_of_their_own():
    first, *others = rounds(ROOMS[0], seed=1)
    assert len(others) == ROUNDS - 1
    assert all(sorted(one) == sorted(first) and one != first for one in others)
    assert rounds(ROOMS[0], seed=1)[0] == first


def test_spread_keeps_the_ends():
    assert spread([1, 2, 3, 4, 5], 3) == [1, 3, 5]
    assert spread([1, 2], 3) == [1, 2]
