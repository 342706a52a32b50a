"""`agentctl recommend` as its user meets it: what is kept of a killed run, and what a mistake says."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

SHORT = (
    "--profile",
    "h100-qwen3-8b",
    "--engines",
    "2",
    "--policies",
    "round-robin,lmetric",
    "--replicates",
    "4",
    "--no-sensitivity",
)


def files(folder):
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def still_running(folder):
    """Processes that work there, this one aside."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(process.name) != os.getpid() and (process / "cwd").readlink() == folder:
                found.append(process.name)
    return found


def test_a_killed_comparison_goes_on_where_it_was_and_ends_with_the_same_bytes(
    agentctl, program, weka, tmp_path
):
    assert agentctl("recommend", weka, *SHORT, "-o", "whole").code == 0
    clean = {key: value for key, value in os.environ.items() if not key.startswith("AGENTCTL_")}
    killed = subprocess.Popen(
        [*program, "recommend", str(weka), *SHORT, "-o", "again"], cwd=tmp_path, env=clean,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    beside = tmp_path / ".again.runs"
    while killed.poll() is None and not (beside.exists() and beside.read_bytes().count(b"\n") > 10):
        time.sleep(0.01)
    assert killed.poll() is None, "it ended before it could be killed"
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    deadline = time.monotonic() + 20
    while still_running(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not still_running(tmp_path)  # workers end with it
    assert not (tmp_path / "again").exists()
    done = agentctl("recommend", weka, *SHORT, "-o", "again")
    assert done.code == 0
    known = re.search(r"^(\d+) runs are known from before$", done.err, re.MULTILINE)
    assert known and int(known[1]) > 10
    assert files(tmp_path / "again") == files(tmp_path / "whole")
    assert agentctl("report", "again", "--html", "drawn.html").out == done.out  # without a run
    assert (tmp_path / "drawn.html").read_bytes() == (tmp_path / "whole" / "report.html").read_bytes()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".again")]


def test_two_names_of_one_policy_differ_by_exactly_nothing(agentctl, weka):
    # 12 % of the requests are long and cold: a share that the engines can hold somewhere
    slo = ("--slo", "ttft < 2s + 62.5us*prompt_tokens @ 70%")
    done = agentctl(
        "recommend", weka, "--profile", "h100-qwen3-8b", "--engines", "2", *slo, "--replicates", "4",
        "--policies", "smetric,smetric:slack=1", "--current", "smetric", "--no-sensitivity", "--json",
    )  # fmt: skip
    document = json.loads(done.out)
    current, alias = document["candidates"]
    assert (current["policy"], alias["policy"]) == ("smetric", "smetric:slack=1")
    assert current["is_current"]
    assert alias["verdict"] == "NOT DISTINGUISHABLE"
    assert alias["difference_to_current"]["peak"] == 0.0
    assert alias["difference_to_current"]["interval"] == [0.0, 0.0]
    assert document["verdict"]["status"] == "no clear winner"


def test_a_trace_of_three_minutes_is_declined_in_the_first_words(agentctl, tmp_path):
    rows = [
        {
            "timestamp": 1000 * n,
            "input_length": (513, 1024)[n % 2],
            "output_length": 20,
            "hash_ids": [1, n + 2],
        }
        for n in range(180)
    ]
    (tmp_path / "short.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    done = agentctl(
        "recommend", "short.jsonl", "--profile", "h100-qwen3-8b", "--replicates", "4", "--no-sensitivity"
    )
    assert done.code == 3
    assert done.out.startswith("Declined: this trace cannot carry a claim (V2)")


def test_strict_ends_with_3_on_a_warning_and_says_so_first(agentctl, weka):
    done = agentctl("recommend", weka, *SHORT, "--strict")
    assert done.code == 3
    assert done.out.startswith("Declined: --strict is on and V1")


BAD_TOML = 'schema = "agentctl/cluster/1"\n[[pool]]\nname = "main"\nprofile = "h100-qwen3-8b"\n'
BAD_PROFILE = """schema = "agentctl/profile/1"
kv_blocks = 9000
block_tokens = 16
[batch_time]
model = "hinge"
b0 = 0.005
b_prefill = 2e-5
[batch_time.fit.covariance]
names = ["b0"]
matrix = [[nan]]
"""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--policies", "lmetrik"), "did you mean `lmetric`?"),
        (("--policies", "smetric:slak=1"), "did you mean `slack`?"),
        (("--policies", "smetric:slack=2..1"), "an empty grid"),
        (("--policies", ","), "holds no name"),
        (("--vary", "max_num_seq=64"), "did you mean `max_num_seqs`?"),
        (("--vary", "max_num_seqs="), "an empty grid"),
        (("--vary", "max_num_seqs=0"), "--vary max_num_seqs"),
        (("--objective", "peak-tsp"), "did you mean `peak-tps`?"),
        (("--objective", ","), "names no objective"),
        (("--slo", "ttft < 0s"), "the limit is 0"),
        (("--slo", "ttft < -1s"), "cannot"),
        (("--slo", "ttft < 1ms @ 95%"), "one batch takes at least"),
        (("--slo", "ttft < 1s @ 101%"), "no share"),
        (("--engines", "8..4"), "--engines"),
        (("--cluster", "bad.toml"), "bad.toml"),
        (("--cluster", "binary.toml"), "is not TOML"),
        (("--profile", "nan.toml"), "no finite number"),
    ],
)
def test_wrong_input_ends_with_2_and_names_place_fact_and_cure(agentctl, weka, tmp_path, options, words):
    (tmp_path / "bad.toml").write_text(BAD_TOML + "engines = 1e400\n")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00[[pool]]" * 100)
    (tmp_path / "nan.toml").write_text(BAD_PROFILE)
    profile = () if options[0] in ("--cluster", "--profile") else ("--profile", "h100-qwen3-8b")
    done = agentctl("recommend", weka, *profile, *options, "-o", "run")
    assert done.code == 2
    assert words in done.err
    assert "hint:" in done.err or "expected" in done.err
    assert not [path for path in tmp_path.iterdir() if "run" in path.name]


