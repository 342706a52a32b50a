"""llm-d's endpoint picker: an EndpointPickerConfig, chart values that carry it, arguments of the picker.

Source of keys, defaults and rules: llm-d-router after v0.10.0 (main of 2026-08-22).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentctl.cluster import Cluster, IndexParams, own_index
from agentctl.emit._llm_d_config import check_config
from agentctl.emit._yaml import yaml_text
from agentctl.emit.base import (
    Deployment,
    Emitted,
    Header,
    Near,
    check_limits,
    check_roles,
    counterpart_of,
    fit_of,
    formula_of,
    instead_of,
    lateness,
    none_for,
    number,
    undeployed_signals,
)
from agentctl.emit.engine_costs import peak_prefill_tokens_per_s
from agentctl.policies.base import Policy

NAME = "llm-d"
VERSIONS = ("0.10.0",)
SCRAPE_S = 0.05  # of --refresh-metrics-interval, the picker's own
MATCHED_TOKENS = 131_072  # maxPrefixTokensToMatch, its default
LEAST_BLOCK = 64  # tokens; the approximate index raises smaller ones
LRU_ENTRIES = 31_250  # lruCapacityPerServer, its default
FILE = "epp-config.yaml"
ARGUMENTS = "epp-arguments.txt"
SESSION = Header(
    "x-session-id", "one value for all requests of a session", "the picker binds it to an engine"
)

_GATE = "llm-d:affinity:max_ttft_penalty_ms=4000"
_ONE_SCORE = "llm-d:default:queue_weight=0,kv_weight=0,prefix_weight=0"
_SESSIONS_STAY = "the session's engine is kept whatever its load, and forgotten after session_ttl_s"
_GATED = (
    "an engine that holds 0.8 of the prompt is kept unless its prefill in flight is 4 s behind the best "
    "other one; then token load decides"
)
_BY_HIT = "only the share of the prompt that hits counts; ties are drawn at random"
_SUM = "hit, queue and KV in use are added with weights instead"
_IN_FLIGHT = "the picker's own requests in flight stand for the batch"
_TOKENS = "the picker's own prefill tokens in flight stand for the work that waits"
NEAREST = {
    "smetric": Near(_GATE, f"no deadline: {_GATED}"),
    "smetric-v1": Near(_GATE, f"no mean load: {_GATED}"),
    "hybrid-sticky": Near(_GATE, f"sessions are not known: {_GATED}"),
    "bounded-most-hit": Near(_GATE, _GATED),
    "cache-aware": Near(_GATE, f"the gate is per request: {_GATED}"),
    "cache-aware-spill": Near(_GATE, _GATED),
    "dualmap": Near(_GATE, f"no pair of engines by hash: {_GATED}"),
    "preble": Near(_GATE, _GATED),
    "preble@aibrix": Near(_GATE, _GATED),
    "aibrix-prefix-cache": Near(_GATE, _GATED),
    "aibrix-gateway-prefix-cache": Near(_GATE, _GATED),
    "session-sticky": Near("llm-d:session_affinity", _SESSIONS_STAY),
    "sticky-least-loaded": Near("llm-d:session_affinity", f"new sessions go by load; {_SESSIONS_STAY}"),
    "manual": Near("llm-d:session_affinity", f"new sessions go by load; {_SESSIONS_STAY}"),
    "consistent-hash": Near("llm-d:session_affinity", f"by load, not by hash; {_SESSIONS_STAY}"),
    "conserve": Near("llm-d:session_affinity", f"KV is not reserved; {_SESSIONS_STAY}"),
    "autellix": Near("llm-d:session_affinity", f"short calls stay too; {_SESSIONS_STAY}"),
    "lmetric": Near("llm-d:precise", f"no product of tokens and batch: {_SUM}"),
    "lmetric@vllm-router": Near("llm-d:precise", f"no product of tokens and batch: {_SUM}"),
    "lmetric@llm-d": Near("llm-d:precise", f"an open pull request: {_SUM}"),
    "lmetric@sglang": Near("llm-d:precise", f"no product of tokens and batch: {_SUM}"),
    "lmetric@dynamo": Near("llm-d:precise", f"no product of tokens and blocks: {_SUM}"),
    "dynamo-kv": Near("llm-d:precise", f"not a sum of blocks: {_SUM}"),
    "dynamo-worker-selector": Near("llm-d:precise", f"not a sum of blocks: {_SUM}"),
    "bailian-linear": Near("llm-d:precise", f"the share of the prompt, not scaled over engines; {_SUM}"),
    "bailian-sampled": Near("llm-d:precise:weighted_random=1", f"drawn by other scores: {_SUM}"),
    "llm-d-precise": Near("llm-d:precise:queue_weight=0,kv_weight=0,prefix_weight=10,load_aware_weight=1",
                          "the share of the prompt, not scaled over engines"),
    "loadaware": Near("llm-d:precise", _SUM),
    "least-ttft": Near("llm-d:token_load", f"no time is predicted: {_TOKENS}, new tokens included"),
    "mooncake-conductor": Near("llm-d:token_load", f"no time is predicted: {_TOKENS}, new tokens included"),
    "polyserve": Near("llm-d:token_load", f"requests are spread, not packed: {_TOKENS}"),
    "lpwl": Near("llm-d:token_load", f"{_TOKENS}, new tokens included"),
    "token-load": Near("llm-d:token_load", _TOKENS),
    "least-tokens": Near("llm-d:token_load", _TOKENS),
    "least-load": Near("llm-d:token_load", _TOKENS),
    "most-hit": Near("llm-d:precise:queue_weight=0,kv_weight=0", _BY_HIT),
    "prefix-affine": Near("llm-d:precise:queue_weight=0,kv_weight=0", _BY_HIT),
    "kvaware": Near("llm-d:precise:queue_weight=0,kv_weight=0", _BY_HIT),
    "prefixaware": Near("llm-d:default:queue_weight=0,kv_weight=0", _BY_HIT),
    "prefix-hash": Near("llm-d:default:queue_weight=0,kv_weight=0", f"no ring: {_BY_HIT}"),
    "least-loaded": Near("llm-d:active_request", _IN_FLIGHT),
    "least-inflight": Near("llm-d:active_request", "the same count, as a score"),
    "power-of-two": Near("llm-d:active_request", f"the least of all engines, not of two; {_IN_FLIGHT}"),
    "power-of-two-inflight": Near("llm-d:active_request", "the least of all engines, not of two"),
    "power-of-two-tokens": Near("llm-d:token_load", f"the least of all engines, not of two; {_TOKENS}"),
    "least-waiting": Near(f"{_ONE_SCORE},queue_weight=1", "ties are drawn at random"),
    "least-kv": Near(f"{_ONE_SCORE},kv_weight=1", "as a share of the engine's KV, as of the last scrape"),
    "vllm-dp-balancer": Near(f"{_ONE_SCORE},queue_weight=4,running_weight=1", "counts scaled over engines"),
    "vllm-dp-balancer@lmetric-artifact": Near(
        f"{_ONE_SCORE},queue_weight=5,running_weight=1", "counts scaled over engines"),
    "random": Near(_ONE_SCORE, "no scorer: the picker draws among equal engines"),
    "round-robin": Near(_ONE_SCORE, "no order: the picker draws among equal engines"),
}  # fmt: skip

WEIGHTS = {  # parameter of the formula -> plugin
    "token_load_weight": "token-load-scorer",
    "active_request_weight": "active-request-scorer",
    "no_hit_lru_weight": "no-hit-lru-scorer",
    "queue_weight": "queue-scorer",
    "running_weight": "running-requests-size-scorer",
    "kv_weight": "kv-cache-utilization-scorer",
    "load_aware_weight": "load-aware-scorer",
    "prefix_weight": "prefix-cache-scorer",
    "session_weight": "session-affinity-scorer",
}
SETTINGS = {  # plugin -> its parameter -> parameter of the formula
    "load-aware-scorer": {"threshold": "load_threshold"},
    "active-request-scorer": {"idleThreshold": "idle_threshold", "maxBusyScore": "max_busy_score"},
    "token-load-scorer": {"queueThresholdTokens": "queue_threshold_tokens"},
    "prefix-cache-scorer": {
        "matchLengthWeight": "match_length_weight",
        "matchLengthScaleTokens": "match_length_scale_tokens",
    },
    "prefix-cache-affinity-filter": {
        "affinityThreshold": "affinity_threshold",
        "explorationProbability": "exploration_probability",
        "maxTTFTPenaltyMs": "max_ttft_penalty_ms",
        "peakPrefillThroughput": "peak_prefill_throughput",
    },
}
READS_PREFIX = ("prefix-cache-affinity-filter", "prefix-cache-scorer", "no-hit-lru-scorer")
READS_HITS = (*READS_PREFIX, "token-load-scorer")  # the last through the producer of the load
READS_LOAD = ("prefix-cache-affinity-filter", "token-load-scorer", "active-request-scorer")
SCRAPED = ("queue_weight", "running_weight", "kv_weight", "load_aware_weight")
AFFINITY = ("session-affinity-filter", "session-affinity-scorer")


def counterpart(policy: Policy, cluster: Cluster, version: str) -> Policy | None:
    """The composition of filters and scorers that comes nearest; its speed of prefill is the profile's."""
    found = counterpart_of(policy, cluster, NAME, NEAREST)
    is_ours = found is not None and formula_of(policy) == formula_of(found)
    if found is None or found is policy or is_ours or not found.params["affinity_filter"]:
        return found
    peak = _calibrated_peak(cluster)
    return found if peak is None else replace(found, my=found.my._replace(peak_prefill_throughput=peak))


