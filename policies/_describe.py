"""What policies are, as documents and sections: all in a list, or one with its whole story."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from agentctl.cluster import Router
from agentctl.policies._check import Checked
from agentctl.policies._files import FIXED, Param
from agentctl.policies._sample import ENGINES, TURNS
from agentctl.policies._settings import DEFAULTS, router_settings, router_words
from agentctl.policies.base import Policy
from agentctl.present import Fact, Section, Table, Value
from agentctl.sim.view import View

POLICIES_SCHEMA = "agentctl/policies/1"
CHECK_SCHEMA = "agentctl/policy-check/1"


def document(policies: Iterable[Policy]) -> dict[str, Any]:
    return {"schema": POLICIES_SCHEMA, "policies": [_facts(policy) for policy in policies]}


def overview(policies: Iterable[Policy]) -> tuple[Section, ...]:
    rows = tuple(
        (
            policy.name,
            _router(policy),
            ", ".join(policy.sees),
            policy.tie,
            ", ".join(f"{key}={_shown(value)}" for key, value in policy.params.items()),
        )
        for policy in policies
    )
    columns = (("policy", ""), ("router", ""), ("sees", ""), ("ties", ""), ("parameters", ""))
    return (Section("policies", "", "", tables=(Table(columns, rows),)),)  # type: ignore[arg-type]


def story(policy: Policy) -> tuple[Section, ...]:
    """Everything about one policy: what it does, parameters, signals, what it needs, where it comes from."""
    file = policy.file
    first, *others = _paragraphs(policy.explanation) or ["It does not say what it does."]
    texts = [*others, *([" ".join(file.about.split())] if file else [])]
    sections = [Section("policy", policy.name, first), *(Section("story", "", text) for text in texts)]
    rows: list[tuple[Value, ...]] = [("ties", policy.tie or "none"), ("formula from", policy.source)]
    if file:
        router = (("router", _router(policy)), ("chosen by", file.select), ("formula", file.formula))
        rows = [*router, *rows, *file.provenance.items()]
    facts = Table((("fact", ""), ("", "")), tuple(row for row in rows if row[1]))
    sections += [_parameters(policy), _signals(policy), *_requires(policy)]
    return (*sections, Section("facts", "Where it comes from", "", tables=(facts,)))


def _facts(policy: Policy) -> dict[str, Any]:
    file = policy.file
    return {
        "name": policy.name,
        "router": file.router if file else None,
        "version": file.version if file else None,
        "formula": file.formula if file else None,
        "select": file.select if file else None,
        "source": policy.source,
        "explanation": policy.explanation,
        "about": file.about if file else None,
        "sees": list(policy.sees),
        "tie": policy.tie,
        "params": {key: _known(value) for key, value in policy.params.items()},
        "params_from_profile": dict(policy.from_profile),
        "parameters": [_parameter(policy, key) for key in policy.params],
        "keeps_memory": policy.memory is not None,
        "has_cost": policy.cost is not None,
        "signals": {key: getattr(router_of(policy), key) for key in DEFAULTS} if file else None,
        "requires": asdict(file.requires) if file else None,
        "provenance": dict(file.provenance) if file else None,
    }


def _parameter(policy: Policy, key: str) -> dict[str, Any]:
    given: Param | None = policy.file.params.get(key) if policy.file else None
    profile = policy.from_profile.get(key)
    meaning = given.meaning if given else _meanings(policy.explanation).get(key)
    if meaning is None and profile:
        meaning = f"the profile's {profile}"
    return {
        "name": key,
        "value": _known(policy.params[key]),
        "from_profile": profile,
        "unit": given.unit if given else None,
        "key": given.key if given else None,
        "meaning": meaning,
    }


def _parameters(policy: Policy) -> Section:
    if not policy.params:
        return Section("parameters", "Parameters", "None.")
    every = [_parameter(policy, key) for key in policy.params]
    tables = [
        _columns(every, {"name": "parameter", "shown": "default", "unit": "unit", "meaning": "meaning"})
    ]
    if settable := [p for p in every if p["key"] not in (None, FIXED)]:
        tables.append(_columns(settable, {"name": "parameter", "key": "the router's key"}))
    return Section("parameters", "Parameters", "", tables=tuple(tables))


def _columns(rows: list[dict[str, Any]], heads: dict[str, str]) -> Table:
    """A table of those keys, without columns that would be empty."""
    rows = [{**row, "shown": "profile" if row["value"] is None else f"{row['value']:.10g}"} for row in rows]
    used = [key for key in heads if any(row[key] is not None for row in rows)]
    return Table(
        tuple((heads[key], "") for key in used), tuple(tuple(row[key] for key in used) for row in rows)
    )


def _signals(policy: Policy) -> Section:
    sentence = (
        "Engine metrics and prefix index are as [router] of the cluster file says; default fresh, precise."
    )
    if policy.file:
        sentence = f"Unless [router] of the cluster file says else: {router_words(router_of(policy))}."
    meanings = _meanings(View.__doc__ or "", columns=1)
    rows = tuple((field, meanings.get(field)) for field in policy.sees)
    table = Table((("reads of the view", ""), ("meaning", "")), rows)
    return Section("signals", "Signals", sentence, tables=(table,) if rows else ())


def router_of(policy: Policy) -> Router:
    """As the policy alone would have it."""
    return router_settings(Router(), policy)[0]


def _requires(policy: Policy) -> list[Section]:
    needed = asdict(policy.file.requires) if policy.file else {}
    rows: tuple[tuple[Value, ...], ...] = tuple((where, what) for where in needed for what in needed[where])
    table = Table((("of the", ""), ("needed", "")), rows)
    return [Section("requires", "What it needs", "", tables=(table,))] if rows else []


def _router(policy: Policy) -> str | None:
    return f"{policy.file.router} {policy.file.version}" if policy.file else None


def _paragraphs(text: str) -> list[str]:
    """Of a docstring, each as one line; what is indented is the table of parameters."""
    blocks = [block for block in re.split(r"\n\s*\n", text) if block.strip()]
    return [" ".join(block.split()) for block in blocks if not block.startswith("    ")]


def _meanings(text: str, columns: int = 2) -> dict[str, str]:
    """`name  default  meaning` of a docstring's table, or with one column before it `name  meaning`."""
    found: dict[str, str] = {}
    name = None
    row = re.compile(r"\s*(\w+)\s{2,}(.*)" if columns == 1 else r"\s+(\w+)\s{2,}\S+\s{2,}(.*)")
    for line in text.splitlines():
        if matched := row.fullmatch(line):
            name = matched[1]
            found[name] = matched[2]
        elif name and re.match(r"\s{12,}\S", line):
            found[name] += f" {line.strip()}"
        else:
            name = None
    return found


