"""`agentctl policies`: list, explain, check; and a policy of one's own in the other commands."""

import json
import warnings

import pytest

from agentctl.errors import AgentctlWarning

MINE = '''"""Where the prompt lives, unless that engine is busy."""

from typing import NamedTuple

import numpy as np
from numba import njit


class Params(NamedTuple):
    factor: float = 2.0


@njit
def choose(view, requests, r, my):
    load = view.inflight_requests
    home = np.argmax(view.hit_tokens)
    return home if load[home] <= my.factor * load.mean() else np.argmin(load)
'''
PLAIN = MINE.replace("@njit\n", "")
PROFILE = ("--profile", "h100-qwen3-8b", "--engines", 2)


@pytest.fixture
def mine(tmp_path):
    """Write `mine.py` into the folder where commands run."""

    def write(text=MINE):
        (tmp_path / "mine.py").write_text(text)

    return write


def document(done):
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_the_list_names_router_signals_ties_and_parameters_of_every_policy(agentctl):
    done = agentctl("policies")
    head, *rows = done.out.strip().splitlines()
    assert head == "policy\trouter\tsees\tties\tparameters"
    assert "vllm-router:kv_aware\tvllm-router 0.1.17\thit_tokens, inflight" in done.out
    listed = {policy["name"] for policy in document(agentctl("policies", "--json"))["policies"]}
    assert {row.split("\t")[0] for row in rows} == listed
    assert {"lmetric", "vllm-router:kv_aware"} <= listed


def test_one_policy_tells_its_whole_story(agentctl):
    done = agentctl("policies", "smetric")
    assert done.code == 0, done.err
    assert done.out.startswith("SMetric: place a new session by load")
    assert "slack\t1\tshare of the SLO that home may use before the session moves" in done.out
    assert "c_linear\tprofile\ts per new token" in done.out
    assert "expected_hit\ttokens of this request that its session should find" in done.out
    assert "ties\trotate" in done.out


def test_a_production_policy_tells_its_router_version_and_needs(agentctl):
    (found,) = document(agentctl("policies", "vllm-router:kv_aware", "--json"))["policies"]
    assert (found["router"], found["version"], found["formula"]) == (
        "vllm-router",
        "0.1.17",
        "lmetric@vllm-router",
    )
    assert found["signals"]["index"] == "precise"
    assert found["requires"]["engine"] and found["tie"] == "first"


def test_a_check_of_a_compiled_policy_says_that_both_ways_agree(agentctl, mine):
    mine()
    done = agentctl("policies", "check", "./mine.py:choose")
    assert (done.code, done.out.split("\n")[0]) == (
        0,
        "mine.py:choose works: compiled and in plain Python it places 100 requests the same, bit for bit.",
    )
    found = document(agentctl("policies", "check", "mine.py", "--json"))
    assert found["schema"] == "agentctl/policy-check/1"
    assert found["same_compiled_and_plain"] is True
    assert sum(found["requests_per_engine"]) == found["requests"] == 100
    assert found["policy"]["sees"] == ["hit_tokens", "inflight_requests"]
    assert found["requests_per_s"]["compiled"] > found["requests_per_s"]["plain"]


def test_a_check_of_a_plain_policy_says_whether_it_could_be_compiled(agentctl, mine):
    mine(PLAIN)
    done = agentctl("policies", "check", "mine.py")
    assert done.code == 0 and "works in plain Python" in done.out
    assert "it would be faster and decide the same" in done.out
    mine(PLAIN.replace("    load = ", "    seen = {**view._asdict()}\n    load = "))
    done = agentctl("policies", "check", "mine.py")
    assert done.code == 0 and "it cannot be compiled as it is (mine.py:" in done.out


