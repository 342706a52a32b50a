"""What is written for sglang-router, smg and vllm-router, as its script calls the program."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from agentctl.cluster import Router, cluster_of
from agentctl.emit import sglang_router, smg, vllm_router
from agentctl.emit.base import Deployment
from agentctl.errors import ConfigError
from agentctl.policies._settings import settled
from agentctl.policies.base import load_policy, policy_names
from agentctl.profile import load_profile

CLUSTER = cluster_of(load_profile("h100-qwen3-8b"), 3)
TARGETS = {target.NAME: target for target in (sglang_router, smg, vllm_router)}
OWN = [name for name in policy_names() if name.partition(":")[0] in TARGETS]


def deployment(policy, cluster=CLUSTER, **longest):
    policy = load_policy(*policy) if isinstance(policy, tuple) else load_policy(policy)
    lengths = {"longest_prompt": 100_000, "longest_total": 101_000} | longest
    return Deployment(settled(cluster, policy), policy, "", **lengths)


def emitted(policy, router=None, **others):
    asked = deployment(policy, **others)
    target = TARGETS[router or asked.policy.name.partition(":")[0]]
    return target.emit(replace(asked, version=target.VERSIONS[0]))


def flags(policy, router=None, **others):
    return json.loads(emitted(policy, router, **others).files["router.json"])["flags"]


def started(files, folder: Path, program, engines, *arguments, **environment):
    """What the script hands over to a program that only says how it was called."""
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "engines.txt").write_text(engines)
    called = folder / program
    called.write_text('#!/bin/sh\nfor word; do echo "$word"; done\nenv | grep ^VLLM_ROUTER || true\n')
    called.chmod(0o755)
    return subprocess.run(
        ["bash", folder / "start.sh", *arguments], capture_output=True, text=True, timeout=10, check=False,
        env={"PATH": f"{folder}:{os.environ['PATH']}", **environment},
    )  # fmt: skip


def three(events=False):
    return "".join(f"http://h{k}:8000{f' tcp://h{k}:5557' if events else ''}\n" for k in range(3))


@pytest.mark.parametrize("name", OWN)
def test_a_router_does_exactly_what_was_simulated_of_its_own_policies(name):
    found = emitted(name)
    assert (found.fit, found.differences) == ("exact", ())
    assert {"start.sh", "engines.txt", "router.json"} <= set(found.files)
    assert found.files == emitted(name).files, "the same bytes"


@pytest.mark.parametrize("router", TARGETS)
def test_every_policy_of_one_engine_without_foresight_has_something_that_stands_for_it(router):
    target = TARGETS[router]
    for name in policy_names():
        found = emitted(name, router)
        if name.startswith("oracle-") or load_policy(name).places or load_policy(name).needs_fleet:
            assert found.fit == "none" and not found.files
            continue
        theirs = target.counterpart(load_policy(name), CLUSTER, target.VERSIONS[0])
        assert theirs is not None, name
        if found.fit != "exact":
            assert found.fit == "nearest" and found.differences, name


@pytest.mark.parametrize("name", OWN)
def test_the_script_calls_the_program_with_the_flags_that_machines_read(name, tmp_path):
    files = emitted(name).files
    document = json.loads(files["router.json"])
    events = document["flags"].get("--policy") == "kv_aware"
    ran = started(
        files, tmp_path, document["command"][0], three(events), "--log-level", "warn", PORT="1", HOST="h"
    )
    assert ran.returncode == 0, ran.stderr
    words = [line for line in ran.stdout.splitlines() if not line.startswith("VLLM_ROUTER")]
    own = [str(word) for pair in document["flags"].items() for word in pair if word is not None]
    sources = [w for k in range(3) for w in ("--kv-event-source", f"http://h{k}:8000=tcp://h{k}:5557")]
    assert words == [
        *document["command"][1:], "--worker-urls", *(f"http://h{k}:8000" for k in range(3)),
        "--host", "h", "--port", "1", "--prometheus-host", "h", "--prometheus-port", "29000",
        *own, *(sources if events else []), "--log-level", "warn",
    ]  # fmt: skip
    assert set(ran.stdout.splitlines()) - set(words) == {
        f"{key}={value}" for key, value in document["environment"].items()
    }


def test_the_script_refuses_placeholders_and_another_number_of_engines(tmp_path):
    files = emitted("smg:least_load").files
    ran = started(files, tmp_path, "smg", files["engines.txt"])
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "http://ENGINE-0:8000 is a placeholder" in ran.stderr
    ran = started(files, tmp_path, "smg", "http://h0:8000\n# http://h1:8000\n\nhttp://h2:8000")
    assert ran.returncode == 2 and "2 engines; 3 were simulated" in ran.stderr


def test_parameters_are_spelt_out_as_the_program_reads_them():
    found = flags(("sglang-router:manual_min_load", {"idle_s": 60}))
    assert found == {"--policy": "manual", "--assignment-mode": "min_load", "--max-idle-secs": 60}
    assert flags(("smg:manual", {"assignment_mode": 2}))["--assignment-mode"] == "min_group"
    document = json.loads(emitted(("vllm-router:sticky_least_loaded", {"ttl_s": 90})).files["router.json"])
    assert document["environment"] == {"VLLM_ROUTER_SLL_SESSION_EXPIRATION_IN_S": "90"}


@pytest.mark.parametrize(
    ("policy", "params", "place", "expected"),
    [
        ("sglang-router:cache_aware", {"cache_threshold": 1.7}, "--cache-threshold", "0 to 1"),
        ("vllm-router:cache_aware", {"balance_abs_threshold": 2.5}, "--balance-abs", "a whole number"),
        ("smg:cache_aware", {"balance_rel_threshold": 0.5}, "--balance-rel-threshold", "at least 1"),
        ("smg:manual", {"assignment_mode": 7}, "--assignment-mode", "min_group"),
        ("smg:prefix_hash", {"load_factor": 0.5}, "--prefix-hash-load-factor", "at least 1"),
        ("vllm-router:kv_aware", {"temperature": -1}, "--router-temperature", "at least 0"),
    ],
)
def test_a_value_that_the_program_refuses_is_refused_with_its_place(policy, params, place, expected):
    with pytest.raises(ConfigError) as error:
        emitted((policy, params))
    assert place in error.value.place and policy in error.value.place
    assert expected in error.value.expected


def test_the_tree_is_as_large_as_simulated_in_each_programs_own_unit():
    """16,777,216 tokens an engine of four characters each, in smg one tree for all; tokens in vllm-router."""
    assert flags("sglang-router:cache_aware")["--max-tree-size"] == 4 * 16_777_216
    assert flags("smg:cache_aware")["--max-tree-size"] == 3 * 4 * 16_777_216
    assert flags("vllm-router:cache_aware")["--max-tree-size"] == 33_554_432
    small = replace(CLUSTER, router=Router(index="approximate", index_params={"capacity_tokens": 200_000}))
    assert flags("vllm-router:cache_aware", cluster=small)["--max-tree-size"] == 200_000
    with pytest.raises(ConfigError, match="longest prompt of the trace has 250,000") as error:
        emitted("vllm-router:cache_aware", cluster=small, longest_prompt=250_000)
    assert error.value.expected == "at least 250000"


def test_a_tree_that_forgets_by_age_cannot_be_had():
    aged = replace(CLUSTER, router=Router(index="approximate", index_params={"ttl_s": 60}))
    found = emitted("sglang-router:cache_aware", cluster=aged)
    assert found.fit == "nearest"
    assert any("forgets nothing by age; simulated was 60 s" in words for words in found.differences)


def test_what_smg_does_by_itself_and_was_not_simulated_is_off():
    found = flags("smg:round_robin")
    assert found["--disable-worker-overload-protection"] is None
    assert (found["--worker-warmup-secs"], found["--worker-warmup-divert-every"]) == (0, 0)
    assert found["--max-concurrent-requests"] == 0


def test_smg_polls_as_often_as_simulated_in_whole_seconds():
    every = replace(CLUSTER, router=Router(metrics_interval_s=3))
    assert flags("smg:least_load", cluster=every)["--load-monitor-interval"] == 3
    fresh = emitted("smg:least_load", cluster=replace(CLUSTER, router=Router(metrics_interval_s=0)))
    assert fresh.differences == ("metrics_interval_s was simulated as 0, deployed it is 1",)


def test_sglang_router_polls_tokens_as_often_as_it_looks_for_engines():
    """30 s unless told otherwise; a run of 0.3.2 polls at the interval of this flag."""
    assert flags("sglang-router:power_of_two")["--worker-startup-check-interval"] == 30
    every = replace(CLUSTER, router=Router(metrics_interval_s=5))
    assert flags("sglang-router:power_of_two", cluster=every)["--worker-startup-check-interval"] == 5


def test_engines_of_sglang_report_tokens_to_smg_and_those_of_vllm_requests():
    sglang = replace(CLUSTER.pools[0], scheduler="sglang")
    cluster = replace(CLUSTER, pools=(sglang,))
    ours = load_policy("smg:least_load")
    theirs = smg.counterpart(ours, cluster, "1.13.0")
    assert (ours.params["queue_tokens"], theirs.params["queue_tokens"]) == (0, 1)
    assert smg.counterpart(theirs, cluster, "1.13.0") is theirs
    assert smg.counterpart(ours, CLUSTER, "1.13.0") is ours
    found = emitted("smg:least_load", cluster=cluster)
    assert found.fit == "nearest" and "report their queue in tokens" in " ".join(found.differences)


def test_of_another_policy_the_signals_do_not_count():
    (only,) = emitted("smetric", "smg").differences
    assert only.startswith("smg:manual instead of smetric: a session stays")


def test_a_bare_formula_is_deployed_as_the_routers_own_policy():
    approximate = replace(CLUSTER, router=Router(index="approximate"))
    same = emitted(("cache-aware", {"calm_of_equals": 1}), "vllm-router", cluster=approximate)
    assert json.loads(same.files["router.json"])["policy"] == "vllm-router:cache_aware"
    assert not any("index was simulated" in words for words in same.differences)


def test_kv_aware_needs_events_and_the_engines_block_size():
    found = emitted("vllm-router:kv_aware")
    assert json.loads(found.files["router.json"])["flags"]["--kv-event-block-size"] == 16
    assert json.loads(found.engine_args["--kv-events-config"])["enable_kv_cache_events"] is True
    assert found.files["engines.txt"].splitlines()[1] == "http://ENGINE-0:8000 tcp://ENGINE-0:5557"
    assert any("--block-size 16" in words for words in found.needs)
    assert json.loads(found.files["router.json"])["flags"]["--kv-event-model"] == "Qwen/Qwen3-8B"


def test_program_scheduling_is_written_from_the_calibration_and_off(tmp_path):
    found = emitted("vllm-router:sticky_least_loaded")
    document = json.loads(found.files["program-scheduling.json"])
    assert document["token_capacity_per_dp_rank"] == CLUSTER.pools[0].usable_blocks * 16
    assert document["binding_strategy"] == "least_program_count"
    assert document["prefill_cost_model"].keys() == {
        "intercept_seconds", "linear_seconds_per_1k_tokens", "quadratic_seconds_per_1k_tokens_squared"
    }  # fmt: skip
    off = started(found.files, tmp_path, "vllm-router", three())
    on = started(found.files, tmp_path, "vllm-router", three(), PROGRAM_SCHEDULING="1")
    assert "--enable-program-scheduling" not in off.stdout
    words = on.stdout.splitlines()
    assert "--enable-program-scheduling" in words
    given = on.stdout.split("--program-scheduling-config-json\n")[1]
    assert json.JSONDecoder().raw_decode(given)[0] == document


def test_a_profile_whose_coefficients_are_not_known_one_by_one_has_no_program_scheduling():
    profile = replace(CLUSTER.pools[0].profile, provenance={"predictive_only": True})
    cluster = replace(CLUSTER, pools=(replace(CLUSTER.pools[0], profile=profile),))
    found = emitted("vllm-router:sticky_least_loaded", cluster=cluster)
    assert "program-scheduling.json" not in found.files
    assert "PROGRAM_SCHEDULING" not in found.files["start.sh"]


def test_sessions_are_named_by_the_header_that_the_router_reads():
    names = {name: [header.name for header in emitted(name).headers] for name in OWN}
    assert names["sglang-router:manual"] == names["smg:consistent_hashing"] == ["X-SMG-Routing-Key"]
    assert names["vllm-router:consistent_hash"] == ["x-session-id"]
    assert names["smg:least_load"] == names["vllm-router:kv_aware"] == []


def test_several_gateways_are_several_copies_of_the_router():
    two = replace(CLUSTER, router=Router(gateways=2))
    assert any("2 copies" in words for words in emitted("sglang-router:cache_aware", cluster=two).needs)


def test_pools_of_different_roles_are_refused():
    prefill = replace(CLUSTER, pools=(replace(CLUSTER.pools[0], role="prefill"),))
    with pytest.raises(ConfigError, match='role = "prefill"'):
        emitted("smg:manual", cluster=prefill)