def emit(deployment: Deployment) -> Emitted:
    check_limits(deployment)
    check_roles(deployment)
    theirs = counterpart(deployment.policy, deployment.cluster, deployment.version)
    if theirs is None:
        return none_for(deployment.policy, "llm-d")
    document = configuration(theirs, deployment)
    arguments = list(check_config(document))
    if _reads_metrics(theirs):
        arguments.append(f"--refresh-metrics-interval={_scrape_ms(deployment):g}ms")
    text = yaml_text(document)
    values = {"router": {"epp": {"pluginsConfigFile": FILE, "pluginsCustomConfig": {FILE: text}}}}
    differences = tuple(_differences(deployment, theirs))
    uses_session = any(plugin["type"] in AFFINITY for plugin in document["plugins"])
    return Emitted(
        files={
            FILE: text,
            "values.yaml": yaml_text(values),
            **({ARGUMENTS: "".join(f"{argument}\n" for argument in arguments)} if arguments else {}),
        },
        headers=(SESSION,) if uses_session else (),
        fit=fit_of(deployment.policy, theirs, differences),
        differences=differences,
        needs=tuple(_needs(deployment, theirs)),
        engine_args=_engine_args(deployment, theirs),
        apply=(
            "helm upgrade --reuse-values -f values.yaml on the llm-d-router chart (gateway or standalone)",
            *([f"add the lines of {ARGUMENTS} to the arguments of the endpoint picker"] if arguments else []),
        ),
    )


