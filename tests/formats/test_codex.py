"""Codex: a call for each growth of the totals, its times from the rows around it, copied history left out."""

import json

import pytest
from oracles.truth import dataset

from agentctl.formats import codex
from agentctl.ingest.build import ingest

ROLLOUT = "coding_agents/codex_rollout.jsonl"
SESSION, CHILD, LATER = (f"019fa149-{k}000-7000-8000-000000000000" for k in (1, 5, 9))
OWN, CHILDS = "019fa149-2000-7000-8000-00000000000a", "019fa149-6000-7000-8000-00000000000b"


class Totals:
    """Rows of a rollout; token_counts add up."""

    def __init__(self, **total: int) -> None:
        self.total = {
            "input_tokens": 0,
            "cached_input_tokens": 0,
            "output_tokens": 0,
            "total_tokens": 0,
        } | total

    def count(self, at: float, prompt: int, cached: int = 0, output: int = 5) -> dict:
        last = {"input_tokens": prompt, "cached_input_tokens": cached, "output_tokens": output}
        last |= {"reasoning_output_tokens": 1, "total_tokens": prompt + output}
        self.total = {key: value + last[key] for key, value in self.total.items()}
        return row(
            at, "event_msg", "token_count", info={"last_token_usage": last, "total_token_usage": self.total}
        )


def row(at: float, kind: str, payload_type: str | None = None, **payload) -> dict:
    stamp = f"2026-03-21T10:{int(at) // 60:02d}:{int(at) % 60:02d}.{round(at % 1 * 1000):03d}Z"
    return {"timestamp": stamp, "type": kind, "payload": {"type": payload_type, "text": "SECRET"} | payload}


def meta(at: float, session: str = SESSION, **payload) -> dict:
    return row(at, "session_meta", id=session, **({"source": "cli", "cwd": "/SECRET"} | payload))


def turn(at: float, turn_id: str | None = OWN) -> dict:
    return row(at, "turn_context", turn_id=turn_id, model="gpt")


def user(at: float) -> dict:
    return row(at, "response_item", "message", role="user")


def item(at: float, kind: str) -> dict:
    return row(at, "response_item", kind)


def seconds(log) -> list[float]:
    return [ns % (3600 * 10**9) / 1e9 for ns in log.column("arrival_ns")]


def test_the_known_answers_of_the_sample(read, data):
    log = read(data / ROLLOUT)
    assert (log.report.format, log.report.time_origin, log.faults) == ("codex", "absolute", [])
    assert (len(log.rows), log.report.n_lines, log.report.n_other_lines) == (9, 72, 63)
    totals = {name: sum(log.column(name)) for name in codex.CARRIES if name.endswith("_tokens")}
    assert totals == {
        "prompt_tokens": 95_819, "cached_tokens": 79_488, "output_tokens": 1_912, "reasoning_tokens": 581,
    }  # fmt: skip
    assert log.report.warnings == []  # every last usage is the growth of the totals
    # 10:05:59.328 the message, 10:06:05.542 the count; three tools, the last done at 06.704
    assert [row["arrival_ns"] - log.rows[0]["arrival_ns"] for row in log.rows[:2]] == [0, 7_376_000_000]
    assert log.rows[0]["e2e_s"] == pytest.approx(6.214)
    assert log.column("n_tool_calls_out") == [3, 1, 1, 2, 0, 2, 0, 1, 0]
    assert set(log.column("model")) == {"gpt-5.4"}


def test_a_whole_ingest_makes_one_session_of_nine_turns(data, tmp_path):
    ingest([data / ROLLOUT], tmp_path / "a.trace")
    rows = dataset(tmp_path / "a.trace")
    assert [row["turn_index"] for row in rows] == list(range(9)) == [row["n_assistant"] for row in rows]
    assert {row["session_id"] for row in rows} == {"01a7c9e4-6d12-7b3a-9f42-8c6d5e1a0b73"}
    assert [row["parent_request_id"] for row in rows] == [None, *(row["request_id"] for row in rows[:-1])]
    assert [row["gap_kind"] for row in rows] == [None, *["tool"] * 4, "user", "tool", "user", "tool"]
    assert rows[5]["gap_s"] == pytest.approx(6.333)
    assert all(row["ttft_s"] is None for row in rows)


def test_a_reader_gives_what_it_says(read):
    totals = Totals()
    log = read(
        [
            meta(1, CHILD, source={"subagent": {"thread_spawn": {"parent_thread_id": SESSION}}}),
            turn(2, CHILDS), user(3), totals.count(5, 100, 64), item(6, "function_call_output"),
            totals.count(9, 200),
        ]
    )  # fmt: skip
    made = {"agent_line": "session_id", "parent_agent_line": "agent_path"}
    assert {made.get(name, name) for name in log.carried} == set(codex.CARRIES)


def test_a_call_lasts_from_its_last_input_to_its_count(read):
    totals = Totals()
    log = read(
        [
            meta(1), turn(2), user(3), item(4, "reasoning"), item(5, "function_call"), totals.count(6, 100),
            item(7, "function_call_output"), item(9, "function_call_output"), item(11, "message"),
            totals.count(12, 200),
        ]
    )  # fmt: skip
    assert seconds(log) == [3.0, 11.0]  # a message without a role is input
    assert log.column("e2e_s") == [3.0, 1.0]
    assert log.column("n_tool_calls_out") == [1, 0]


def test_the_output_of_a_tool_that_ended_before_the_count_is_the_next_calls_input(read):
    totals = Totals()
    log = read(
        [
            meta(1), turn(2), user(3), item(4, "function_call"), item(5, "function_call_output"),
            totals.count(6, 100), item(7, "reasoning"), totals.count(8, 200), totals.count(9, 300),
        ]
    )  # fmt: skip
    # nothing comes between the last two: the third call waited for the second alone
    assert seconds(log) == [3.0, 5.0, 8.0]


