"""Each fault alone, in a log small enough to see it, and a sound log that passes."""

import pytest
from oracles.datasets import write_dataset

from agentctl.analyzers import quality
from agentctl.analyzers.base import AnalyzeOptions
from agentctl.analyzers.quality import CHECKS, analyze, describe

OPTIONS = AnalyzeOptions()
SOUND = {
    "prompt_tokens": 100,
    "output_tokens": 9,
    "e2e_s": 1.0,
    "ttft_s": 0.5,
    "instance": "e0",
    "model": "m",
}


def sound(n=120, **changes):
    """Sessions of two turns, all fields known; one starts every 120 s, its second turn comes 20 s later."""
    rows = []
    for i in range(n // 2):
        status = "error" if i == 1 else "ok"
        turn = {
            **SOUND,
            "session_id": f"s{i}",
            "status": status,
            "blocks": [i, 1000 + i],
            "prompt_tokens": 32,
        }
        rows.append({**turn, "arrival_s": 120.0 * i, **changes})
        rows.append(
            {**turn, "arrival_s": 120.0 * i + 20, **changes, "blocks": [i, 1000 + i, 1], "prompt_tokens": 48}
        )
    return rows


def findings(tmp_path, rows, meta=None, block_tokens=16):
    result = analyze(write_dataset(tmp_path / "t.trace", rows, block_tokens=block_tokens, meta=meta), OPTIONS)
    return {finding.check: finding for finding in result.findings}, result


def test_a_sound_log_is_fit_and_only_its_open_end_is_noted(tmp_path):
    found, result = findings(tmp_path, sound())
    assert set(found) == {"truncated-sessions"}  # the last session may go on
    assert found["truncated-sessions"].count == 1
    assert result.verdict == "fit"
    assert "found nothing that changes an answer" in describe(result).sentence


def test_every_finding_names_consequence_and_cure(tmp_path):
    found, result = findings(tmp_path, [{"arrival_s": 0, "prompt_tokens": None}])
    assert result.verdict == "not fit"
    for finding in found.values():
        assert finding.fact and finding.consequence and finding.cure
    assert any("Cure: --map prompt_tokens=FIELD." in text for text in describe(result).warnings)


def row(**changes):
    return {**SOUND, "arrival_s": 5.0, **changes}


FAULTS = {
    "clock-ties": [row(arrival_s=3.0 * (t // 2)) for t in range(40)],
    "clock-order": [row(arrival_s=9.0, source_row=1), row(arrival_s=1.0, source_row=2)],
    "clock-negative-gap": [row(gap_s=-1.0)],
    "clock-durations": [row(ttft_s=2.0, e2e_s=1.0)],
    "clock-span": [row(), row(arrival_s=30.0)],
    "duplicate-ids": [row(request_id="x"), row(request_id="x")],
    "broken-links": [row(parent_request_id="gone")],
    "chain-lengths": [row(blocks=[1, 2, 3], prompt_tokens=99)],
    "models-share-blocks": [row(blocks=[1], model="m"), row(blocks=[1], model="n", arrival_s=6.0)],
    "missing-prompt_tokens": [row(prompt_tokens=None)],
    "missing-output_tokens": [row(output_tokens=None)],
    "missing-tip_node": [row()],
    "missing-end_s": [row(e2e_s=None)],
    "missing-ttft_s": [row(ttft_s=None)],
    "missing-instance": [row(instance=None)],
    "missing-model": [row(model=None)],
    "estimated-tokens": [row(token_source="estimated")],
    "inferred-sessions": [row(session_source="block_chain", session_conf=0.7)],
    "no-sessions": [row()],
    "truncated-sessions": [row(session_id="a", origin="resumed"), row(session_id="a", arrival_s=9.0)],
    "only-finished": [row(arrival_s=float(t)) for t in range(100)],
    "prompts-at-limit": [row(arrival_s=float(t), prompt_tokens=min(100 + t, 180)) for t in range(100)],
}


@pytest.mark.parametrize("check", FAULTS)
def test_fault_is_found_and_absent_from_a_sound_log(check, tmp_path):
    found, _ = findings(tmp_path, FAULTS[check])
    assert check in found
    clean, _ = findings(tmp_path / "sound", sound())
    assert check not in clean or check == "truncated-sessions"


METAS = {
    "quarantined": {"records": {"read": 1000, "rows": 1, "quarantined": 2, "dropped": {}}},
    "dropped": {"records": {"read": 100, "rows": 1, "quarantined": 0, "dropped": {"health check": 5}}},
    "chain-conflicts": {"chain_conflicts": 3},
    "clock-zone": {"time": {"origin": "absolute", "tz_assumed": "UTC"}},
    "clock-synthesised": {
        "time": {"origin": "synthesised", "session_rate_per_min": 1, "seed": 0, "tz_assumed": None}
    },
    "rejected-session-ids": {
        "sessions": {
            "count": 1, "multi_turn": 0, "source": {}, "band": [],
            "id_test": {"accepted": False, "reason": "one id covers 80 % of the rows"},
        }
    },
}  # fmt: skip


@pytest.mark.parametrize("check", METAS)
def test_what_ingest_recorded_is_passed_on(check, tmp_path):
    found, _ = findings(tmp_path, [row()], meta=METAS[check])
    assert check in found
    assert check not in findings(tmp_path / "plain", [row()])[0]


def test_the_parametrised_faults_cover_every_check():
    names = {*FAULTS, *METAS}
    assert len(names) == len(CHECKS) + 1  # origin() tells assumed zones and synthesised starts apart


def test_losses_within_the_budget_are_a_note_and_beyond_it_a_caveat(tmp_path):
    records = {"read": 10_000, "rows": 9_990, "quarantined": 10, "dropped": {}}
    found, result = findings(tmp_path, sound(), meta={"records": records})
    assert found["quarantined"].level == "note"
    assert result.quarantined_ratio == 0.001
    found, _ = findings(tmp_path / "more", sound(), meta={"records": {**records, "quarantined": 11}})
    assert found["quarantined"].level == "warn"


def test_session_band_shows_how_far_the_guess_carries(tmp_path):
    band = [{"max_fanout": f, "sessions": s, "multi_turn": 1} for f, s in ((2, 90), (8, 60))]
    sessions = {"count": 60, "multi_turn": 9, "source": {"message_chain": 120}, "band": band, "id_test": None}
    rows = sound(session_source="message_chain", session_conf=0.9)
    found, result = findings(tmp_path, rows, meta={"sessions": sessions})
    assert found["inferred-sessions"].level == "warn"  # 90 against 60 sessions
    assert "90 at F = 2, 60 at F = 8" in found["inferred-sessions"].fact
    assert describe(result).tables[-1].rows == ((2, 90, 1), (8, 60, 1))


def test_worst_findings_come_first(tmp_path):
    _, result = findings(tmp_path, [row(prompt_tokens=None), row(ttft_s=None)])
    levels = [quality.LEVELS.index(finding.level) for finding in result.findings]
    assert levels == sorted(levels) and levels[0] == 0
