"""A workload from a trace's statistics is like the trace, and holds nothing else of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.datasets import write_dataset

from agentctl.analyzers import locality, phases
from agentctl.analyzers.base import AnalyzeOptions
from agentctl.analyzers.columns import numbered
from agentctl.analyzers.counted import count_requests
from agentctl.analyzers.reuse_ratios import hit_tokens
from agentctl.analyzers.strands import weave
from agentctl.analyzers.stretches import stretches
from agentctl.errors import InputError
from agentctl.ingest.build import ingest
from agentctl.synth.agentic import agentic
from agentctl.synth.dataset import synthesise
from agentctl.synth.fit import GROUP, MIN_SESSIONS, statistics_of, table
from agentctl.synth.model import Table
from agentctl.trace import META_FILE, NODES_FILE, REQUESTS_FILE, Trace

ROOT = Path(__file__).parents[2]
ERRORS = 3 * np.sqrt(2)  # standard errors by which two samples of the same sessions may differ


def like(trace: Trace, path: Path, **options) -> Trace:
    return synthesise(statistics_of(trace), path, **options).trace


@pytest.fixture(scope="module", params=["agentic", "weka"])
def pair(request, tmp_path_factory) -> tuple[Trace, Trace]:
    """A trace (4,000 sessions of four applications, or 80 real ones), and the workload like it."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "agentic":
        trace = synthesise(agentic(), folder / "source.trace", seed=5).trace
    else:
        trace = ingest([ROOT / "sample_traces/weka_80.jsonl.zst"], folder / "source.trace").trace
    return trace, like(trace, folder / "like.trace", seed=1)


def by_session(trace: Trace) -> dict[str, np.ndarray]:
    """Sums over each session: the sample whose units are independent."""
    rows = trace.requests()
    session = numbered(rows["session_id"])
    counted = count_requests(trace)
    assert counted is not None
    assert counted.tip.size == rows.height
    reuse = stretches(weave(trace.tree.parent, trace.tree.depth, counted.tip), counted.tip)

    def total(values) -> np.ndarray:
        return np.bincount(session, values)

    return {
        "requests": total(np.ones(session.size)),
        "prompt": total(rows["prompt_tokens"].to_numpy()),
        "output": total(rows["output_tokens"].to_numpy()),
        "hit": total(hit_tokens(counted, reuse)),
        "sessions": np.ones(session.max() + 1),
    }


def ratio(part: np.ndarray, whole: np.ndarray) -> tuple[float, float]:
    """A ratio of sums over sessions, and its standard error (linearised)."""
    value = part.sum() / whole.sum()
    return value, float(np.sqrt(((part - value * whole) ** 2).sum()) / whole.sum())


@pytest.mark.parametrize(
    ("part", "whole"),
    [
        ("requests", "sessions"),
        ("prompt", "requests"),
        ("prompt", "sessions"),
        ("output", "requests"),
        ("hit", "prompt"),
    ],
)
def test_ratios_are_those_of_the_trace_within_the_sampling_error_of_its_sessions(pair, part, whole):
    source, made = (by_session(trace) for trace in pair)
    expected, error = ratio(source[part], source[whole])
    assert ratio(made[part], made[whole])[0] == pytest.approx(expected, abs=ERRORS * error)


def test_turns_and_outputs_keep_their_means_far_better_than_that(pair):
    source, made = (by_session(trace) for trace in pair)
    for part, whole in (("requests", "sessions"), ("output", "requests")):
        assert ratio(made[part], made[whole])[0] == pytest.approx(
            ratio(source[part], source[whole])[0], rel=0.01
        )


