"""`agentctl policies`: what can be compared."""

from __future__ import annotations

import typer


def policies(ctx: typer.Context) -> None:
    """List the routing policies: what each sees, how it breaks ties, its parameters, its source."""
    from agentctl.policies.base import load_policy, policy_names
    from agentctl.present import Section, Table

    found = [load_policy(name) for name in policy_names()]
    document = {
        "schema": "agentctl/policies/1",
        "policies": [
            {
                "name": policy.name,
                "source": policy.source,
                "sees": list(policy.sees),
                "tie": policy.tie,
                "params": {key: _known(value) for key, value in policy.params.items()},
                "params_from_profile": dict(policy.from_profile),
            }
            for policy in found
        ],
    }
    table = Table(
        columns=(("policy", ""), ("sees", ""), ("ties", ""), ("parameters", ""), ("source", "")),
        rows=tuple(
            (policy.name, ", ".join(policy.sees), policy.tie, ", ".join(_parameters(policy)), policy.source)
            for policy in found
        ),
    )
    ctx.obj.result(document, (Section("policies", "", "", tables=(table,)),))


def _parameters(policy: object) -> list[str]:
    from agentctl.policies.base import Policy

    assert isinstance(policy, Policy)
    return [
        f"{key}={'profile' if _known(value) is None else f'{value:g}'}"
        for key, value in policy.params.items()
    ]


def _known(value: float) -> float | None:
    """NaN stands for a default that the profile gives."""
    return None if value != value else value
