"""The fast paper mode equals the judge's, and what holds whatever the conversations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.reference_conserve import Coefficients, Conversation
from oracles.reference_conserve import Run as Judged

from agentctl.conserve import run as paper
from agentctl.conserve.conversations import draw, published
from agentctl.conserve.costs import A40
from agentctl.conserve.state import Sessions
from agentctl.errors import InputError

POLICIES = {"conserve": paper.CONSERVE, "collocated": paper.COLLOCATED, "disaggregated": paper.DISAGGREGATED}
KV = {"oracle": paper.ORACLE, "per_turn": paper.PER_TURN, "quantile": paper.QUANTILE}


@st.composite
def talks(draw) -> list[Conversation]:
    n_turns = draw(st.integers(1, 4))
    made = []
    span, longest = draw(st.sampled_from([1, 4, 20])), draw(st.sampled_from([2, 30]))
    for _ in range(draw(st.integers(1, 12))):
        at = draw(st.floats(0, span)) if draw(st.booleans()) else draw(st.sampled_from([0.0, 1.0, 2.0]))
        fresh = [draw(st.integers(1, 1500)), *(draw(st.integers(1, 90)) for _ in range(n_turns - 1))]
        output = [draw(st.integers(1, longest)) for _ in range(n_turns)]
        wrong = draw(st.sets(st.integers(1, n_turns - 1))) if n_turns > 1 else set()
        made.append(Conversation(at, fresh, output, wrong))
    return sorted(made, key=lambda talk: talk.at)


def arrays(conversations: list[Conversation]) -> Sessions:
    n_turns = len(conversations[0].fresh)
    return Sessions(
        np.array([talk.at for talk in conversations]),
        np.array([talk.fresh for talk in conversations]),
        np.array([talk.output for talk in conversations]),
        np.array([[k in talk.wrong for k in range(n_turns)] for talk in conversations]),
    )


def same(results, state) -> None:
    turns = [[turn for turn in result.turns] for result in results]
    assert (
        np.concatenate([t.token_times for all_of in turns for t in all_of]).tolist() == state.token_s.tolist()
    )
    assert [[turn.sent for turn in all_of] for all_of in turns] == state.sent.tolist()
    for name, key in (("before", "before_s"), ("asked", "came"), ("moves", "moves"), ("moved", "moved"),
                      ("engine", "engine")):  # fmt: skip
        assert [getattr(result, name) for result in results] == getattr(state, key).tolist(), name


@settings(max_examples=120, deadline=None)
@given(
    talks(), st.sampled_from(list(POLICIES)), st.sampled_from(list(KV)), st.integers(1, 3),
    st.sampled_from([40, 500, 2944]), st.floats(1.0, 3.0), st.sampled_from([0, 25_000]), st.floats(0.1, 1.0),
)  # fmt: skip
def test_it_equals_the_judge(conversations, policy, kv, engines, batch_tokens, room, history, quantile):
    whole = max(sum(talk.fresh) + sum(talk.output) for talk in conversations)
    budget = math.ceil(room * whole)
    coefficients = Coefficients(h0=0.05, b_decode=1e-3)
    judged = Judged(
        conversations, policy, engines, kv, quantile, budget, coefficients, batch_tokens, None, history
    )
    machine = A40._replace(
        h0=0.05, b_decode=1e-3, batch_tokens=batch_tokens, kv_tokens=budget, prefill_kv_tokens=budget
    )
    rules = paper.Rules(POLICIES[policy], KV[kv], quantile, history)
    state = paper.run(arrays(conversations), rules, engines, machine)
    same(judged.run(), state)
    assert [engine.prefill_s for engine in judged.engines] == state.compute_s.tolist()
    assert [engine.read_s for engine in judged.engines] == state.read_s.tolist()


@settings(max_examples=50, deadline=None)
@given(talks(), st.sampled_from(list(KV)), st.integers(1, 3))
def test_all_room_is_given_back_and_kv_moves_once(conversations, kv, engines):
    sessions = arrays(conversations)
    n_turns = sessions.fresh.shape[1]
    state = paper.run(sessions, paper.Rules(paper.CONSERVE, KV[kv]), engines)
    assert not state.used.any() and not state.in_line.any()
    assert state.moves.tolist() == [1] * len(conversations)
    assert state.moved.tolist() == sessions.fresh[:, 0].tolist()
    state = paper.run(sessions, paper.Rules(paper.DISAGGREGATED), engines)
    assert not state.used.any() and not state.prefill_used.any()
    assert state.moves.tolist() == [n_turns] * len(conversations)
    assert not paper.run(sessions, paper.Rules(paper.COLLOCATED), engines).moves.any()


def test_a_session_that_no_engine_holds_is_an_error():
    sessions = arrays([Conversation(0.0, [400_000], [1])])
    with pytest.raises(InputError, match="1 sessions need more KV"):
        paper.run(sessions, paper.Rules(), 3)


@pytest.mark.parametrize("kv", list(KV))
def test_it_equals_the_judge_where_room_is_short_for_the_papers_conversations(kv):
    sessions = draw(published(), 2.0, 1, 0.2)
    sessions = Sessions(*(values[:60] for values in sessions))
    talks = [
        Conversation(float(at), fresh.tolist(), output.tolist(), {int(k) for k in np.flatnonzero(wrong)})
        for at, fresh, output, wrong in zip(*sessions, strict=True)
    ]
    room = 120_000  # seven of them
    machine = A40._replace(kv_tokens=room, prefill_kv_tokens=room)
    state = paper.run(sessions, paper.Rules(kv=KV[kv], quantile=0.75), 3, machine)
    same(Judged(talks, "conserve", 3, kv, 0.75, room).run(), state)
