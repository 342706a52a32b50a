"""The folder deploy/: whole, the same bytes every time, and what is in it can be read again."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from dataclasses import replace

import numpy as np
import pytest
from oracles.yaml_reader import read_yaml

from agentctl.cluster import check_simulated, cluster_of, load_cluster
from agentctl.emit._canary import watch
from agentctl.emit._readme import Handover, Standing
from agentctl.emit._records import cluster_files
from agentctl.emit._switchback import DAY, HOUR, Effect, _number_of_periods, switchback
from agentctl.emit.base import Deployment, find_target, loaded
from agentctl.emit.deploy import deploy_files
from agentctl.policies._files import parse_policy_file
from agentctl.policies._settings import settled
from agentctl.policies.base import load_policy, policy_names
from agentctl.profile import load_profile

CLUSTER = cluster_of(load_profile("h100-qwen3-8b"), 4)
EFFECT = Effect("TTFT p95", today=1.0, new=0.8, sd_today=0.05, sd_new=0.05, is_clear=True)
PLAN = switchback(600.0, 900.0, 300.0, 4 * HOUR, EFFECT, seed=0)
WATCHED = (
    watch("ttft_p95_s", 1.0, [0.9, 1.0, 1.1], "vllm"),
    watch("hit_ratio", 0.8, [0.8, 0.81, 0.79], "vllm"),
    watch("attained", 0.96, [], "vllm"),
)


def handed(
    policy="llm-d:affinity", router="llm-d", today="llm-d:default", cluster=CLUSTER, before=CLUSTER, **more
):
    ours = loaded(cluster, policy)
    target, version = find_target(router) if router else (None, "")
    old = (before, loaded(before, today)) if today else None
    deployment = Deployment(settled(cluster, ours), ours, version, 1000, 1200, old)
    given = {
        "statement": "affinity carries 2 sessions/min.",
        "slos": ("ttft p95 < 2s",),
        "watched": WATCHED,
        "plan": PLAN,
        "effect": EFFECT,
        "standings": (Standing("smetric", "llm-d:affinity", ("no deadline",), "-3 % (-5 % to -1 %)"),),
        "provenance": (("trace", "day.trace"),),
        **more,
    }
    return Handover(deployment, target, **given)


def texts(given):
    return {name.removeprefix("deploy/"): content.decode() for name, content in deploy_files(given).items()}


def test_the_folder_is_whole_and_the_same_every_time():
    files = deploy_files(handed())
    assert files == deploy_files(handed())
    assert set(files) >= {
        f"deploy/{name}"
        for name in (
            "README.md", "policy.toml", "canary.json", "switchback.json", "changes.diff", "engines/start.sh",
            "router/epp-config.yaml", "router/values.yaml", "rollback/router/epp-arguments.txt",
            "rollback/router/epp-config.yaml", "rollback/engines/start.sh", "simulated/cluster.toml",
        )
    }  # fmt: skip
    assert list(files) == sorted(files)
    assert all(content.endswith(b"\n") for content in files.values())


def test_without_a_router_there_are_engines_and_the_policy():
    files = texts(handed("smetric", router=None, today=None, standings=()))
    assert "engines/start.sh" in files
    assert not any(name.startswith(("router/", "rollback/")) for name in files)
    assert "No router was asked for" in files["README.md"]
    assert "not known here" in files["README.md"]


@pytest.mark.parametrize("policy", policy_names())
def test_what_was_simulated_can_be_simulated_again(policy, tmp_path):
    given = handed(policy, router=None, today=None)
    files = texts(given)
    for name in ("cluster.toml", "profile.toml"):
        (tmp_path / name).write_text(files[f"simulated/{name}"])
    again = load_cluster(tmp_path / "cluster.toml")
    check_simulated(again)
    pool, router = again.pools[0], again.router
    ours = load_policy(router.policy, router.params, router.tie, pool.profile.batch_time)
    simulated = given.deployment
    assert ours.choose is simulated.policy.choose
    assert {k: v for k, v in ours.params.items() if v == v} == {
        k: v for k, v in simulated.policy.params.items() if v == v
    }
    assert ours.tie == simulated.policy.tie
    known = settled(again, ours).router
    for key in ("index", "index_delay_s", "metrics_interval_s", "metrics_delay_s", "gateways"):
        assert getattr(known, key) == getattr(simulated.cluster.router, key)
    assert replace(pool, profile=CLUSTER.pools[0].profile) == CLUSTER.pools[0]
    assert pool.profile.batch_time == CLUSTER.pools[0].profile.batch_time


@pytest.mark.parametrize("policy", policy_names())
def test_the_policy_file_says_what_was_simulated(policy):
    given = handed(policy, router=None, today=None)
    file = parse_policy_file(tomllib.loads(texts(given)["policy.toml"]), "policy.toml")
    ours = given.deployment.policy
    assert {key: param.value for key, param in file.params.items()} == {
        key: None if value != value else value for key, value in ours.params.items()
    }
    assert file.tie == ours.tie
    assert file.signals.index == given.deployment.cluster.router.index


def test_the_changes_are_a_diff_and_a_table():
    pool = replace(CLUSTER.pools[0], max_num_seqs=64)
    files = texts(handed(cluster=replace(CLUSTER, pools=(pool,))))
    changes = files["changes.diff"]
    assert "-  --max-num-seqs 256 \\\n+  --max-num-seqs 64 \\\n" in changes
    assert "--- today/router/epp-config.yaml\n+++ new/router/epp-config.yaml" in changes
    assert "| pool main max\\_num\\_seqs | `256` | `64` |" in files["README.md"]
    assert "| policy | `llm-d:default` | `llm-d:affinity` |" in files["README.md"]


def test_the_same_configuration_changes_nothing():
    files = texts(handed("llm-d:default"))
    assert files["changes.diff"] == ""
    assert "None: it is today's configuration." in files["README.md"]


def test_today_s_policy_of_another_router_is_kept_and_not_guessed():
    files = texts(handed(today="vllm-router:kv_aware"))
    assert not any(name.startswith("rollback/router/") for name in files)
    assert "rollback/engines/start.sh" in files
    assert "keep it" in files["README.md"]


def test_thresholds_are_the_ends_of_the_interval():
    found = {one["key"]: one for one in json.loads(texts(handed())["canary.json"])["watch"]}
    assert found["ttft_p95_s"]["threshold"] == pytest.approx(1.2)  # 1.0 + 2 * 0.1
    assert found["hit_ratio"]["threshold"] == pytest.approx(0.78)  # 0.8 - 2 * 0.01
    assert found["attained"]["threshold"] is None, "no replicates, no interval"
    assert watch("ttft_p95_s", None, [], "vllm") is None
    assert watch("hit_ratio", 0.99, [0.9, 1.0], "sglang").high == 1.0


def test_a_trace_that_does_not_fit_gets_no_files_to_apply():
    given = handed()
    files = texts(replace(given, deployment=replace(given.deployment, longest_total=10**7)))
    assert not any(name.startswith(("router/", "engines/")) for name in files)
    assert "Nothing here can be applied" in files["README.md"]
    assert "policy.toml" in files


def test_hostile_names_stay_text():
    name = "x`]\n| $(reboot) <script>\x1b[31m\u2028'\""
    pool = replace(
        CLUSTER.pools[0], name=name, profile=replace(CLUSTER.pools[0].profile, model=name, gpu=name)
    )
    cluster = replace(CLUSTER, pools=(pool,))
    standing = Standing(name, name, (name,), name)
    given = handed(
        "llm-d:precise", cluster=cluster, before=cluster, statement=name, standings=(standing,),
        provenance=((name, name),), slos=(name,),
    )  # fmt: skip
    files = texts(given)
    script = files["engines/start.sh"].removeprefix("#!/bin/sh\n").replace("\\\n", "")
    assert shlex.split(script)[3] == name
    assert tomllib.loads(files["simulated/cluster.toml"])["pool"][0]["name"] == name
    assert tomllib.loads(files["simulated/profile.toml"])["model"] == name
    assert read_yaml(files["router/epp-config.yaml"])["plugins"][0]["parameters"]["modelName"] == name
    unescaped = re.sub(r"\\.", "", files["README.md"])
    outside = re.sub(r"(`+).*?\1", "", unescaped)
    assert not set(outside) & set("<>`["), "no markup outside of code"
    assert all(line.isprintable() for line in files["README.md"].split("\n"))
    for head, rows in tables_of(files["README.md"]):
        assert all(bars(row) == bars(head) for row in rows)


def tables_of(markdown):
    """Head and rows of every table."""
    blocks = [block.splitlines() for block in markdown.split("\n\n") if block.startswith("|")]
    return [(block[0], block[1:]) for block in blocks]


def bars(row):
    return len(re.findall(r"(?<!\\)\|", row))


def test_two_pools_have_a_folder_each():
    pools = (replace(CLUSTER.pools[0], name="a"), replace(CLUSTER.pools[0], name="b", max_num_seqs=64))
    files = texts(handed(cluster=replace(CLUSTER, pools=pools), today=None))
    assert {"engines-1/start.sh", "engines-2/start.sh"} <= set(files)
    assert files["engines-1/start.sh"] != files["engines-2/start.sh"]


# The switchback plan


def test_a_period_is_three_lifetimes_and_fits_a_day():
    plan = switchback(600.0, 700.0, None, 4 * HOUR, EFFECT, 0)
    assert plan.period_s == 0.5 * HOUR, "three lifetimes of ten minutes"
    assert plan.burn_in_s == 700
    plan = switchback(600.0, 700.0, 3600.0, 4 * HOUR, EFFECT, 0)
    assert (plan.burn_in_s, plan.period_s) == (3600, 2 * HOUR), (
        "KV lives longer: half of a period still counts"
    )
    assert switchback(30_000.0, 30_000.0, None, 4 * HOUR, EFFECT, 0).period_s == 2 * DAY


def test_the_number_of_periods_follows_from_effect_and_spread():
    """sd 0.1 and 0.1 over as long as a period counts, effect 0.1: 7.85 * 0.02 / 0.01 = 15.7."""
    effect = Effect("TTFT p95", 1.0, 0.9, 0.1, 0.1, True)
    plan = switchback(600.0, 900.0, None, 900.0, effect, 0)
    assert plan.period_s - plan.burn_in_s == 900
    per_arm = sum(arm == "new" for _, _, arm in plan.schedule)
    assert per_arm >= 16
    assert per_arm == plan.periods / 2
    finer = switchback(600.0, 900.0, None, 900.0, effect._replace(new=0.99), 0)
    assert finer.periods >= 90 * plan.periods / 4, "a tenth of the effect needs a hundred times the periods"


def test_an_effect_within_its_error_is_not_what_is_looked_for():
    plan = switchback(600.0, 900.0, None, 900.0, EFFECT._replace(new=0.999, is_clear=False), 0)
    assert "within its error" in plan.why
    assert plan.periods is not None
    assert switchback(600.0, 900.0, None, 900.0, None, 0).periods is None


def test_every_hour_of_the_day_sees_both_arms_as_often_in_random_order():
    plan = switchback(600.0, 900.0, None, 900.0, Effect("TTFT p95", 1.0, 0.9, 0.2, 0.2, True), 0)
    by_hour = {}
    for _, hour, arm in plan.schedule:
        by_hour.setdefault(hour, []).append(arm)
    assert all(arms.count("new") == arms.count("today") for arms in by_hour.values())
    first = [arms[0] for arms in by_hour.values()]
    assert 0.2 < first.count("new") / len(first) < 0.8
    starts = [(day, hour) for day, hour, _ in plan.schedule]
    assert starts == sorted(starts)
    assert len(set(starts)) == len(starts)
    other = switchback(600.0, 900.0, None, 900.0, Effect("TTFT p95", 1.0, 0.9, 0.2, 0.2, True), 1)
    assert other.schedule != plan.schedule


def test_a_cluster_of_sglang_with_tiers_is_written_as_it_was_read(tmp_path):
    text = """schema = "agentctl/cluster/1"