def test_the_skew_of_sessions_is_that_of_the_trace(pair):
    def top_quarter(tokens: np.ndarray) -> float:
        largest = np.sort(tokens)[::-1]
        return float(largest[: -(-tokens.size // 4)].sum() / largest.sum())

    source, made = (by_session(trace)["prompt"] for trace in pair)
    random = np.random.default_rng(1)
    again = [top_quarter(random.choice(source, source.size)) for _ in range(200)]
    assert top_quarter(made) == pytest.approx(top_quarter(source), abs=ERRORS * float(np.std(again)))


def test_reuse_comes_as_soon_and_prefill_is_where_it_was(pair):
    options = AnalyzeOptions(reuse_within_s=(100.0, 1000.0))
    soon = [[each.token_ratio for each in locality.analyze(t, options).reuse_within] for t in pair]
    assert soon[1] == pytest.approx(soon[0], abs=0.03)
    first = [phases.analyze(trace, options).prefill_share["first_turns"] for trace in pair]
    assert first[1] == pytest.approx(first[0], abs=0.05)


def test_what_sessions_share_stays_unknown_where_it_was(pair):
    scopes = [trace.meta["hash"]["scope"] for trace in pair]
    assert scopes[0] == scopes[1]


def test_applications_and_their_system_prompts_are_kept(tmp_path):
    trace = synthesise(agentic(), tmp_path / "a.trace", sessions=1000, seed=2).trace
    kept, true = statistics_of(trace).prefixes, agentic().prefixes
    assert sorted(each.blocks for each in kept) == sorted(each.blocks for each in true)
    for one, other in zip(
        sorted(kept, key=lambda p: p.blocks), sorted(true, key=lambda p: p.blocks), strict=True
    ):
        assert one.share == pytest.approx(other.share, abs=0.005)


def rows_of(n_sessions: int, shared: int = 0) -> list[dict]:
    """Sessions of three turns; the first `shared` of them begin with the blocks 1 and 2."""
    rows = []
    for s in range(n_sessions):
        chain = [1, 2] if s < shared else [10_000 + s, 20_000 + s]
        for turn in range(3):
            chain = [*chain, 100_000 + 10 * s + turn]
            rows.append(
                {
                    "arrival_s": 60.0 * s + 7.0 * turn + s / 128,
                    "session_id": f"secret-session-{s}",
                    "request_id": f"secret-request-{s}-{turn}",
                    "blocks": chain,
                    "output_tokens": 3 + s % 5,
                    "e2e_s": 2.0,
                    "tenant": "secret-tenant",
                    "model": "secret-model",
                    "instance": "secret-engine",
                    "source_file": "secret-file.jsonl",
                }
            )
    return rows


def test_a_prefix_is_kept_when_enough_sessions_share_it_and_forgotten_otherwise(tmp_path):
    for shared, depths in ((GROUP, [2]), (GROUP - 1, [])):
        trace = write_dataset(tmp_path / f"{shared}.trace", rows_of(60, shared), block_tokens=16)
        assert [each.blocks for each in statistics_of(trace).prefixes if each.blocks] == depths


def test_too_few_sessions_are_refused(tmp_path):
    trace = write_dataset(tmp_path / "few.trace", rows_of(MIN_SESSIONS - 1), block_tokens=16)
    with pytest.raises(InputError, match=f"{MIN_SESSIONS - 1} sessions"):
        statistics_of(trace)


def test_no_id_name_or_hash_of_the_trace_is_in_any_byte_of_the_workload(tmp_path):
    trace = write_dataset(
        tmp_path / "secret-name.trace", rows_of(60, 20), block_tokens=16, meta={"name": "secret"}
    )
    made = like(trace, tmp_path / "made.trace")
    plain = b"".join((made.path / name).read_bytes() for name in (META_FILE, REQUESTS_FILE, NODES_FILE))
    table_bytes = made.requests().write_json().encode()
    assert b"secret" not in plain
    assert b"secret" not in table_bytes
    assert not set(made.tree.hash[1:].tolist()) & set(trace.tree.hash[1:].tolist())
    digest = trace.digest.encode()
    assert digest not in plain
    named = pl.Series([*trace.requests()["request_id"], *trace.requests()["session_id"]])
    assert not made.requests()["request_id"].is_in(named.implode()).any()


def test_what_one_session_alone_has_does_not_show(tmp_path):
    rows = rows_of(60)
    rows[0] |= {"prompt_tokens": 48, "output_tokens": 777_777}
    rows[4] |= {"gap_s": 54_321.0, "gap_kind": "retry"}
    made = like(
        write_dataset(tmp_path / "a.trace", rows, block_tokens=16), tmp_path / "made.trace"
    ).requests()
    assert made["output_tokens"].max() < 777_777 / 2
    assert "retry" not in made["gap_kind"].cast(pl.String).to_list()
    assert made["gap_s"].max() < 54_321 / 2


def test_contexts_that_few_sessions_cut_are_not_in_the_model(tmp_path):
    for n_cut, share in ((GROUP - 1, 0), (60, 1 / 2)):
        rows = rows_of(60)
        for s in range(n_cut):
            rows[3 * s + 2]["blocks"] = [*rows[3 * s]["blocks"][:1], 500_000 + s]
        trace = write_dataset(tmp_path / f"{n_cut}.trace", rows, block_tokens=16)
        assert [each.cut_share for each in statistics_of(trace).classes] == [share] * 2


samples = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=200)


@given(samples)
def test_every_number_of_a_table_is_a_mean_over_enough_sessions(sample):
    values, session = (np.array(column) for column in zip(*sample, strict=True))
    found = table(values.astype(float), session)
    if found is None:
        assert np.unique(session).size < GROUP
        return
    assert found.upper[-1] == 1.0
    sizes = np.rint(np.diff([0.0, *found.upper]) * values.size).astype(int)
    order, begin = np.lexsort((session, values)), 0
    for size, mean in zip(sizes, found.means, strict=True):
        group = order[begin : begin + size]
        assert np.unique(session[group]).size >= GROUP
        assert values[group].mean() == pytest.approx(mean)
        begin += size
    drawn = found.at((np.arange(10_000) + 0.5) / 10_000)
    assert (np.diff(drawn) >= -1e-9).all(), "rises"
    assert drawn.mean() == pytest.approx(values.mean(), abs=0.02 * (np.ptp(values) + 1e-9))


def test_a_table_of_one_group_is_its_mean():
    assert Table(np.array([3.0]), np.array([1.0])).at(np.array([0.0, 0.5, 1.0])).tolist() == [3, 3, 3]


def test_the_same_trace_and_seed_give_the_same_bytes(tmp_path):
    trace = write_dataset(tmp_path / "a.trace", rows_of(60, 20), block_tokens=16)
    one, two = (like(trace, tmp_path / f"{name}.trace", seed=4) for name in ("one", "two"))
    for file in (META_FILE, REQUESTS_FILE, NODES_FILE):
        assert (one.path / file).read_bytes() == (two.path / file).read_bytes()


def test_a_trace_without_blocks_or_outputs_gives_a_workload_without(tmp_path):
    rows = [
        {"arrival_s": float(s), "session_id": f"s{s}", "prompt_tokens": 100 + s} for s in range(MIN_SESSIONS)
    ]
    made = like(write_dataset(tmp_path / "a.trace", rows), tmp_path / "made.trace")
    assert made.block_tokens is None
    assert made.requests()["output_tokens"].null_count() == made.n_requests == MIN_SESSIONS
    assert made.requests()["prompt_tokens"].mean() == pytest.approx(100 + (MIN_SESSIONS - 1) / 2, abs=1)