def test_a_check_fails_when_compiled_and_plain_differ(agentctl, mine):
    """Python's numbers have no end; a compiled one wraps around at request 1."""
    body = "return 1 if (r + 1) * (1 << 62) > 0 else 0"
    mine(f"from numba import njit\n\n@njit\ndef choose(view, requests, r, my):\n    {body}\n")
    done = agentctl("policies", "check", "mine.py")
    assert done.code == 3
    assert "differs: compiled it treats request 1 of 100 not as in plain Python" in done.out


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ("view.hit_tokens", "view.hits", "mine.py:16: View has no field `hits`", "known: "),
        ("my.factor", "my.factr", "mine.py:17: Params has no field `factr`", "did you mean `factor`?"),
        ("np.argmin(load)", "99", "policy mine.py:choose: chose engine 99 for request", None),
        (
            "return home",
            "return 1.0 * home",
            "policy mine.py:choose: answers with float; expected",
            None,
        ),
        ("load.mean()", "load[99]", "mine.py:17: IndexError: index 99 is out of bounds", None),
        ("import numpy", "import nompy", "mine.py:5: ModuleNotFoundError: No module named 'nompy'", None),
        ("def choose", "def chose", "mine.py: has no function `choose`", "did you mean `chose`?"),
    ],
)
def test_a_check_names_what_is_wrong_and_where(agentctl, mine, old, new, message, hint):
    mine(MINE.replace(old, new))
    done = agentctl("policies", "check", "mine.py")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {message}")
    assert "Traceback" not in done.err
    assert hint is None or f"hint: {hint}" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lmetrc",), "policy lmetrc: unknown policy\n\nhint: did you mean `lmetric`?"),
        (("check",), "cannot read 'check'; expected nothing, NAME, or check FILE.py[:FUNCTION]"),
        (("check", "lmetric"), "check: 'lmetric' is no Python file; expected FILE.py[:FUNCTION]"),
        (("check", "gone.py"), "gone.py: cannot be read (No such file or directory)"),
        (("lmetric", "smetric"), "cannot read 'lmetric smetric'"),
    ],
)
def test_what_cannot_be_told_or_checked_is_an_error(agentctl, arguments, message):
    done = agentctl("policies", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {message}")


def test_simulate_gives_the_same_with_a_compiled_and_a_plain_policy(agentctl, mine, weka):
    outcomes = []
    for text in (MINE, PLAIN):
        mine(text)
        found = document(
            agentctl("simulate", weka, *PROFILE, "--policy", "./mine.py:choose:factor=3", "--json")
        )
        assert (found["policy"], found["params"]) == ("mine.py:choose", {"factor": 3})
        outcomes.append((found["metrics"], found["engines"]))
    assert outcomes[0] == outcomes[1]


def test_a_cluster_file_may_name_a_policy_beside_it(agentctl, mine, weka, tmp_path):
    mine()
    (tmp_path / "deep").mkdir()
    (tmp_path / "mine.py").rename(tmp_path / "deep" / "mine.py")
    (tmp_path / "deep" / "c.toml").write_text(
        'schema = "agentctl/cluster/1"\n[[pool]]\nname = "main"\nengines = 2\nprofile = "h100-qwen3-8b"\n'
        '[router]\npolicy = "./mine.py"\nparams = {factor = 4}\n'
    )
    found = document(agentctl("simulate", weka, "--cluster", "deep/c.toml", "--json"))
    assert (found["policy"], found["params"]) == ("mine.py:choose", {"factor": 4})


@pytest.mark.parametrize("text", [MINE, PLAIN], ids=["compiled", "plain"])
def test_recommend_compares_a_policy_of_ones_own(process, mine, weka, text):
    mine(text)
    policies = ("--policies", "round-robin,./mine.py:choose:factor=3", "--current", "./mine.py")
    done = process("recommend", weka, *PROFILE, *policies, "--replicates", 2, "--json", "-q")
    assert done.code in (0, 3), done.err
    names = {candidate["policy"] for candidate in json.loads(done.out)["candidates"]}
    assert names == {"round-robin", "mine.py:choose:factor=3", "mine.py:choose"}


def test_a_policy_that_fails_in_recommend_is_told_in_one_line(process, mine, weka):
    mine(PLAIN.replace("home = ", "home = [][r] + "))
    policies = ("--policies", "round-robin,./mine.py")
    done = process("recommend", weka, *PROFILE, *policies, "--replicates", 2, "-q")
    assert done.code == 2
    assert done.err == "error: mine.py:15: IndexError: list index out of range (request 0)\n"


def test_a_remark_of_a_library_is_one_line_on_stderr(agentctl, monkeypatch):
    def names():
        warnings.warn("something is left out", AgentctlWarning, stacklevel=1)
        return []

    monkeypatch.setattr("agentctl.policies.base.policy_names", names)
    done = agentctl("policies")
    assert (done.code, done.err) == (0, "warning: something is left out\n")
