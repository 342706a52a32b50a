"""Which EndpointPickerConfigs llm-d can work with: references, pickers, profiles and producers.

The schema says what may stand where (_llm_d_schema.py); here is what it cannot say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agentctl.emit._llm_d_schema import PARAMETERS, Config
from agentctl.emit.base import read_as
from agentctl.errors import ConfigError
from agentctl.toml import suggestion

PREFIX = ("approx-prefix-cache-producer", "precise-prefix-cache-producer")
INFLIGHT = ("inflight-load-producer",)
# Plugin -> producers, one of which has to be there, for each thing that it reads.
NEEDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "prefix-cache-affinity-filter": (PREFIX, INFLIGHT),
    "prefix-cache-scorer": (PREFIX,),
    "no-hit-lru-scorer": (PREFIX,),
    "prefix-based-pd-decider": (PREFIX,),
    "token-load-scorer": (PREFIX, INFLIGHT),
    "active-request-scorer": (INFLIGHT,),
    "precise-prefix-cache-producer": (("token-producer",),),
    "precise-prefix-cache-scorer": (("token-producer",),),
    "latency-scorer": (("predicted-latency-producer",),),
}
EXPERIMENTAL = ("session-affinity-filter", "session-affinity-scorer")
EXPERIMENTAL_ARGUMENT = "--allow-experimental-plugins=true"
HANDLERS = ("single-profile-handler", "disagg-profile-handler")
REFERS = {  # parameters that name a plugin -> of which types
    "prefixMatchInfoProducerName": PREFIX,
    "inFlightLoadProducerName": INFLIGHT,
    "latencyPredictionInfoProducerName": ("predicted-latency-producer",),
}


def check_config(document: Mapping[str, Any], place: str = "EndpointPickerConfig") -> tuple[str, ...]:
    """The arguments that the endpoint picker needs to run this document.

    Raises ConfigError for one that it would refuse or that could not work: keys, types and ranges; references
    to plugins that are not there; a profile without exactly one picker; no profile handler, or profiles of
    other names than it expects; plugins without the producers they read.
    """
    read_as(Config, document, place)
    plugins = _named(document["plugins"], place)
    for fact, where, hint in _faults(document, plugins):
        raise ConfigError(fact, place=f"{place}: {where}", hint=hint)
    return (EXPERIMENTAL_ARGUMENT,) if set(EXPERIMENTAL) & set(plugins.values()) else ()


def _named(listed: list[Mapping[str, Any]], place: str) -> dict[str, str]:
    """Names of plugins (the type where there is none) and their types."""
    found: dict[str, str] = {}
    for plugin in listed:
        name = plugin.get("name", plugin["type"])
        if name in found:
            raise ConfigError(
                f"two plugins are called {name!r}", place=f"{place}: plugins", hint="give them names"
            )
        found[name] = plugin["type"]
    return found


Fault = tuple[str, str, str | None]  # fact, where, hint


def _faults(document: Mapping[str, Any], plugins: Mapping[str, str]) -> Iterator[Fault]:
    for where, name in _references(document):
        if name not in plugins:
            yield f"no plugin is called {name!r}", where, suggestion(name, plugins)
    yield from _needs(plugins)
    for plugin in document["plugins"]:
        yield from _refers(plugin, plugins)
        yield from _session_sources(plugin)
    yield from _profiles(document, plugins)


def _references(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for profile in document["schedulingProfiles"]:
        for one in profile["plugins"]:
            yield f"schedulingProfiles {profile['name']}", one["pluginRef"]
    yield from _refs_in(
        {key: document.get(key) for key in ("dataLayer", "flowControl", "requestHandler")}, ""
    )
    yield from _refs_in({key: document.get(key) for key in ("saturationDetector", "parser")}, "")


def _refs_in(value: Any, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(inner, str) and key.lower().endswith("pluginref"):
                yield where, inner
            yield from _refs_in(inner, f"{where}.{key}".lstrip("."))
    elif isinstance(value, list):
        for inner in value:
            yield from _refs_in(inner, where)


def _needs(plugins: Mapping[str, str]) -> Iterator[Fault]:
    for name, kind in plugins.items():
        for producers in NEEDS.get(kind, ()):
            if not set(producers) & set(plugins.values()):
                yield f"{name} reads what no plugin produces", "plugins", f"add {' or '.join(producers)}"


def _refers(plugin: Mapping[str, Any], plugins: Mapping[str, str]) -> Iterator[Fault]:
    parameters = plugin.get("parameters", {})
    for key, kinds in REFERS.items():
        if key in parameters and plugins.get(parameters[key]) not in kinds:
            fact = f"{key} names {parameters[key]!r}, which is not {' or '.join(kinds)}"
            yield fact, f"plugins {plugin['type']}", None
    precise = "precise-prefix-cache-producer" in plugins.values()
    only_precise = precise and "approx-prefix-cache-producer" not in plugins.values()
    reads = PREFIX in NEEDS.get(plugin["type"], ()) or plugin["type"] in INFLIGHT
    takes = "prefixMatchInfoProducerName" in PARAMETERS[plugin["type"]]
    if only_precise and reads and takes and "prefixMatchInfoProducerName" not in parameters:
        hint = "set prefixMatchInfoProducerName"
        yield "would read the approximate index, which is not there", f"plugins {plugin['type']}", hint
    for stage, decider in parameters.get("deciders", {}).items():
        if not plugins.get(decider, "").endswith("-decider"):
            yield f"no decider is called {decider!r}", f"plugins {plugin['type']} deciders.{stage}", None


def _session_sources(plugin: Mapping[str, Any]) -> Iterator[Fault]:
    for source in plugin.get("parameters", {}).get("sessionIdConfig", {}).get("sources", []):
        if ("header" in source) == ("attribute" in source):
            yield "a source is one of header and attribute", f"plugins {plugin['type']} sources", None


def _profiles(document: Mapping[str, Any], plugins: Mapping[str, str]) -> Iterator[Fault]:
    profiles = [profile["name"] for profile in document["schedulingProfiles"]]
    for profile in document["schedulingProfiles"]:
        where = f"schedulingProfiles {profile['name']}"
        kinds = [plugins[one["pluginRef"]] for one in profile["plugins"] if one["pluginRef"] in plugins]
        n_pickers = sum(kind.endswith("-picker") for kind in kinds)
        if n_pickers != 1:
            yield f"has {n_pickers} pickers", where, "a profile has exactly one"
        for kind in kinds:
            if not kind.endswith(("-filter", "-scorer", "-picker")):
                yield f"{kind} is no filter, scorer or picker", where, "it works from the list of plugins"
        for one in profile["plugins"]:
            if "weight" in one and not plugins.get(one["pluginRef"], "-scorer").endswith("-scorer"):
                yield f"{one['pluginRef']} has a weight and is no scorer", where, None
    if len(set(profiles)) < len(profiles):
        yield "two profiles have one name", "schedulingProfiles", None
    handlers = [kind for kind in plugins.values() if kind in HANDLERS]
    if len(handlers) != 1:
        yield f"there are {len(handlers)} profile handlers", "plugins", f"add one of {', '.join(HANDLERS)}"
    elif handlers[0] == "single-profile-handler" and len(profiles) != 1:
        yield f"single-profile-handler has one profile, not {len(profiles)}", "schedulingProfiles", None
    elif handlers[0] == "disagg-profile-handler":
        yield from _stages(document, profiles)


def _stages(document: Mapping[str, Any], profiles: list[str]) -> Iterator[Fault]:
    handler = next(one for one in document["plugins"] if one["type"] == "disagg-profile-handler")
    parameters = handler.get("parameters", {})
    names = {"decode": "decode", "prefill": "prefill", **parameters.get("profiles", {})}
    for stage in ("decode", "prefill"):
        if names[stage] not in profiles:
            yield (
                f"no profile is called {names[stage]!r}",
                "schedulingProfiles",
                f"the handler's {stage} stage",
            )
