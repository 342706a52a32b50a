"""From labels to a run between models: prices, limits, beliefs, and what is refused."""

import tomllib
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from oracles.fleets import fleet_case

from agentctl.cli.main import main
from agentctl.cluster import parse_cluster
from agentctl.errors import ConfigError, InputError, UsageError
from agentctl.fleet import Asked, Question, labelled
from agentctl.fleet_means import _union_s, measured
from agentctl.fleet_tau import tau_s
from agentctl.policies.base import load_policy
from agentctl.side_by_side import run_side_by_side
from agentctl.sim.driver import simulate
from agentctl.simulate import run_simulation
from agentctl.synth.labelled import synthesise_labelled
from agentctl.trace import open_trace
from agentctl.workload import compile_workload, scale_load

IDS = [f"r{k}" for k in range(4000)]


# Limits


def test_the_papers_rule_of_the_limit():
    """155 ms, 0.035 ms a token, 1 to 5 ms of queue, 2 % of jitter, within 150 and 1,120 ms."""
    prompt = np.full(4000, 5000)
    limit = tau_s("paper", prompt, IDS) * 1e3
    low, high = (155 + 175 + 1) * 0.98, (155 + 175 + 5) * 1.02
    assert low <= limit.min() < limit.max() <= high
    assert limit.mean() == pytest.approx(155 + 175 + 3, rel=2e-3)
    assert (tau_s("paper", np.full(4000, 10**6), IDS) == 1.12).all()
    assert (tau_s("paper:base_ms=0", np.full(4000, 1), IDS) == 0.15).all()
    assert np.array_equal(tau_s("paper", prompt, IDS), tau_s("paper", prompt, IDS))
    assert not np.array_equal(tau_s("paper", prompt, IDS), tau_s("paper", prompt, IDS, seed=1))
    assert tau_s("paper", prompt[:1], ["r7"])[0] == tau_s("paper", prompt, IDS)[7], "by its id alone"


def test_the_slope_that_the_page_prints_never_reaches_its_own_bound():
    longest = np.full(1, 131_072)
    assert tau_s("paper:slope_ms_per_token=0.0035", longest, IDS[:1])[0] < 0.65


def test_a_limit_is_a_sum_like_an_slo():
    assert tau_s("200ms + 30us*prompt_tokens", np.array([0, 1000]), IDS[:2]) == pytest.approx([0.2, 0.23])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("paper:slop=1", "slope_ms_per_token"),
        ("paper:base_ms=-1", "0 or more"),
        ("soon", "cannot read"),
        ("0ms", "limit is 0"),
    ],
)
def test_a_wrong_limit_is_named(text, words):
    with pytest.raises(UsageError) as caught:
        tau_s(text, np.array([1]), ["r"])
    assert words in f"{caught.value.message} {caught.value.hint} {caught.value.expected}"


# Averages


def test_the_union_of_intervals():
    assert _union_s(np.array([0.0, 5.0, 1.0]), np.array([2.0, 6.0, 3.0])) == 4.0


def test_averages_are_those_of_each_pools_own_speed():
    case = fleet_case(2, n=300)
    fleet = case.workload.fleet
    means = measured(case.cluster, fleet.prompt_tokens, fleet.output_tokens)
    assert (np.diff(means.prefill_tokens_per_s) < 0).all(), "the first pool is the fastest"
    assert (means.decode_step_s[1:] > means.decode_step_s[0]).all()
    assert (np.diff(means.waits, axis=1) >= 0).all() and (means.waits[:, 0] == 0).all()
    again = measured(case.cluster, fleet.prompt_tokens, fleet.output_tokens)
    assert all(np.array_equal(a, b) for a, b in zip(means, again, strict=True))


# A trace with labels

POOL = """
[[pool]]
name = "{name}"
profile = "h100-qwen3-{size}-sfs"
price_per_million_prompt_tokens = {prompt}
price_per_million_output_tokens = {output}
prefix_caching = false
"""
SMALL, LARGE = (
    POOL.format(name="small", size="0.6b", prompt=0.044, output=0.173),
    POOL.format(name="large", size="8b", prompt=0.072, output=0.287),
)
MODELS = ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-8B")


