"""Sub-agents known by ids of their own: one session below each line that nobody started."""

import itertools

import pyarrow as pa
import pytest

from agentctl.ingest.agent_lines import place_agent_lines


def placed(*rows: tuple[str | None, str | None], sessions: list[str | None] | None = None) -> list[tuple]:
    lines, parents = zip(*rows, strict=True)
    columns = {
        "agent_line": pa.array(lines, pa.string()),
        "parent_agent_line": pa.array(parents, pa.string()),
    }
    if sessions:
        columns["session_id"] = pa.array(sessions, pa.string())
    table = place_agent_lines(pa.table(columns))
    return list(zip(table["session_id"].to_pylist(), table["agent_path"].to_pylist(), strict=True))


def test_a_line_that_nobody_started_is_a_session_and_its_main_line():
    assert placed(("a", None), ("b", None), ("a", None)) == [("a", None), ("b", None), ("a", None)]


def test_what_a_line_starts_is_in_its_session_at_any_depth():
    assert placed(("main", None), ("child", "main"), ("grandchild", "child")) == [
        ("main", None), ("main", "child"), ("main", "child/grandchild"),
    ]  # fmt: skip


def test_a_parent_that_is_named_once_counts_for_all_rows_of_its_line_in_any_order():
    rows = [("main", None), ("child", None), ("child", "main"), ("grandchild", "child")]
    want = dict(zip(rows, placed(*rows), strict=True))
    assert want["child", None] == ("main", "child")
    for order in itertools.permutations(rows):
        assert dict(zip(order, placed(*order), strict=True)) == want


def test_a_parent_without_rows_of_its_own_still_names_the_session():
    assert placed(("child", "gone"), ("other", "gone")) == [("gone", "child"), ("gone", "other")]


def test_of_two_parents_the_first_by_name_counts_whatever_comes_first():
    rows = [("x", "b"), ("x", "a")]
    assert placed(*rows) == placed(*reversed(rows)) == [("a", "x"), ("a", "x")]


def test_lines_in_a_circle_have_no_parents():
    assert placed(("a", "b"), ("b", "a")) == [("a", None), ("b", None)]
    assert placed(("a", "a")) == [("a", None)]


@pytest.mark.parametrize("other", [None, "a"])
def test_a_session_of_the_log_holds_its_lines_and_the_only_one_without_parent_is_the_main_one(other):
    rows = [("a", None), ("b", "a"), ("c", other)]
    found = placed(*rows, sessions=["run", "run", "run"])
    assert [session for session, _ in found] == ["run"] * 3
    assert [path for _, path in found] == ([None, "b", "c"] if other else ["a", "a/b", "c"])


def test_the_same_name_in_two_sessions_is_two_lines():
    found = placed(("planner", None), ("worker", "planner"), ("worker", None), sessions=["1", "1", "2"])
    assert found == [("1", None), ("1", "worker"), ("2", None)]


def test_rows_without_a_line_keep_what_they_have():
    table = pa.table(
        {
            "session_id": ["s", None, None],
            "agent_path": ["x", None, None],
            "agent_line": pa.array([None, None, "a"], pa.string()),
        }
    )
    table = place_agent_lines(table)
    assert table["session_id"].to_pylist() == ["s", None, "a"]
    assert table["agent_path"].to_pylist() == ["x", None, None]
    plain = pa.table({"session_id": ["s"]})
    assert place_agent_lines(plain) is plain
