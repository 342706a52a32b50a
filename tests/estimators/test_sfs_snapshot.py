"""Snapshots as plain data, and what no engine can be in."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from oracles.random_snapshots import snapshots

from agentctl.errors import InputError
from agentctl.estimators.batch_time import BatchTime
from agentctl.estimators.sfs_snapshot import SeenRequest, Snapshot, parse_engine, parse_snapshot

ENGINE = {
    "name": "e0", "kv_blocks": 101, "block_tokens": 16, "max_num_seqs": 4,
    "batch_time": {"model": "hinge", "b0": 0.01, "b_prefill": 1e-5},
}  # fmt: skip
PLAIN = {
    "schema": "agentctl/snapshot/1",
    "engine": ENGINE,
    "taken_s": 5.0,
    "free_blocks": 80,
    "batch_started_s": 4.99,
    "running": [
        {"request_id": "a", "prompt_tokens": 100, "output_tokens": 20, "emitted_tokens": 3,
         "computed_tokens": 102, "in_flight_tokens": 1, "kv_blocks": 7},
    ],
    "waiting": [{"request_id": "b", "prompt_tokens": 50, "output_tokens": 9, "hit_tokens": 32}],
}  # fmt: skip


def test_a_snapshot_is_read_from_plain_data():
    snapshot = parse_snapshot(PLAIN)
    assert [request.request_id for request in snapshot.requests] == ["a", "b"]
    assert snapshot.running[0].processed_prompt_tokens == 100
    assert snapshot.engine.usable_blocks == 100 and not snapshot.is_idle


def faster(snapshot):
    """The judges' engines are slower than a profile may be."""
    profile = snapshot.engine.profile
    c = profile.batch_time._asdict()
    quick = BatchTime(c.pop("model"), **{name: seconds / 64 for name, seconds in c.items()})
    return replace(snapshot, engine=replace(snapshot.engine, profile=replace(profile, batch_time=quick)))


@settings(max_examples=50)
@given(snapshots())
def test_a_snapshot_survives_being_written_as_json(case):
    snapshot = faster(case[0])
    assert parse_snapshot(json.loads(json.dumps(snapshot.to_plain()))) == replace(
        snapshot, engine=replace(snapshot.engine, profile=parse_snapshot(snapshot.to_plain()).engine.profile)
    )


def test_limits_may_be_given_beside_the_data():
    plain = {key: value for key, value in PLAIN.items() if key != "engine"}
    assert parse_snapshot(plain, parse_engine(ENGINE)) == parse_snapshot(PLAIN)
    with pytest.raises(InputError, match="snapshot engine: missing"):
        parse_snapshot(plain)


def with_running(**changes):
    return {**PLAIN, "running": [{**PLAIN["running"][0], **changes}]}


def with_waiting(**changes):
    return {**PLAIN, "waiting": [{**PLAIN["waiting"][0], **changes}]}


BAD = {
    "no object": ([], "is no object"),
    "other schema": ({**PLAIN, "schema": "x/1"}, "schema is 'x/1'"),
    "unknown key": ({**PLAIN, "free_block": 3}, "free_block: unknown key"),
    "unknown key of a request": (with_running(prompt=3), "running prompt: unknown key"),
    "missing": ({key: PLAIN[key] for key in PLAIN if key != "free_blocks"}, "free_blocks: missing"),
    "wrong type": (with_running(prompt_tokens="many"), r"running\[0\].prompt_tokens: is of type str"),
    "negative": (with_waiting(output_tokens=-1), r"waiting\[0\].output_tokens: is out of range"),
    "no prompt": (with_waiting(prompt_tokens=0), r"waiting\[0\].prompt_tokens: is out of range"),
    "time": ({**PLAIN, "taken_s": float("nan")}, "taken_s: is nan"),
    "arrival": (with_waiting(arrival_s=float("inf")), r"waiting\[0\]: has no finite arrival_s"),
    "bad coefficients": (
        {**PLAIN, "engine": {**ENGINE, "batch_time": {"model": "hinge", "b0": -1.0, "b_prefill": 0.0}}},
        "b0: is out of range",
    ),
    "other scheduler": (
        {**PLAIN, "engine": {**ENGINE, "scheduler": "sglang", "block_tokens": 1}},
        "belongs to scheduler",
    ),
    "too many computed": (with_running(computed_tokens=103), r"running\[0\]: computes more tokens"),
    "waits with blocks": (with_waiting(computed_tokens=16), r"waiting\[0\]: waits, but has computed"),
    "more blocks than filled": (with_running(kv_blocks=8), r"running\[0\]: has more kv_blocks"),
    "shares a partial block": (with_running(kv_blocks=0), r"running\[0\]: shares blocks"),
    "hits beyond its prompt": (with_waiting(hit_tokens=51), r"waiting\[0\]: hits more than its prompt"),
    "longer than the pool": (with_waiting(prompt_tokens=1601), r"waiting\[0\]: is longer than"),
    "more blocks than there are": ({**PLAIN, "free_blocks": 94}, "free_blocks: are 94 beside 7 blocks"),
    "batch without requests": (with_running(in_flight_tokens=0), "batch_started_s: is 4.99"),
    "batch without a start": ({**PLAIN, "batch_started_s": None}, "batch_started_s: is None"),
    "batch of the future": ({**PLAIN, "batch_started_s": 5.01}, "batch_started_s: is 5.01"),
    "id of two": (with_waiting(request_id="a"), "request_id: one id is of two"),
    "more than may run": (
        {**PLAIN, "running": [{**PLAIN["running"][0], "request_id": str(k)} for k in range(5)]},
        "running: are 5; expected at most max_num_seqs, 4",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_no_engine_can_be_in_is_refused_with_its_place(name):
    plain, message = BAD[name]
    with pytest.raises(InputError, match=message):
        parse_snapshot(plain)


def test_what_is_made_in_python_is_checked_too():
    engine = parse_engine(ENGINE)
    with pytest.raises(InputError, match="below 0"):
        Snapshot(engine, 0.0, 50, (SeenRequest(-5, 10),))
    with pytest.raises(InputError, match=r"running\[0\]: has no prompt or no output"):
        Snapshot(engine, 0.0, 50, (SeenRequest(5, 0),))
    with pytest.raises(InputError, match=r"running\[1\]: computes more"):
        Snapshot(engine, 0.0, 50, (SeenRequest(5, 10), SeenRequest(5, 10, computed_tokens=6)))
