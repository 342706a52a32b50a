"""One policy on one cluster: load, run, measure, and say what happened (behind `agentctl simulate`)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from agentctl import __version__
from agentctl.analyzers.words import count, percent, seconds
from agentctl.cluster import load_cluster
from agentctl.distinct import distinct
from agentctl.energy_use import energy_facts, energy_section, power_words
from agentctl.errors import UsageError
from agentctl.explain import explain_requests, explain_section, request_numbers
from agentctl.files import canonical_json
from agentctl.fleet import Asked, labelled
from agentctl.fleet_use import fleet_facts, fleet_section
from agentctl.hand_overs import hand_over_facts, hand_over_section
from agentctl.hot_spots import hot_spots, hot_spots_section
from agentctl.inside.hot import hot_figure
from agentctl.inside.look import Look, sources
from agentctl.isolated import isolated, isolated_section
from agentctl.metrics import Run, Samples, measure, per_s, tokens_per_s
from agentctl.policies._names import parse_policy
from agentctl.policies._settings import router_settings, router_words
from agentctl.policies.base import Policy, load_policy
from agentctl.present import Section, Table
from agentctl.regret import regret_section, sample_regret
from agentctl.result import Progress, RunResult
from agentctl.sim.driver import simulate
from agentctl.sim.pair_state import has_roles
from agentctl.simulate_sections import balance, course, latency
from agentctl.slo import Slo, parse_slos, requests_within_all
from agentctl.tier_use import tier_facts, tier_section, tier_words
from agentctl.workload import Process, Workload, compile_arriving

if TYPE_CHECKING:
    from agentctl.cluster import Cluster
    from agentctl.profile import Profile
    from agentctl.trace import Trace

SIMULATE_SCHEMA = "agentctl/simulate/1"
COUNTED = {  # keys of Workload.counts
    "causal_fallback": "later turns that follow the log's clock, because no end before them is known",
    "cut_short": "aborted or timed-out requests, run with the output they got",
    "output_0_as_1": "outputs of no token, run as one token",
}


def run_simulation(
    trace: Trace,
    cluster: Cluster,
    *,
    policy: str | None = None,
    params: Mapping[str, Any] | None = None,
    replay: str | None = None,
    concurrency: int | None = None,
    arrivals: Process | None = None,
    seed: int = 0,
    slos: Sequence[str] = (),
    explain: Sequence[str] = (),
    regret: int = 0,
    alone: bool = False,
    models: Asked | None = None,
    progress: Progress | None = None,
) -> RunResult:
    """Replay `trace` on `cluster` under one policy.

    policy       name; default: the cluster's router, with its parameters. `params` override them
    replay       timestamps | causal | thinktime | closed-loop; default thinktime where gaps are known
    concurrency  sessions in flight, for closed-loop
    arrivals     what makes the starts of sessions, or of requests by themselves; None: as logged
    slos         SLO expressions (agentctl.slo); none: the default SLO, printed
    explain      ids of requests whose placing is shown, with what each other engine would have given them
    regret       requests drawn to compare their engine with the best one; each costs a copy of the cluster
                 and a part of the run per engine
    alone        run every session in isolation, too, and compare: one run more
    models       pools serve different models, and labels say how well

    The document has schema `agentctl/simulate/1`. Raises InputError (trace), ConfigError (cluster, policy),
    UsageError (SLO, replay, a request that is not there).
    """
    objectives = parse_slos(slos)
    chosen = policy_of(cluster, policy, params)
    workload = compile_arriving(trace, replay, arrivals, seed)
    if models:
        workload = labelled(workload, trace, cluster, models)
    return simulate_policy(
        workload, cluster, chosen, objectives, concurrency, seed, progress,
        explain=explain, regret=regret, alone=alone, models=models,
    )  # fmt: skip


def simulate_policy(
    workload: Workload,
    cluster: Cluster,
    chosen: Policy,
    objectives: tuple[Slo, ...],
    concurrency: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    *,
    explain: Sequence[str] = (),
    regret: int = 0,
    alone: bool = False,
    models: Asked | None = None,
) -> RunResult:
    """`run_simulation` of a compiled workload under a loaded policy."""
    return look_at_policy(
        workload, cluster, chosen, objectives, concurrency, seed, progress,
        explain=explain, regret=regret, alone=alone, models=models,
    )[0]  # fmt: skip


def look_at_policy(
    workload: Workload,
    cluster: Cluster,
    chosen: Policy,
    objectives: tuple[Slo, ...],
    concurrency: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    *,
    explain: Sequence[str] = (),
    regret: int = 0,
    alone: bool = False,
    models: Asked | None = None,
) -> tuple[RunResult, Look]:
    """`simulate_policy`, and the run from inside."""
    if (explain or regret) and (chosen.places or has_roles(cluster)):
        raise UsageError(
            "what another engine would have given a request is not shown where engines have roles",
            expected="no --explain and no --regret, or pools that are both",
        )
    explained = request_numbers(workload, explain)
    cluster, router = _settled(cluster, chosen)
    audits = models is not None and models.audits
    outcome = simulate(workload, cluster, chosen, seed, concurrency, progress, observed=True, audits=audits)
    run = outcome.run()
    if alone:
        run = run._replace(isolated=isolated(workload, cluster))
    document: dict[str, Any] = {
        "schema": SIMULATE_SCHEMA,
        "agentctl_version": __version__,
        "trace": trace_facts(workload),
        "cluster": cluster_facts(cluster),
        "policy": chosen.name,
        "params": plain(chosen.params),
        "tie": chosen.tie,
        "router": router,
        "replay": workload.replay,
        "arrivals": workload.arriving.facts() if workload.arriving else None,
        "concurrency": concurrency,
        "seed": seed,
        "requests": workload.n_requests,
        "rejected": int((~run.done).sum()),
        "counts": workload.counts,
        "slo": [slo_facts(slo, run) for slo in objectives],
        "metrics": {**measure(run), **_within(run, objectives)},
        "samples": _sample_facts(run.samples),
        "engines": _engine_facts(run),
        "tiers": tier_facts(cluster, outcome.tiers, run),
        "hand_overs": hand_over_facts(cluster, outcome),
        "energy": energy_facts(cluster, outcome, run),
        "models": fleet_facts(outcome, run),
    }
    if models is not None and document["models"] is not None:
        document["models"] |= asdict(models.question)
    ran = (outcome, cluster, chosen, seed, concurrency)
    why: dict[str, Any] = {
        "explain": explain_requests(*ran, explained),
        "regret": sample_regret(*ran, regret, progress) if regret else None,
        "hot_spots": hot_spots(outcome, cluster),
    }
    look = Look(chosen.name, run, run, sources(run), why["hot_spots"], why["regret"])
    sections = (
        _verdict(document, workload),
        *(explain_section(one, place) for place, one in enumerate(why["explain"], start=1)),
        *([regret_section(why["regret"])] if why["regret"] else []),
        *([fleet_section(document["models"])] if document["models"] else []),
        latency(document, look),
        *([isolated_section(document["metrics"])] if alone else []),
        balance(document, look),
        *([tier_section(document["tiers"])] if cluster.kv_tiers else []),
        *([hand_over_section(document["hand_overs"])] if document["hand_overs"] else []),
        *([energy_section(document["energy"])] if outcome.energy else []),
        course(document, run),
        replace(hot_spots_section(why["hot_spots"]), figures=(hot_figure([look]),) if run.done.any() else ()),
        _assumed(workload, cluster),
    )
    return RunResult({**document, **why}, sections, outcome=outcome.table()), look


def policy_of(cluster: Cluster, name: str | None = None, params: Mapping[str, Any] | None = None) -> Policy:
    """The policy of that name, or the cluster's router's with its parameters, under `params`."""
    router = cluster.router
    own = router.params if name in (None, router.policy) else {}
    profile = cluster.pools[0].profile
    given = {**own, **(params or {})}
    return load_policy(name or router.policy, given, router.tie, profile.batch_time, profile.predictive_only)


def current_policy(text: str, cluster: Cluster) -> tuple[str, Policy]:
    """What --current names: `POLICY`, `POLICY:key=value,...`, or a cluster file whose router is in use."""
    if text.endswith(".toml"):
        router = load_cluster(Path(text)).router
        policy = policy_of(replace(cluster, router=router))
    else:
        policy = policy_of(cluster, *parse_policy(text, "--current"))
    return policy.name, policy


def _settled(cluster: Cluster, policy: Policy) -> tuple[Cluster, dict[str, Any]]:
    """The cluster as its router is under this policy, and each of its settings with where it came from."""
    router, origins = router_settings(cluster.router, policy)
    settings = {key: {"value": getattr(router, key), "origin": where} for key, where in origins.items()}
    return replace(cluster, router=router), {"gateways": router.gateways, **settings}


def trace_facts(workload: Workload) -> dict[str, Any]:
    sessions = len(workload.session_ids)
    return {"name": workload.trace_name, "digest": workload.trace_digest, "sessions": sessions}


def cluster_facts(cluster: Cluster) -> dict[str, Any]:
    pools = []
    for pool in cluster.pools:
        profile = pool.profile
        facts = {"name": pool.name, "engines": pool.engines, "profile": profile.name, "model": profile.model}
        limits = ("block_tokens", "kv_blocks", "max_num_batched_tokens", "max_num_seqs", "max_model_len")
        batch_time = profile.batch_time._asdict()
        source = profile.provenance.get("source")
        pools.append(
            {
                **facts,
                **{key: getattr(pool, key) for key in limits},
                "gpu": profile.gpu,
                "power_cap_w": pool.power_cap_w,
                "sm_clock_mhz": pool.sm_clock_mhz,
                "batch_time": batch_time,
                "source": source,
                "calibration_digest": calibration_digest(profile),
            }
        )
    tiers = [asdict(tier) for tier in cluster.kv_tiers]
    return {"engines": cluster.n_engines, "gpus": cluster.n_gpus, "pools": pools, "kv_tiers": tiers}


def calibration_digest(profile: Profile) -> str:
    """Of what makes an engine's times, whatever the file is called."""
    known = {"model": profile.model, "gpu": profile.gpu, "batch_time": profile.batch_time._asdict()}
    return hashlib.blake2b(canonical_json(known), digest_size=16).hexdigest()


