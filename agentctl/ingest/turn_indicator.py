"""SMetric's stateless turn indicator against the turns that were derived.

A router without a session table takes the number of assistant messages in a prompt for its turn, and none of
them for a first turn (SMetric, arXiv 2607.08565, as its port in Huawei's MindIE-Motor counts them). That
goes wrong where a history did not grow by one answer a turn; this tells how often, and after what.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.schema import ORIGINS

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

# What may set the two apart: the words of ORIGINS, and three more.
REASONS = ("resumed", "few_shot", "compacted", "orphan", "branch", "other")
FEW_SHOT_SESSIONS = 3  # that many first prompts equal up to their last message hold examples, not a history


def compare_turns(
    line: I32,
    turn_index: NDArray[np.int32],
    attempt: NDArray[np.int16],
    origin: NDArray[np.int8],
    parent_row: I32,
    n_assistant: I64,
    message: I32,
    message_parent: NDArray[np.uint32] | None,
) -> dict[str, Any] | None:
    """How well the indicator fits, for dataset.json; None where no prompt was counted.

    line         i32[n] agent line of each row; rows in order of arrival
    n_assistant  i64[n], -1 unknown
    message      i32[n] last message in the tree of `message_parent`, -1 unknown

    Gives `rows` (with a count), `equal_turn` and `first_turn_agreement` (shares of them), and `differ`: rows
    whose turn differs, by what happened last in their line before.
    """
    known = n_assistant >= 0
    if not known.any():
        return None
    reason = np.full(line.size, -1, np.int8)
    for name in ("resumed", "compacted", "orphan"):
        reason[origin == ORIGINS.index(name)] = REASONS.index(name)
    reason[(reason < 0) & _continues_again(parent_row, attempt)] = REASONS.index("branch")
    if message_parent is not None:
        resumed = np.flatnonzero((origin == ORIGINS.index("resumed")) & (message >= 0) & (n_assistant > 0))
        examples = message_parent[message[resumed]]
        _, kind, count = np.unique(examples, return_inverse=True, return_counts=True)
        reason[resumed[count[kind] >= FEW_SHOT_SESSIONS]] = REASONS.index("few_shot")
    lasting = _last_of_line(line, reason)
    differs = known & (turn_index != n_assistant)
    causes = lasting[differs]
    counts = np.bincount(np.where(causes < 0, len(REASONS) - 1, causes), minlength=len(REASONS))
    return {
        "rows": int(known.sum()),
        "equal_turn": float((turn_index == n_assistant)[known].mean()),
        "first_turn_agreement": float(((turn_index == 0) == (n_assistant == 0))[known].mean()),
        "differ": {name: int(count) for name, count in zip(REASONS, counts, strict=True) if count},
    }


def _continues_again(parent_row: I32, attempt: NDArray[np.int16]) -> NDArray[np.bool_]:
    """Rows whose parent another row continues already, retries aside."""
    again = np.zeros(parent_row.size, np.bool_)
    rows = np.flatnonzero((parent_row >= 0) & (attempt == 0))
    again[rows] = True
    again[rows[np.unique(parent_row[rows], return_index=True)[1]]] = False
    return again


@njit(cache=True, nogil=True)
def _last_of_line(line, reason):  # type: ignore[no-untyped-def]
    """The latest reason in each row's line up to this row, -1."""
    latest = np.full(line.max() + 1 if line.size else 0, -1, np.int8)
    lasting = np.full(line.size, -1, np.int8)
    for row in range(line.size):
        if reason[row] >= 0:
            latest[line[row]] = reason[row]
        lasting[row] = latest[line[row]]
    return lasting
