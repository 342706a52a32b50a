"""The folder deploy/ of a recommendation: what to apply, what to watch, how to go back, how to confirm.

Everything in it is made from what was simulated, and the same recommendation gives the same bytes. Names that
came from a file are quoted for the language they stand in.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentctl.emit import _canary, _switchback
from agentctl.emit._readme import Handover, Written, readme
from agentctl.emit._records import cluster_files, policy_toml
from agentctl.emit.base import Deployment, Target, check_limits, check_roles
from agentctl.emit.engine_args import EngineArgs, engine_args
from agentctl.errors import ConfigError
from agentctl.policies._settings import settled

FOLDER = "deploy"


def deploy_files(handed: Handover) -> dict[str, bytes]:
    """Paths under the run folder and their content.

    Where a request of the trace could never run on the engines as configured, or the verdict carries no
    rollout, nothing can be applied: the README says so, and there are no files of engines or router.
    """
    new, refused = Written({}, None, ()), handed.not_yet
    if refused is None:
        try:
            new = _configuration(handed.deployment, handed.target)
        except ConfigError as error:
            refused = error.message
    today = _today(handed)
    cluster, policy = handed.deployment.cluster, handed.deployment.policy
    files = dict(new.files)
    files["policy.toml"] = policy_toml(policy, cluster.router)
    files |= {f"simulated/{name}": text for name, text in cluster_files(cluster, policy).items()}
    if today is not None:
        files |= {f"rollback/{name}": text for name, text in today.files.items()}
        files["changes.diff"] = _diff(today.files, new.files)
    if handed.watched:
        files["canary.json"] = _json(_canary.document(handed.watched, handed.slos))
    if handed.plan:
        files["switchback.json"] = _json(_switchback.document(handed.plan, handed.effect))
    files["README.md"] = "\n".join(readme(handed, new, today, refused)) + "\n"
    return {f"{FOLDER}/{name}": text.encode() for name, text in sorted(files.items())}


def _configuration(deployment: Deployment, target: Target | None) -> Written:
    """Raises ConfigError when it cannot be applied."""
    check_limits(deployment)
    check_roles(deployment)
    router = target.emit(deployment) if target else None
    engines = engine_args(
        deployment.cluster,
        router.engine_args if router else None,
        longest_total=deployment.longest_total,
    )
    files = {f"router/{name}": text for name, text in (router.files if router else {}).items()}
    for n, one in enumerate(engines, 1):
        folder = "engines" if len(engines) == 1 else f"engines-{n}"
        files[f"{folder}/start.sh"] = f"#!/bin/sh\nexec {_plain(one)}"
        files |= {f"{folder}/{name}": text for name, text in one.files.items()}
    return Written(files, router, engines)


def _plain(engine: EngineArgs) -> str:
    """The command; a variable before it goes through env, which exec can start."""
    return ("env " if engine.environment else "") + engine.command()


def _today(handed: Handover) -> Written | None:
    """Today's configuration in the same form; None when it is not known or has none."""
    if handed.deployment.today is None:
        return None
    cluster, policy = handed.deployment.today
    deployment = replace(handed.deployment, cluster=settled(cluster, policy), policy=policy, today=None)
    try:
        found = _configuration(deployment, handed.target)
    except ConfigError:
        return None
    if found.router is not None and found.router.fit != "exact":  # another router, or a policy of none
        return replace(found, router=None, files=_without_router(found.files))
    return found


def _without_router(files: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in files.items() if not name.startswith("router/")}


def _diff(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    lines: list[str] = []
    for name in sorted({*before, *after}):
        old, new = (files.get(name, "").splitlines() for files in (before, after))
        lines += difflib.unified_diff(old, new, f"today/{name}", f"new/{name}", lineterm="")
    return "".join(f"{line}\n" for line in lines)


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n"