def test_counts_without_information_and_counts_repeated_are_no_calls(read):
    totals = Totals()
    first = totals.count(5, 100)
    nothing = row(6, "event_msg", "token_count", info=None)
    log = read([meta(1), turn(2), user(3), first, nothing, first, user(7), totals.count(9, 150)])
    assert log.column("prompt_tokens") == [100, 150]
    assert log.report.dropped == {"repeated_usage": 1}


def test_totals_that_do_not_add_up_are_a_warning(read):
    totals = Totals()
    rows = [meta(1), turn(2), user(3), totals.count(5, 100), user(6)]
    totals.total["input_tokens"] += 7
    log = read([*rows, totals.count(9, 150)])
    assert len(log.rows) == 2
    assert log.report.warnings == ["log: 1 calls do not add to the totals what they say"]


def parent_rows(totals: Totals, at: float | None = None, turn_id: str | None = OWN) -> list[dict]:
    """Two calls of the parent, at their times or (copied) all at one."""
    return [
        meta(at or 1), turn(at or 2, turn_id), user(at or 3), totals.count(at or 5, 100), user(at or 6),
        totals.count(at or 9, 200),
    ]  # fmt: skip


SPAWNED = {"source": {"subagent": {"thread_spawn": {"parent_thread_id": SESSION, "depth": 1}}}}


@pytest.mark.parametrize("copied_at", [30.0, None])
@pytest.mark.parametrize(
    "about", [SPAWNED, {"source": "cli", "parent_thread_id": SESSION, "forked_from_id": SESSION}]
)
def test_the_history_that_a_sub_agent_begins_with_is_its_parents(tmp_path, copied_at, about):
    """ccusage #950: copied token_counts made the usage up to 91 times too high."""
    totals = Totals()
    copied = parent_rows(totals, copied_at)
    child = [meta(30, CHILD, **about), *copied, turn(31, CHILDS), user(32), totals.count(35, 300)]
    for name, rows in (("parent", parent_rows(Totals())), ("child", child)):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in rows))
    report = ingest([tmp_path / "child", tmp_path / "parent"], tmp_path / "a.trace")
    rows = dataset(tmp_path / "a.trace")
    assert report.document["records"]["dropped"] == {"copied_history": 2}
    assert [row["prompt_tokens"] for row in rows] == [100, 200, 300]
    assert {row["session_id"] for row in rows} == {SESSION}
    assert [row["agent_path"] for row in rows] == [None, None, CHILD]
    assert report.document["warnings"] == []


def test_copied_history_without_turn_ids_is_known_by_its_one_time(read):
    totals = Totals()
    copied = parent_rows(totals, 30, turn_id=None)
    child = [
        meta(30, CHILD, **SPAWNED),
        *copied,
        user(32),
        totals.count(35, 300),
        user(36),
        totals.count(38, 400),
    ]
    log = read(child)
    assert log.column("prompt_tokens") == [300, 400]
    assert log.report.dropped == {"copied_history": 2}


def test_a_sub_agent_without_copied_counts_keeps_its_first_call(read):
    totals = Totals()
    log = read([meta(30, CHILD, **SPAWNED), meta(30), turn(31, CHILDS), user(32), totals.count(35, 300)])
    assert log.column("prompt_tokens") == [300]
    assert log.column("agent_line") == [CHILD] and log.column("parent_agent_line") == [SESSION]


def test_files_put_together_are_sessions_of_their_own(read):
    later = [meta(50, LATER), turn(51, LATER), user(52), Totals().count(55, 400)]
    log = read([*parent_rows(Totals()), *later])
    assert log.column("agent_line") == [SESSION, SESSION, LATER]
    assert log.column("request_id") == [f"{SESSION}/0", f"{SESSION}/1", f"{LATER}/0"]
    assert log.column("previous_link") == [None, f"{SESSION}/0", None]
    assert log.report.warnings == []


def test_compaction_takes_the_history_away(read):
    totals = Totals()
    rows = [*parent_rows(totals), row(10, "compacted", message="SECRET"), user(11), totals.count(15, 50)]
    assert read(rows).column("n_assistant") == [0, 1, 0]


def test_a_call_whose_beginning_is_not_in_the_file_is_left_out(read):
    totals = Totals()
    log = read([totals.count(5, 100), user(6), totals.count(9, 200)])
    assert log.column("prompt_tokens") == [200]
    assert log.report.dropped == {"input_not_in_file": 1}
    assert log.column("request_id") == [None] == log.column("agent_line")


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        (row(5, "session_meta", id=5), ("wrong_type", "$.payload.id")),
        (row(5, "event_msg", "token_count", info={"last_token_usage": {"input_tokens": 5}}),
         ("missing_field", "$.payload.info.last_token_usage")),
        (Totals().count(5, 0), ("out_of_range", "$.payload.info.last_token_usage.input_tokens")),
        (user(5) | {"timestamp": "noon"}, ("wrong_type", "$.timestamp")),
        ({"timestamp": "x", "type": "event_msg"}, ("missing_field", None)),
    ],
)  # fmt: skip
def test_a_bad_row_costs_itself_only(read, bad, fault):
    log = read([meta(1), turn(2), user(3), bad, user(6), Totals().count(9, 200)])
    assert log.faults == [(4, *fault)]
    assert log.column("prompt_tokens") == [200]


def test_payloads_that_do_not_matter_may_hold_anything(read):
    odd = row(4, "response_item", "message", id=[1], role="user")
    log = read([meta(1), turn(2), odd, Totals().count(9, 200)])
    assert log.faults == [] and seconds(log) == [4.0]
