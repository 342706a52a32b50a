"""Do the prompts of a session grow? A turn's prompt holds everything before it; some logs count what is new.

Read as whole prompts, counts of new tokens make every later turn look short and its reuse look impossible
(microsoft/vidur #73). Nothing in such a file says so, but its counts do: whole prompts shrink where a history
was compacted or a side question asked (in 0.9 % of the turns of the public Weka traces), new tokens in about
half of the turns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agentctl.ingest.parents import in_order_of

MIN_TURNS = 10
MAX_SHRINKING = 0.25  # of the turns


def shrinking_prompts(
    line: NDArray[np.int32], turn: NDArray[np.int32], prompt: NDArray[np.int64]
) -> list[str]:
    """A warning where too many turns have a shorter prompt than the one before.

    line    number of the (session, agent) line of each row; rows are in order of arrival
    turn    in its line; attempts of one turn are one turn
    prompt  tokens, -1 unknown
    """
    order = in_order_of(line)
    order = order[prompt[order] > 0]
    before, after = order[:-1], order[1:]
    is_turn = (line[before] == line[after]) & (turn[before] != turn[after])
    n = int(np.count_nonzero(is_turn))
    n_shorter = int(np.count_nonzero(is_turn & (prompt[after] < prompt[before])))
    if n < MIN_TURNS or n_shorter <= MAX_SHRINKING * n:
        return []
    return [
        f"{n_shorter:,} of {n:,} later turns have a shorter prompt than the turn before: if the log counts "
        "only the new tokens of a turn, its prompts are not what agentctl takes them for, the whole context"
    ]