def cluster_of(*pools):
    return parse_cluster(tomllib.loads('schema = "agentctl/cluster/1"\n' + "".join(pools)), "c.toml")


@pytest.fixture(scope="module")
def mix(tmp_path_factory):
    """The paper's task mix, 240 requests, and its labels."""
    folder = tmp_path_factory.mktemp("fleet")
    synthesise_labelled(folder / "mix.trace", requests=240)
    return folder / "mix.trace", folder / "mix.labels.csv"


@pytest.fixture(scope="module")
def means(tmp_path_factory):
    """A table of task means alone."""
    path = tmp_path_factory.mktemp("means") / "means.csv"
    tasks = ("alpaca", "govreport", "hotpotqa", "writingprompts")
    rows = [f",{task},{model},{0.5 + 0.1 * m}" for task in tasks for m, model in enumerate(MODELS)]
    path.write_text("request_id,task,model,score\n" + "\n".join(rows) + "\n")
    return path


def test_a_run_between_models_from_a_trace_and_labels(mix):
    trace, labels = open_trace(mix[0]), mix[1]
    result = run_simulation(
        trace, cluster_of(SMALL, LARGE), policy="hard", models=Asked((labels,), audits=True)
    )
    models, rows = result.document["models"], result.outcome.to_pylist()
    true = {(row["request_id"], row["model"]): row for row in pl.read_csv(labels).iter_rows(named=True)}
    lam, gained = 5e-4, []
    for row in rows:
        label = true[row["request_id"], row["model"]]
        assert row["output_tokens"] == label["output_tokens"]
        assert row["score"] == pytest.approx(label["score"])
        price = {"Qwen/Qwen3-0.6B": (0.044, 0.173), "Qwen/Qwen3-8B": (0.072, 0.287)}[row["model"]]
        cost = price[0] * row["prompt_tokens"] + price[1] * row["output_tokens"]
        assert row["cost_microdollars"] == pytest.approx(cost)
        assert row["utility"] == pytest.approx(row["score"] - lam * cost)
        on_time = row["first_token_s"] - row["arrival_s"] <= row["tau_s"]
        gained.append(row["utility"] if on_time else 0.0)
    assert models["on_time_utility"] == pytest.approx(np.mean(gained))
    assert sum(one["requests"] for one in models["models"]) == len(rows)
    assert {one["task"] for one in models["tasks"]} == {"alpaca", "govreport", "hotpotqa", "writingprompts"}
    errors = {one["estimator"]: one for one in models["estimates"] if one["part"] == "all"}
    assert errors["sfs"]["mape"] < 0.05 < errors["throughput"]["mape"]
    assert models["unjudged"] == 0


def test_a_price_of_accuracy_moves_requests_to_the_cheap_model(mix):
    trace, shares = open_trace(mix[0]), []
    for lam in (0.0, 5e-4, 1.0):
        asked = Asked((mix[1],), Question(lam=lam))
        found = run_simulation(
            trace, cluster_of(SMALL, LARGE), policy="latency-agnostic", models=asked
        ).document
        shares.append(found["models"]["models"][0]["requests"])
        assert found["models"]["lam"] == lam
    assert shares == sorted(shares) and shares[0] < shares[-1] > 200


def test_policies_side_by_side_with_their_trade_offs(mix):
    chosen = [("soft", {"delta_per_ms": d}) for d in (0.0, 0.001, 0.01)] + [("round-robin", {})]
    result = run_side_by_side(
        open_trace(mix[0]), [({}, cluster_of(SMALL, LARGE))], chosen, models=Asked((mix[1],))
    )
    section = next(one for one in result.sections if one.name == "models")
    waits = [run["models"]["ttft_s_mean"] for run in result.document["runs"][:3]]
    assert waits == sorted(waits, reverse=True), "the dearer waiting is, the less there is"
    assert [len(curve.x) for curve in section.figures[0].curves] == [3, 1]


def test_limits_and_labels_follow_a_request_to_other_loads(mix):
    trace, cluster = open_trace(mix[0]), cluster_of(SMALL, LARGE)
    workload = labelled(compile_workload(trace), trace, cluster, Asked((mix[1],)))
    more = scale_load(workload, 1.5, seed=3)
    fleet, at = workload.fleet, {name: r for r, name in enumerate(workload.request_ids)}
    rows = [at[name.partition("~")[0]] for name in more.request_ids]
    for name in ("output_tokens", "score", "accuracy", "predicted_output", "tau_s", "task"):
        assert np.array_equal(getattr(more.fleet, name), getattr(fleet, name)[rows], equal_nan=True)


