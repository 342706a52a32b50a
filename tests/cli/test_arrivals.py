"""`--arrivals` of simulate and recommend as a user meets it."""

from __future__ import annotations

import json

import pytest

ENGINES = ("--profile", "h100-qwen3-8b-sfs", "--engines", 2, "--policy", "round-robin")
MMPP = ("--arrivals", "mmpp:ratio=3", "--rate", "4/s")


@pytest.fixture
def mix(agentctl):
    assert agentctl("synth", "model-routing", "--sessions", 60, "-o", "mix.trace").code == 0
    return "mix.trace"


def test_the_process_stands_beside_the_result_and_in_the_document(agentctl, mix):
    told = agentctl("simulate", mix, *ENGINES, *MMPP)
    assert told.code == 0, told.err
    assert "round-robin on 2 engines, MMPP-2 arrivals of 4 sessions/s on average (2.86/s" in told.out
    document = json.loads(agentctl("simulate", mix, *ENGINES, *MMPP, "--json").out)
    made = document["arrivals"]
    assert (made["kind"], made["of"], made["rate_per_s"], made["ratio"]) == ("mmpp", "sessions", 4.0, 3.0)
    assert json.loads(agentctl("simulate", mix, *ENGINES, "--json").out)["arrivals"] is None


def test_a_seed_is_one_set_of_arrivals_for_every_policy(agentctl, mix):
    poisson = ("--arrivals", "poisson", "--rate", "4/s", "--arrivals-of", "requests")
    several = (*ENGINES, "--policy", "least-loaded", *poisson, "--json")
    one, again, other = (json.loads(agentctl("simulate", mix, *several, "--seed", n).out) for n in (1, 1, 2))
    assert one == again
    assert one["arrivals"]["of"] == "requests" and one["arrivals"] == other["arrivals"]
    assert one["runs"][0]["metrics"] != other["runs"][0]["metrics"]


def test_what_is_asked_for_wrongly_is_wrong_usage_with_a_way_out(agentctl, mix):
    for flags, words in (
        (("--rate", "4/s"), "not without --arrivals"),
        (("--arrivals", "posson"), "poisson or deterministic or mmpp"),
        (("--arrivals", "poisson", "--rate", "4"), "360/min"),
        (("--arrivals", "poisson", "--replay", "closed-loop", "--concurrency", 2), "closed loop"),
        (("--arrivals", "poisson", "--arrivals-of", "requests", "--replay", "causal"), "wait for nobody"),
    ):
        done = agentctl("simulate", mix, *ENGINES, *flags)
        assert done.code == 2, flags
        assert words in done.err


def test_recommend_takes_the_rate_as_its_load_and_leaves_checks_of_recorded_starts_out(agentctl, mix):
    done = agentctl(
        "recommend", mix, "--profile", "h100-qwen3-8b-sfs", "--engines", 2, "--policies",
        "round-robin,least-loaded", *MMPP, "--replicates", 2, "--no-sensitivity", "--json",
    )  # fmt: skip
    assert done.code in (0, 3), done.err
    document = json.loads(done.out)
    assert document["arrivals"]["rate_per_s"] == 4.0
    assert document["session_rate_per_min"] == pytest.approx(240.0)
    assert "MMPP-2 arrivals of 4 sessions/s on average" in document["verdict"]["statement"]
    status = {check["id"]: check["status"] for check in document["validity"]}
    assert status["V2"] == status["V3"] == status["V6"] == "NOT APPLICABLE"