def _known(value: float) -> float | None:
    """NaN stands for a default that the profile gives."""
    return None if value != value else value


def _shown(value: float) -> str:
    return "profile" if _known(value) is None else f"{value:.10g}"


# What a check found


def check_document(found: Checked) -> dict[str, Any]:
    return {
        "schema": CHECK_SCHEMA,
        "policy": _facts(found.policy),
        "compiled": found.is_compiled,
        "cannot_be_compiled": found.why_not,
        "requests": found.requests,
        "requests_per_engine": list(found.per_engine),
        "same_compiled_and_plain": None if found.compiled_per_s is None else found.differs_at is None,
        "first_different_request": found.differs_at,
        "requests_per_s": {"compiled": found.compiled_per_s, "plain": found.plain_per_s},
    }


def check_sections(found: Checked) -> tuple[Section, ...]:
    policy = found.policy
    facts = (
        Fact("reads of the view", ", ".join(policy.sees) or "nothing"),
        Fact("parameters", ", ".join(f"{k}={_shown(v)}" for k, v in policy.params.items()) or "none"),
        Fact("requests on each engine", ", ".join(map(str, found.per_engine))),
        Fact("simulated when compiled", found.compiled_per_s, "per_s", "requests a second, all included"),
        Fact("simulated in plain Python", found.plain_per_s, "per_s", "the same"),
    )
    n_sessions = found.requests // TURNS
    made_up = f"made-up workload: {n_sessions} sessions of {TURNS} turns on {ENGINES} engines"
    warnings = tuple(_warnings(found))
    return (Section("verdict", "", _verdict(found), facts, assumptions=(made_up,), warnings=warnings),)


def _verdict(found: Checked) -> str:
    name, n = found.policy.name, found.requests
    if not found.is_compiled:
        return f"{name} works in plain Python: it placed {n} requests."
    if found.differs_at is None:
        return f"{name} works: compiled and in plain Python it places {n} requests the same, bit for bit."
    return f"{name} differs: compiled it treats request {found.differs_at} of {n} not as in plain Python."


def _warnings(found: Checked) -> Iterable[str]:
    if not found.is_compiled and found.why_not:
        yield f"it cannot be compiled as it is ({found.why_not})"
    elif not found.is_compiled:
        what = (
            "decide the same" if found.differs_at is None else f"treat request {found.differs_at} otherwise"
        )
        yield f"with @njit (from numba import njit) it would be faster and {what}"
    if found.requests in found.per_engine:
        yield f"all requests went to engine {found.per_engine.index(found.requests)}"


def check_failed(found: Checked) -> bool:
    return found.is_compiled and found.differs_at is not None