def slo_facts(slo: Slo, run: Run) -> dict[str, Any]:
    return {"objective": slo.text, "attained": slo.attained(run), "holds": slo.holds(run)}


def plain(values: Mapping[str, float]) -> dict[str, float | None]:
    """For JSON: NaN becomes null."""
    return {key: None if math.isnan(value) else value for key, value in values.items()}


def assumptions(workload: Workload, cluster: Cluster, router: str) -> tuple[str, ...]:
    """What every simulated number rests on, in words; `router` says what it knows."""
    said = arrival_words(workload)
    for key, n in sorted(workload.counts.items()):
        said.append(f"{COUNTED.get(key, key.replace('_', ' '))}: {n:,}")
    for pool in cluster.pools:
        profile = pool.profile
        origin = (
            profile.provenance.get("statement") or profile.provenance.get("source") or "origin not stated"
        )
        said.append(f"batch times of profile {profile.name}: {origin}")
        said.append(
            f"engines of pool {pool.name}: {pool.kv_blocks:,} KV blocks of {pool.block_tokens} tokens, at "
            f"most {pool.max_num_batched_tokens:,} tokens and {pool.max_num_seqs:,} sequences a batch"
        )
        if "kv_blocks" in profile.provenance:
            said.append(f"KV blocks: {profile.provenance['kv_blocks']}")
    said += power_words(cluster)
    gateways = count(cluster.router.gateways, "gateway")
    said.append(f"{router}; {gateways}; {tier_words(cluster)}")
    said += [
        f"tier {tier.name} gives away what it is read, and gets it back only when it is computed again "
        '(inclusion = "exclusive" with write = "through"; "back" is usual)'
        for tier in cluster.kv_tiers
        if tier.inclusion == "exclusive" and tier.write != "back"
    ]
    said.append("engines start empty; asynchronous scheduling is not simulated")
    return tuple(said)


