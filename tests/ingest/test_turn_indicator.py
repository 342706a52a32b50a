"""The number of assistant messages as a turn: where it fits, where not, and after what."""

import numpy as np
import pytest
from oracles.tries import plant

from agentctl.ingest.turn_indicator import FEW_SHOT_SESSIONS, compare_turns
from agentctl.schema import ORIGINS


def compare(*rows, lists=None):
    """rows: (line, turn, assistant messages, origin, parent row, attempt); later ones have defaults."""
    full = [(*row, *(None, None, None, "new", -1, 0)[len(row) :]) for row in rows]
    line, turn, assistants, origin, parent, attempt = (list(part) for part in zip(*full, strict=True))
    tree = plant(lists) if lists else None
    return compare_turns(
        np.array(line), np.array(turn, np.int32), np.array(attempt, np.int16),
        np.array([ORIGINS.index(name) for name in origin], np.int8), np.array(parent), np.array(assistants),
        np.full(len(rows), -1) if tree is None else tree.tip.astype(np.int64),
        None if tree is None else tree.parent,
    )  # fmt: skip


def test_a_history_that_grows_by_one_answer_a_turn_agrees():
    assert compare((0, 0, 0), (1, 0, 0), (0, 1, 1, "new", 0), (0, 1, 1, "new", 0, 1)) == {
        "rows": 4, "equal_turn": 1.0, "first_turn_agreement": 1.0, "differ": {},
    }  # fmt: skip


def test_prompts_that_were_not_counted_are_left_out():
    assert compare((0, 0, -1), (0, 1, -1)) is None
    assert compare((0, 0, 0), (0, 1, -1))["rows"] == 1


def test_a_resumed_session_differs_to_its_end_and_looks_like_no_first_turn():
    found = compare((0, 0, 5, "resumed"), (0, 1, 6, "new", 0), (1, 0, 0))
    assert found["differ"] == {"resumed": 2}
    assert found["equal_turn"] == pytest.approx(1 / 3)
    assert found["first_turn_agreement"] == pytest.approx(2 / 3)


def test_a_compacted_history_starts_to_count_anew():
    found = compare((0, 0, 0), (0, 1, 1, "new", 0), (0, 2, 0, "compacted", 1), (0, 3, 1, "new", 2))
    assert found["differ"] == {"compacted": 2}
    assert found["first_turn_agreement"] == 0.75


def test_a_branch_and_what_follows_it_differ():
    found = compare((0, 0, 0), (0, 1, 1, "new", 0), (0, 2, 1, "new", 0), (0, 3, 2, "new", 2))
    assert found["differ"] == {"branch": 2}
    retried = compare((0, 0, 0), (0, 1, 1, "new", 0), (0, 1, 9, "new", 0, 1))
    assert retried["differ"] == {"other": 1}


def test_first_prompts_that_share_all_but_the_last_message_hold_examples():
    n = FEW_SHOT_SESSIONS
    lists = [[0, 1, 2, 3, 10 + k] for k in range(n)]  # group, system prompt, question, answer, task
    rows = [(k, 0, 1, "resumed") for k in range(n)]
    assert compare(*rows, lists=lists)["differ"] == {"few_shot": n}
    assert compare(*rows[1:], lists=lists[1:])["differ"] == {"resumed": n - 1}