def configuration(policy: Policy, deployment: Deployment) -> dict[str, Any]:
    """The document that makes llm-d decide as `policy`."""
    my = policy.params
    filters = [
        *(["session-affinity-filter"] if my["session_filter"] else []),
        *(["prefix-cache-affinity-filter"] if my["affinity_filter"] else []),
    ]
    scorers = [(plugin, my[weight]) for weight, plugin in WEIGHTS.items() if my[weight]]
    picker = "weighted-random-picker" if my["weighted_random"] else "max-score-picker"
    used = [*filters, *(plugin for plugin, _ in scorers)]
    scheduled: list[dict[str, Any]] = [{"pluginRef": one} for one in filters]
    scheduled += [{"pluginRef": one, "weight": number(weight)} for one, weight in scorers]
    producers, index = _producers(used, deployment)
    plugins = [*producers, *(_plugin(one, my, index) for one in used)]
    return {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [*plugins, {"type": picker}, {"type": "single-profile-handler"}],
        "schedulingProfiles": [{"name": "default", "plugins": [*scheduled, {"pluginRef": picker}]}],
    }


def _plugin(kind: str, my: dict[str, float], index: str | None) -> dict[str, Any]:
    parameters: dict[str, Any] = {key: number(my[ours]) for key, ours in SETTINGS.get(kind, {}).items()}
    if kind in READS_PREFIX and index == "precise-prefix-cache-producer":
        parameters["prefixMatchInfoProducerName"] = index
    if kind in AFFINITY:
        parameters["strategy"] = "session_id"
        parameters["sessionIdConfig"] = {"evictionTtlSeconds": number(my["session_ttl_s"])}
    if kind == "prefix-cache-affinity-filter":
        parameters["ttftSource"] = "prefillThroughput"
    return {"type": kind} | ({"parameters": parameters} if parameters else {})


def _producers(used: list[str], deployment: Deployment) -> tuple[list[dict[str, Any]], str | None]:
    """Plugins that make what the others read, and the type of the one that says what hits."""
    plugins: list[dict[str, Any]] = []
    index = None
    if set(used) & set(READS_HITS):
        approximate = deployment.cluster.router.index == "approximate"
        plugins = [_approximate(deployment)] if approximate else _precise(deployment)
        index = str(plugins[-1]["type"])
    if set(used) & set(READS_LOAD):
        load: dict[str, Any] = {"type": "inflight-load-producer"}
        if index == "precise-prefix-cache-producer":
            load["parameters"] = {"prefixMatchInfoProducerName": index}
        plugins.append(load)
    return plugins, index