def arrival_words(workload: Workload) -> list[str]:
    """How requests come to arrive."""
    process, mode = workload.arriving, workload.replay
    modes = {
        "timestamps": "every request arrives when the log says",
        "causal": "a turn arrives when the log says, but not before its predecessor has ended",
        "thinktime": "a turn arrives its logged gap after its predecessor has ended",
        "closed-loop": "a fixed number of sessions is in flight, gaps as logged",
    }
    if process is None:
        return [f"replay {mode}: {modes[mode]}"]
    said = [f"{process.words()}; when the log's {process.of} started is not used"]
    if process.of == "requests":
        return [*said, "every request is a session of its own: it waits for no other"]
    if mode != "thinktime":
        modes |= {"timestamps": "a turn arrives as long after its session's start as the log says"}
        modes |= {"causal": f"{modes['timestamps']}, but not before its predecessor has ended"}
    return [*said, f"replay {mode}: {modes[mode]}"]


def _within(run: Run, slos: tuple[Slo, ...]) -> dict[str, Any]:
    within = requests_within_all(slos, run)
    share = float(within.mean()) if within.size else None
    tokens = tokens_per_s(run, within)
    return {
        "within_slo": {"unit": "ratio", "better": "higher", "per": "run", "value": share},
        "output_tokens_per_s_within_slo": {
            "unit": "tokens_per_s", "better": "higher", "per": "run", "value": tokens,
        },
        "requests_per_s_within_slo": {
            "unit": "per_s", "better": "higher", "per": "run", "value": per_s(run, within),
        },
    }  # fmt: skip