@pytest.mark.parametrize(("outputs", "factor"), [("true", 1.0), ("x0.5", 0.5), ("x1.5", 1.5)])
def test_lengths_may_be_known_or_set_wrong_on_purpose(mix, outputs, factor):
    trace, cluster = open_trace(mix[0]), cluster_of(SMALL, LARGE)
    fleet = labelled(
        compile_workload(trace), trace, cluster, Asked((mix[1],), Question(outputs=outputs))
    ).fleet
    assert np.array_equal(fleet.predicted_output, np.maximum(np.rint(factor * fleet.output_tokens), 1))


def tasks_of(labels, folder):
    """Of which task each request is, and no more."""
    only = pl.read_csv(labels).select("request_id", "task").unique(maintain_order=True)
    only = only.with_columns(model=pl.lit(None, pl.String), score=pl.lit(None, pl.Float64))
    only.write_csv(folder / "tasks.csv")
    return folder / "tasks.csv"


def test_task_means_are_enough_for_accuracy(mix, means, tmp_path):
    tasks = tasks_of(mix[1], tmp_path)
    trace, cluster = open_trace(mix[0]), cluster_of(SMALL, LARGE)
    fleet = labelled(compile_workload(trace), trace, cluster, Asked((tasks, means))).fleet
    assert np.unique(fleet.accuracy[:, 0]).tolist() == [0.5]
    assert np.unique(fleet.accuracy[:, 1]).tolist() == [0.6]
    assert np.isnan(fleet.score).all()
    found = run_simulation(trace, cluster, policy="hard", models=Asked((tasks, means))).document
    assert found["models"]["on_time_utility"] is None and found["models"]["unjudged"] == 240


def test_what_is_missing_is_named(mix, means, tmp_path):
    trace, labels = open_trace(mix[0]), mix[1]
    free = LARGE.replace("price_per_million_output_tokens = 0.287\n", "")
    with pytest.raises(ConfigError, match=r"large: price_per_million_output_tokens: missing"):
        run_simulation(trace, cluster_of(SMALL, free), policy="hard", models=Asked((labels,)))
    other = LARGE + 'model = "mine/8b"\n'
    with pytest.raises(ConfigError, match="no label speaks of mine/8b"):
        run_simulation(trace, cluster_of(SMALL, other), policy="hard", models=Asked((labels,)))
    with pytest.raises(InputError, match="no request of the trace has a task"):
        run_simulation(trace, cluster_of(SMALL, LARGE), policy="hard", models=Asked((means,)))
    some = tmp_path / "some.csv"
    some.write_text("".join(line for line in means.read_text().splitlines(True) if "alpaca" not in line))
    with pytest.raises(InputError, match="accuracy is unknown of 60 requests of 240 on Qwen/Qwen3"):
        run_simulation(
            trace, cluster_of(SMALL, LARGE), policy="hard", models=Asked((tasks_of(labels, tmp_path), some))
        )
    with pytest.raises(ConfigError, match="chooses between models"):
        run_simulation(trace, cluster_of(SMALL, LARGE), policy="hard")
    with pytest.raises(UsageError, match="outputs"):
        run_simulation(trace, cluster_of(SMALL, LARGE), models=Asked((labels,), Question(outputs="xx")))


def test_prompts_of_other_lengths_do_not_go_with_a_cache_of_the_logs_blocks():
    case = fleet_case(1)
    cached = replace(
        case.cluster, pools=tuple(replace(pool, prefix_caching=True) for pool in case.cluster.pools)
    )
    with pytest.raises(ConfigError, match="other lengths"):
        simulate(case.workload, cached, load_policy("hard"))


def test_options_of_models_belong_to_labels(mix, capsys):
    for option in (("--lambda", "0.1"), ("--tau", "1s"), ("--outputs", "true"), ("--audit",)):
        assert main(["simulate", str(mix[0]), "--profile", "h100-qwen3-8b", *option]) == 2
        assert "--labels" in capsys.readouterr().err
