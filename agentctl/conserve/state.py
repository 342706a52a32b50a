"""What the simulation keeps: sessions, engines, the room that clients count. Arrays, changed in place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

COMES, ASKS, ASKS_PREFILL, SENDS, IS_SERVED = range(5)  # State.stage


class Sessions(NamedTuple):
    """Tokens [session, turn], sessions in the order in which they come.

    at     s, when sent to the prefill engine; fresh: new in the prompt; wrong: turns, never a first one, that
           are sent to the prefill engine by mistake
    """

    at: F64
    fresh: I64
    output: I64
    wrong: NDArray[np.bool_]


class State(NamedTuple):
    # of sessions
    fresh: I64  # [session, turn]
    output: I64
    wrong: NDArray[np.bool_]
    prompt: I64
    stage: I64
    due: F64  # when it does the next thing, inf: waits for somebody else
    turn: I64
    asked: F64  # when it began to ask for room
    engine: I64
    need: I64  # tokens of room it asks for, 0: not known yet
    held: I64  # tokens of room
    computed: I64  # tokens with KV on its engine
    left: I64  # tokens to compute before its next one is out
    emitted: I64
    chunk: I64  # tokens in the batch that runs
    # results: of sessions
    came: F64  # when it first asked for room
    before_s: F64  # its own prefill and transfer, where other engines did them
    moves: I64
    moved: I64  # tokens
    sent: F64  # [session, turn]
    first_token: I64  # [session, turn], place in token_s
    token_s: F64
    # of engines
    line: I64  # [engine, place], sessions
    in_line: I64
    ends: F64  # of the batch, inf: idle
    compute_s: F64  # results: GPU time that prefill took, and decodes
    read_s: F64
    used: I64  # tokens of room taken
    # of the prefill engine: when it is free, when it would be without wrong turns; tokens of room taken
    prefiller: F64
    prefill_used: I64
    finals: I64  # tokens of sessions that have ended: their number, then each

    @classmethod
    def of(cls, sessions: Sessions, n_engines: int) -> State:
        n, turns = sessions.fresh.shape
        out = np.cumsum(sessions.output, axis=None)
        prompt = np.cumsum(sessions.fresh, axis=1) + np.cumsum(sessions.output, axis=1) - sessions.output

        def zero(*shape: int) -> I64:
            return np.zeros(shape, dtype=np.int64)

        def unknown(*shape: int) -> F64:
            return np.full(shape, np.nan)

        return cls(
            fresh=sessions.fresh, output=sessions.output, wrong=sessions.wrong, prompt=prompt,
            stage=np.full(n, COMES), due=sessions.at.copy(), turn=zero(n), asked=unknown(n),
            engine=np.full(n, -1), need=zero(n), held=zero(n), computed=zero(n), left=zero(n),
            emitted=zero(n), chunk=zero(n), came=unknown(n), before_s=np.zeros(n), moves=zero(n),
            moved=zero(n), sent=unknown(n, turns),
            first_token=(out - sessions.output.ravel()).reshape(n, turns), token_s=unknown(int(out[-1])),
            line=zero(n_engines, n), in_line=zero(n_engines), ends=np.full(n_engines, np.inf),
            compute_s=np.zeros(n_engines), read_s=np.zeros(n_engines), used=zero(n_engines),
            prefiller=np.zeros(2), prefill_used=zero(1), finals=zero(n + 1),
        )  # fmt: skip