def _engine_facts(run: Run) -> list[dict[str, Any]]:
    """What every engine did: prompts on the one that computed them, answers where they were decoded."""
    n, done, over = run.n_engines, run.done, run.hand_overs
    engine = run.engine[done]
    decode = engine if over is None else over.decode_engine[done]
    is_moved = (decode != engine).astype(np.int64)

    def total(here: NDArray[np.int64], there: NDArray[np.int64] | None = None) -> list[int]:
        """Of all requests, by engine; `there`: what of it was on the decoder."""
        sums, rest = np.zeros(n, np.int64), np.zeros(engine.size, np.int64) if there is None else there[done]
        np.add.at(sums, engine, here[done] - rest)
        np.add.at(sums, decode, rest)
        return [int(one) for one in sums]

    output = run.output_tokens
    of_decoder = np.zeros_like(output)
    of_decoder[done] = (output[done] - 1) * is_moved  # the first token is out before
    session = np.tile(run.session[done].astype(np.int64), 2)
    columns: dict[str, list[Any]] = {
        "requests": [int(one) for one in np.bincount(engine, minlength=n)],
        "decoded_requests": [int(one) for one in np.bincount(decode, minlength=n)],
        "computed_prefill_tokens": total(run.computed_prefill_tokens, over and over.computed_tokens),
        "output_tokens": total(output, of_decoder),
        "hit_ratio": [
            cached / prompt if prompt else None
            for cached, prompt in zip(total(run.cached_tokens), total(run.prompt_tokens), strict=True)
        ],
        "sessions": [
            int(one)
            for one in np.bincount(distinct(session * n + np.concatenate([engine, decode])) % n, minlength=n)
        ],
        "preemptions": total(run.preemptions, over and over.preemptions),
    }
    return [{"engine": e, **{key: of[e] for key, of in columns.items()}} for e in range(n)]


def _sample_facts(samples: Samples | None) -> dict[str, Any] | None:
    """How often the metrics over time looked."""
    if samples is None or not samples.time_s.size:
        return None
    width = None if math.isnan(samples.width_s) else samples.width_s
    return {"count": samples.time_s.size, "first_s": float(samples.time_s[0]), "width_s": width}


def _verdict(document: dict[str, Any], workload: Workload) -> Section:
    metrics = document["metrics"]
    engines = count(document["cluster"]["engines"], "engine")
    ttft, share = metrics["ttft_s"], metrics["within_slo"]["value"]
    arrivals = f", {workload.arriving.words()}" if workload.arriving else ""
    sentence = f"{document['policy']} on {engines}{arrivals}: "
    if ttft["n"]:
        sentence += f"TTFT p50 {seconds(ttft['p50'])}, p95 {seconds(ttft['p95'])}; "
        sentence += f"{percent(share)} of {count(document['requests'], 'request')} within all objectives"
    else:
        sentence += "no request was served"
    words = {True: "holds", False: "missed", None: "counts no request"}
    rows = tuple((slo["objective"], slo["attained"], words[slo["holds"]]) for slo in document["slo"])
    table = Table((("objective", ""), ("within the limit", "ratio"), ("result", "")), rows)
    rejected = document["rejected"]
    was = "was" if rejected == 1 else "were"
    warnings = (
        (f"{count(rejected, 'request')} can never fit an engine and {was} rejected",) if rejected else ()
    )
    return Section("verdict", "What would have happened", sentence, tables=(table,), warnings=warnings)


def _assumed(workload: Workload, cluster: Cluster) -> Section:
    sentence = "The numbers hold under these assumptions."
    return Section(
        "assumptions",
        "What was assumed",
        sentence,
        assumptions=assumptions(workload, cluster, router_words(cluster.router)),
    )