def _approximate(deployment: Deployment) -> dict[str, Any]:
    block = _index_block(deployment)
    capacity = _own_index(deployment).capacity_tokens
    matched = max(MATCHED_TOKENS, -(-deployment.longest_prompt // block) * block)
    parameters = {
        "autoTune": False,  # it takes each block of an engine for one of 64 tokens
        "blockSizeTokens": block,
        "lruCapacityPerServer": LRU_ENTRIES if capacity is None else max(capacity // block, 1),
        "maxPrefixTokensToMatch": matched,
    }
    return {"type": "approx-prefix-cache-producer", "parameters": parameters}


def _precise(deployment: Deployment) -> list[dict[str, Any]]:
    pool = deployment.cluster.pools[0]
    model = pool.profile.model or "MODEL"
    tokens = {"backend": "vllm", "modelName": model, "vllm": {"url": "http://localhost:8000"}}
    blocks: dict[str, Any] = {"tokenProcessorConfig": {"blockSizeTokens": pool.block_tokens}}
    if pool.scheduler == "sglang":
        blocks["kvEventsConfig"] = {"engineType": "sglang"}
    return [
        {"type": "token-producer", "parameters": tokens},
        {"type": "precise-prefix-cache-producer", "parameters": blocks},
    ]


def _own_index(deployment: Deployment) -> IndexParams:
    return own_index(deployment.cluster.router) or IndexParams()


def _index_block(deployment: Deployment) -> int:
    return max(_own_index(deployment).block_tokens or deployment.cluster.pools[0].block_tokens, LEAST_BLOCK)


def _scrape_ms(deployment: Deployment) -> float:
    return 1e3 * (deployment.cluster.router.metrics_interval_s or SCRAPE_S)


def _differences(deployment: Deployment, theirs: Policy) -> list[str]:
    """From what was simulated under `deployment.policy`."""
    policy, router = deployment.policy, deployment.cluster.router
    found = instead_of(policy, theirs, NEAREST)
    if _reads_metrics(theirs):
        can = {"metrics_interval_s": router.metrics_interval_s or SCRAPE_S}
        found += undeployed_signals(router, can, policy)
    if _reads_hits(theirs) and router.index == "approximate":
        found += _index_differences(deployment)
    my = theirs.params
    if my["session_weight"] and my["session_filter"]:
        found.append("the session's scorer and filter keep bindings of their own, simulated was one")
    return found


def _reads_metrics(theirs: Policy) -> bool:
    return any(theirs.params[weight] for weight in SCRAPED)


def _reads_hits(theirs: Policy) -> bool:
    used = [plugin for weight, plugin in WEIGHTS.items() if theirs.params[weight]]
    return bool(theirs.params["affinity_filter"]) or bool(set(used) & set(READS_HITS))


def _index_differences(deployment: Deployment) -> list[str]:
    simulated, block = _own_index(deployment), _index_block(deployment)
    own = simulated.block_tokens or deployment.cluster.pools[0].block_tokens
    found = [] if own == block else [f"the index counts blocks of {block} tokens, simulated were {own}"]
    if simulated.capacity_tokens is None:
        found.append(f"the index holds {LRU_ENTRIES:,} blocks an engine, simulated was one without limit")
    if simulated.ttl_s is not None:
        found.append(f"the index forgets nothing by age, simulated was {simulated.ttl_s:g} s")
    if (simulated.eviction, simulated.match) != ("head", "any_engine"):
        found.append(
            "the index evicts a prompt's first block first and matches across engines; not so simulated"
        )
    return found


def _needs(deployment: Deployment, theirs: Policy) -> list[str]:
    found = list(lateness(deployment.cluster.router, theirs))
    if deployment.cluster.router.index != "approximate" and _reads_hits(theirs):
        found.append("vllm.url of token-producer is a service that renders prompts of this model: set it")
        found.append("one PYTHONHASHSEED in the endpoint picker and in all engines")
    if deployment.cluster.router.gateways > 1:
        n = deployment.cluster.router.gateways
        found.append(f"{n} replicas of the endpoint picker, each with counters and an index of its own")
    peak = _calibrated_peak(deployment.cluster)
    told = theirs.params["peak_prefill_throughput"]
    if theirs.params["affinity_filter"] and peak is None:
        found.append(
            f"peakPrefillThroughput is {told:,.0f} tokens/s, not calibrated: this profile does not know it"
        )
    if theirs.params["affinity_filter"] and peak is not None and abs(told - peak) > 0.05 * peak:
        found.append(
            f"peakPrefillThroughput is {told:,.0f} tokens/s, as simulated; engines of this profile do "
            f"{peak:,.0f}: calibrated, simulate {theirs.name}:peak_prefill_throughput={peak:.0f}"
        )
    return found


def _engine_args(deployment: Deployment, theirs: Policy) -> dict[str, str | None]:
    if deployment.cluster.router.index == "approximate" or not _reads_hits(theirs):
        return {}
    return {"--kv-events-config": '{"enable_kv_cache_events":true,"publisher":"zmq","topic":"kv@"}'}


def _calibrated_peak(cluster: Cluster) -> float | None:
    """Whole tokens per second of one engine; None where the profile does not know."""
    profile = cluster.pools[0].profile
    return None if profile.predictive_only else float(round(peak_prefill_tokens_per_s(profile)))
