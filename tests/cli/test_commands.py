"""Each command on a real trace, from its arguments to its files."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

PROFILE = ("--profile", "h100-qwen3-8b", "--engines", 2)


@pytest.fixture
def dataset(agentctl, weka, tmp_path):
    done = agentctl("ingest", weka, "-o", "weka.trace", "-q")
    assert (done.code, done.err) == (0, "")
    return tmp_path / "weka.trace"


def document(done):
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_ingest_writes_a_dataset_and_says_what_it_kept(agentctl, weka, tmp_path):
    done = agentctl("ingest", weka, "-o", "day.trace")
    assert done.code == 0
    assert done.out.startswith("155 requests in 14 sessions")
    assert done.err == "next: agentctl analyze day.trace\n"
    assert sorted(file.name for file in (tmp_path / "day.trace").iterdir()) == [
        "dataset.json",
        "prefix_nodes.parquet",
        "requests.parquet",
    ]


def test_ingest_as_json_is_one_document_that_adds_up(agentctl, weka):
    found = document(agentctl("ingest", weka, "-o", "day.trace", "--json"))
    assert found["schema"] == "agentctl/ingest/1"
    records = found["records"]
    assert records["read"] == records["rows"] + records["quarantined"] + sum(records["dropped"].values())


def test_ingest_reads_standard_input(process, weka, tmp_path):
    done = process("ingest", "-", "-o", "day.trace", stdin=weka.read_bytes())
    assert done.code == 0 and done.out.startswith("155 requests in 14 sessions")


def test_ingest_keeps_an_older_dataset_unless_forced(agentctl, weka, dataset):
    done = agentctl("ingest", weka, "-o", "weka.trace")
    assert (done.code, done.out) == (1, "")
    assert done.err == "error: weka.trace: already exists\n\nhint: --force replaces it\n"
    assert agentctl("ingest", weka, "-o", "weka.trace", "--force").code == 0


def test_a_bad_line_is_an_error_with_its_place_and_its_cure(agentctl, tmp_path):
    good = '{"timestamp": 0, "input_length": 10, "output_length": 1, "hash_ids": [1]}\n'
    (tmp_path / "log.jsonl").write_text(good * 3 + '{"timestamp": "secret", ' + "\n" + good)
    done = agentctl("ingest", "log.jsonl", "-o", "day.trace", "--format", "mooncake")
    assert done.code == 1 and done.out == ""
    assert done.err.startswith("error: 1 of 5 records are bad")
    assert "\n  log.jsonl:4: " in done.err and "\nhint: --max-bad 1 " in done.err
    assert "secret" not in done.err
    assert not (tmp_path / "day.trace").exists()


def test_analyze_says_the_same_of_a_dataset_and_of_its_log(agentctl, weka, dataset):
    of_dataset = document(agentctl("analyze", dataset, "--json"))
    of_log = document(agentctl("analyze", weka, "--json", "-q"))
    assert of_dataset["schema"] == "agentctl/analyze/1"
    for one in (of_dataset, of_log):
        one["provenance"].pop("trace"), one["provenance"].pop("command")
    assert of_dataset == of_log


def test_analyze_writes_the_same_page_twice(agentctl, dataset, tmp_path):
    for name in ("a.html", "b.html"):
        assert agentctl("analyze", dataset, "--html", name, "-q").code == 0
    page = (tmp_path / "a.html").read_bytes()
    assert page == (tmp_path / "b.html").read_bytes()
    assert str(tmp_path).encode() not in page
    assert b"agentctl analyze weka.trace" in page


def test_analyze_refuses_an_existing_page_before_it_works(agentctl, tmp_path):
    (tmp_path / "a.html").write_text("mine")
    done = agentctl("analyze", "gone.trace", "--html", "a.html")
    assert done.code == 1 and done.err.startswith("error: a.html: already exists")


def test_a_trace_that_does_not_exist_is_an_error(agentctl):
    done = agentctl("analyze", "gone.trace")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: gone.trace: ")


def test_a_folder_that_is_no_dataset_is_an_error(agentctl, tmp_path):
    (tmp_path / "empty").mkdir()
    done = agentctl("analyze", "empty")
    assert done.code == 1 and "expected a folder made by `agentctl ingest`" in done.err


def test_simulate_leaves_a_run_that_can_be_rendered_again(agentctl, dataset, tmp_path):
    done = agentctl("simulate", dataset, *PROFILE, "--policy", "smetric", "-o", "run")
    assert done.code == 0, done.err
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == [
        "outcome.parquet",
        "report.html",
        "result.json",
    ]
    *before, last = done.err.splitlines()
    assert last == "written: run/report.html"
    assert all(line.startswith("compiling the simulator, once") for line in before)  # on a new machine
    assert agentctl("report", "run").out == done.out
    page = (tmp_path / "run" / "report.html").read_bytes()
    for what in (b"trace digest", b"calibration of h100-qwen3-8b", b"seed", b"agentctl simulate"):
        assert what in page  # what it was made from
    assert agentctl("report", "run", "--html", "again.html", "-q").code == 0
    assert (tmp_path / "again.html").read_bytes() == page


def test_several_policies_leave_a_run_that_can_be_rendered_again(agentctl, dataset, tmp_path):
    policies = ("--policy", "smetric", "--policy", "round-robin")
    done = agentctl("simulate", dataset, *PROFILE, *policies, "-o", "run")
    assert agentctl("report", "run", "--html", "again.html").out == done.out
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "run" / "report.html").read_bytes()


def test_simulate_gives_the_same_bytes_for_the_same_seed(process, dataset, tmp_path):
    runs = [process("simulate", dataset, *PROFILE, "--seed", 3, "--json", "-o", f"run{n}") for n in (1, 2)]
    assert runs[0].out == runs[1].out
    for name in ("result.json", "outcome.parquet", "report.html"):
        assert (tmp_path / "run1" / name).read_bytes() == (tmp_path / "run2" / name).read_bytes()


def test_simulate_takes_parameters_of_the_policy(agentctl, dataset):
    done = agentctl("simulate", dataset, *PROFILE, "--policy", "smetric:slack=2", "--json")
    assert document(done)["params"]["slack"] == 2


def test_simulate_shows_why_a_request_went_where_it_did(agentctl, dataset):
    worst = document(agentctl("simulate", dataset, *PROFILE, "--regret", 20, "--json"))["regret"]
    assert worst["requests"] == 20
    agentctl("simulate", dataset, *PROFILE, "--policy", "lmetric", "-o", "run")
    some = pq.read_table("run/outcome.parquet")["request_id"][3].as_py()
    done = agentctl("simulate", dataset, *PROFILE, "--policy", "lmetric", "--explain", some)
    assert done.code == 0 and "went to engine" in done.out and "pending prefill tokens" in done.out
    told = document(agentctl("simulate", dataset, *PROFILE, "--explain", some, "--json"))["explain"]
    assert [one["request_id"] for one in told] == [some]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--cluster, --profile: neither is given; expected one of them"),
        (("--profile", "h100"), "profile h100: is neither a file nor a preset"),
        ((*PROFILE, "--policy", "smetrc"), "policy smetrc: unknown policy"),
        ((*PROFILE, "--policy", "smetric:slack=much"), "--policy: cannot read 'slack=much'"),
        ((*PROFILE, "--slo", "ttft is nice"), "ttft is nice"),
        (("--cluster", "gone.toml"), "gone.toml: cannot be read"),
        ((*PROFILE, "--explain", "nobody"), "--explain: no 'nobody' among"),
        ((*PROFILE, "--policy", "lmetric", "--policy", "smetric", "--regret", 3), "several runs"),
    ],
)
def test_simulate_explains_what_it_cannot_use(agentctl, dataset, arguments, message):
    done = agentctl("simulate", dataset, *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ") and message in done.err


def test_policies_lists_what_can_be_compared(agentctl):
    found = document(agentctl("policies", "--json"))
    assert {"round-robin", "least-loaded", "prefix-affine", "lmetric", "smetric"} <= {
        policy["name"] for policy in found["policies"]
    }


def test_report_refuses_what_is_no_run(agentctl, tmp_path):
    done = agentctl("report", tmp_path)
    assert done.code == 1 and "expected a folder made by -o RUN/" in done.err


def test_nothing_but_the_result_is_on_stdout_and_quiet_silences_the_rest(agentctl, weka):
    done = agentctl("ingest", weka, "-o", "day.trace", "--json", "-q")
    assert done.err == ""
    json.loads(done.out)


def test_an_empty_policy_is_an_error_and_not_the_default(agentctl, weka):
    for option in (("--policy", ""), ("--policy", ":slack=1"), ("--policy", "smetric:")):
        done = agentctl("simulate", weka, "--profile", "h100-qwen3-8b", *option)
        assert done.code == 2 and "no" in done.err
    done = agentctl("recommend", weka, "--profile", "h100-qwen3-8b", "--policies", ",")
    assert done.code == 2 and "holds no name" in done.err


def test_a_cure_that_only_ingest_has_is_given_as_a_command_of_ingest(agentctl, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"timestamp": 0, "input_length": 3, "output_length": 1}\n{"times\n')
    done = agentctl("analyze", tmp_path / "bad.jsonl")
    assert done.code == 1
    assert "agentctl ingest LOGS... -o NAME.trace, where --max-bad 1 sets them aside" in done.err
    assert "quarantine" not in done.err  # that file went with the temporary dataset