def test_a_profile_of_another_model_than_the_log_names_ends_with_2(agentctl, tmp_path):
    rows = [
        {"at": float(n), "in": 100, "out": 5, "model": "meta-llama/Llama-3.1-8B", "ttft": 0.1, "e2e": 0.5}
        for n in range(20)
    ]
    (tmp_path / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    columns = {
        "arrival_s": "at", "prompt_tokens": "in", "output_tokens": "out", "model": "model", "ttft_s": "ttft",
        "e2e_s": "e2e",
    }  # fmt: skip
    named = [word for ours, theirs in columns.items() for word in ("--map", f"{ours}={theirs}")]
    assert agentctl("ingest", "log.jsonl", *named, "-o", "log.trace").code == 0
    done = agentctl("recommend", "log.trace", "--profile", "h100-qwen3-8b", "--replicates", "2")
    assert done.code == 2
    assert "is of qwen3-8b, the log of llama-3.1-8b" in done.err
    assert "leave `model` out" in done.err


def test_settings_and_parameters_are_grids_and_several_objectives_have_a_pareto_set(agentctl, weka):
    done = agentctl(
        "recommend", weka, "--profile", "h100-qwen3-8b", "--engines", "2", "--replicates", "2",
        "--slo", "ttft < 2s + 62.5us*prompt_tokens @ 70%", "--no-sensitivity", "--json",
        "--policies", "smetric:slack=1..2", "--vary", "max_num_seqs=8,256", "--current", "lmetric",
        "--objective", "goodput,ttfet,tokens-per-joule",
    )  # fmt: skip
    document = json.loads(done.out)
    rows = [(row["policy"], [one["value"] for one in row["settings"]]) for row in document["candidates"]]
    assert rows == [
        ("smetric:slack=1", [8]), ("smetric:slack=1", []), ("smetric:slack=2", [8]), ("smetric:slack=2", []),
        ("lmetric", []),
    ]  # fmt: skip
    assert [row["is_current"] for row in document["candidates"]] == [False] * 4 + [True]
    for row in document["candidates"]:
        goodput, ttfet, energy = (
            row["objectives"][name] for name in ("goodput", "ttfet", "tokens-per-joule")
        )
        assert goodput["interval"][0] < goodput["value"] < goodput["interval"][1]
        assert ttfet["value"] > 0
        assert energy["verdict"] == "NOT EVALUATED" and "power table" in energy["why_not"]
    assert document["verdict"]["pareto"]
    assert [one["name"] for one in document["objectives"]] == ["goodput", "ttfet", "tokens-per-joule"]
    assert all(one["formula"] and one["operating_load"] and one["counts"] for one in document["objectives"])


TIERED = """\
schema = "agentctl/cluster/1"
[[pool]]
name = "main"
engines = 4
profile = "h100-qwen3-8b"
block_tokens = 64
kv_blocks = 2049
[[kv_tier]]
name = "global"
preset = "rdma-store"
capacity_tokens = 10_000_000
"""


def test_the_size_of_a_tier_is_an_axis_with_a_picture_and_the_least_that_reaches_a_hit(agentctl, tmp_path):
    (tmp_path / "tiers.toml").write_text(TIERED)
    log = Path(__file__).parents[2] / "sample_traces" / "weka_small.jsonl.gz"
    done = agentctl(
        "recommend", log, "--cluster", "tiers.toml", "--policies", "round-robin", "--vary",
        "kv_tier.capacity_tokens=0,1e7", "--reach-hit", 0.7, "--replicates", 2, "--no-sensitivity",
        "--slo", "ttft < 60s @ 50%", "-v",
    )  # fmt: skip
    assert done.code in (0, 3)
    assert "needs 10,000,000 tokens of tier at 20 GB/s to find 70.0 % of the prompt tokens" in done.out


def test_a_hit_to_reach_without_tiers_that_are_varied_is_refused(agentctl, tmp_path):
    (tmp_path / "tiers.toml").write_text(TIERED)
    log = Path(__file__).parents[2] / "sample_traces" / "weka_small.jsonl.gz"
    done = agentctl("recommend", log, "--cluster", "tiers.toml", "--reach-hit", 0.7)
    assert done.code == 2 and "--reach-hit: nothing is varied" in done.err