[[pool]]
name = "a b"
profile = "h100-qwen3-8b"
engines = 3
scheduler = "sglang"
page_tokens = 16
chunked_prefill_size = 4096
mixed_chunk = true
price_per_hour = 2.5
[router]
policy = "lmetric"
gateways = 2
index_delay_s = 0.25
[[kv_tier]]
preset = "hicache"
[[kv_tier]]
name = "store"
preset = "rdma-store"
capacity_tokens = 5000000
"""
    (tmp_path / "c.toml").write_text(text)
    read = load_cluster(tmp_path / "c.toml")
    ours = loaded(read, "lmetric")
    for name, written in cluster_files(settled(read, ours), ours).items():
        (tmp_path / name).write_text(written)
    again = load_cluster(tmp_path / "cluster.toml")
    assert again.kv_tiers == read.kv_tiers
    assert again.router.index_delay_s == 0.25
    assert again.router.gateways == 2
    assert replace(again.pools[0], profile=read.pools[0].profile) == read.pools[0]


def test_as_many_periods_as_planned_see_the_effect_four_times_in_five():
    """Period means drawn around the simulated values; the two-sided test is at 5 %."""
    effect = Effect("TTFT p95", 1.0, 0.9, 0.15, 0.25, True)
    plan = switchback(600.0, 900.0, None, 1800.0, effect, 0)
    stretch = (1800.0 / (plan.period_s - plan.burn_in_s)) ** 0.5  # shorter than the trace: wider
    n, rng = _per_arm(effect, 1800.0 / (plan.period_s - plan.burn_in_s)), np.random.default_rng(1)
    today = rng.normal(effect.today, effect.sd_today * stretch, (4000, n)).mean(axis=1)
    new = rng.normal(effect.new, effect.sd_new * stretch, (4000, n)).mean(axis=1)
    error = stretch * ((effect.sd_today**2 + effect.sd_new**2) / n) ** 0.5
    found = np.abs(new - today) > 1.96 * error
    assert 0.78 < found.mean() < 0.84
    assert plan.periods >= 2 * n


def _per_arm(effect, stretch):
    return _number_of_periods(effect, stretch)[0]


def test_caps_and_clocks_are_steps_of_their_own_since_no_engine_flag_sets_them():
    pool = replace(
        cluster_of(load_profile("h200-qwen3-8b"), 2).pools[0], power_cap_w=500.0, sm_clock_mhz=1200.0
    )
    told = texts(handed(cluster=replace(CLUSTER, pools=(pool,)), before=None, today=None))
    apply = told["README.md"].split("## Apply")[1]
    assert apply.index("nvidia-smi -pl 500") < apply.index("nvidia-smi -lgc 1200") < apply.index("start.sh")
    again = tomllib.loads(told["simulated/cluster.toml"])["pool"][0]
    assert (again["power_cap_w"], again["sm_clock_mhz"]) == (500.0, 1200.0)
