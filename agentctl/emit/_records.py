"""What was simulated, as files that agentctl reads again: the policy, its cluster and its profiles."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentctl.cluster import CLUSTER_SCHEMA, SGLANG_KEYS, VLLM_KEYS, Cluster, Pool, Router
from agentctl.emit.base import number
from agentctl.policies._files import FIXED, POLICY_SCHEMA
from agentctl.policies._names import is_user_policy
from agentctl.policies.base import Policy
from agentctl.profile import PROFILE_SCHEMA, Profile
from agentctl.profile_file import toml_text, without_none

SIGNALS = ("metrics_interval_s", "metrics_delay_s", "index", "index_delay_s", "index_params")


def policy_toml(policy: Policy, router: Router) -> str:
    """The policy file (schema agentctl/policy/1) with the parameters, ties and signals of the simulation."""
    file, name = policy.file, short_name(policy)
    params = {
        key: {
            "value": None if value != value else number(value),
            "unit": file.params[key].unit if file and key in file.params else "as the formula says",
            "key": file.params[key].key if file and key in file.params else FIXED,
            "meaning": file.params[key].meaning if file and key in file.params else f"{key} of {name}",
        }
        for key, value in policy.params.items()
    }
    requires = asdict(file.requires) if file else {}
    tables: dict[str, Any] = {
        "schema": POLICY_SCHEMA,
        "name": name,
        "router": file.router if file else "none",
        "version": file.version if file else "none",
        "select": file.select if file else None,
        "formula": file.formula if file else name,
        "tie": policy.tie,
        "about": " ".join(file.about.split()) if file else "As simulated; no router's own policy.",
        "params": params,
        "signals": without_none({key: getattr(router, key) for key in SIGNALS if getattr(router, key) != {}}),
        "requires": {key: list(values) for key, values in requires.items() if values},
        "provenance": dict(file.provenance) if file else {"source": policy.source or "the user's own"},
    }
    return toml_text(without_none(tables))


def short_name(policy: Policy) -> str:
    """Without the folder of a user's own file."""
    if not is_user_policy(policy.name):
        return policy.name
    return Path(policy.name.partition(":")[0]).name + policy.name[len(policy.name.partition(":")[0]) :]


def cluster_files(cluster: Cluster, policy: Policy) -> dict[str, str]:
    """cluster.toml and the profiles beside it: `agentctl simulate TRACE --cluster cluster.toml` runs it."""
    profiles: list[Profile] = []
    for pool in cluster.pools:
        if pool.profile not in profiles:
            profiles.append(pool.profile)
    names = [
        f"profile-{n}.toml" if len(profiles) > 1 else "profile.toml" for n in range(1, len(profiles) + 1)
    ]
    files = {name: profile_toml(one) for name, one in zip(names, profiles, strict=True)}
    text = toml_text({"schema": CLUSTER_SCHEMA})
    for pool in cluster.pools:
        text += _listed("pool", _pool_keys(pool, names[profiles.index(pool.profile)]))
    text += toml_text({"router": _router_keys(cluster.router, policy)})
    for tier in cluster.kv_tiers:
        text += _listed("kv_tier", asdict(tier))
    if cluster.network is not None:
        text += toml_text({"network": asdict(cluster.network)})
    return {"cluster.toml": text, **files}


def _listed(name: str, table: dict[str, Any]) -> str:
    return toml_text({name: table}).replace(f"[{name}]", f"[[{name}]]", 1)


def _pool_keys(pool: Pool, profile: str) -> dict[str, Any]:
    others = (*VLLM_KEYS, "block_tokens") if pool.scheduler == "sglang" else SGLANG_KEYS
    keys = {key: getattr(pool, key) for key in Pool.__dataclass_fields__ if key not in ("profile", *others)}
    return without_none({"profile": profile, **keys})


def _router_keys(router: Router, policy: Policy) -> dict[str, Any]:
    keys = {key: getattr(router, key) for key in Router.__dataclass_fields__}
    params = {key: number(value) for key, value in policy.params.items() if value == value}
    if router.index != "approximate":
        keys["index_params"] = None
    return without_none(
        {**keys, "policy": short_name(policy), "params": params, "tie": policy.tie or "policy"}
    )


def profile_toml(profile: Profile) -> str:
    """What is simulated of a profile; the fit's rows and intervals stay in the file it came from."""
    plain = (
        "model", "gpu", "tensor_parallel", "kv_bytes_per_token", "kv_blocks", "block_tokens",
        "max_num_batched_tokens", "max_num_seqs", "max_model_len",
    )  # fmt: skip
    tables = {
        "schema": PROFILE_SCHEMA,
        **{key: getattr(profile, key) for key in plain},
        "batch_time": profile.batch_time._asdict(),
        "provenance": {
            k: v for k, v in profile.provenance.items() if isinstance(v, str | int | float | bool)
        },
    }
    return toml_text(without_none(tables))
