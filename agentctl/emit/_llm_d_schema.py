"""The documents that llm-d's EndpointPickerConfig may be: keys, types and ranges.

There is no official schema; keys are those of llm-d-router after v0.10.0 (main of 2026-08-22), which decodes
strictly: a key that it does not know ends it. One set of tables makes the type that documents are checked
with and the JSON Schema in llmd_epp_v1alpha1.schema.json. What a schema cannot say: _llm_d_config.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

Share = Annotated[float, Meta(ge=0, le=1)]
Amount = Annotated[float, Meta(ge=0)]
Rate = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=0)]
Name = Annotated[str, Meta(min_length=1)]
Duration = Annotated[str, Meta(pattern=r"^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$")]  # as Go writes it
Quantity = int | Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?([EPTGMk]i?|Ki|m)?$")]  # as Kubernetes does
Table = dict[str, Any]


def _table(name: str, required: Mapping[str, Any], optional: Mapping[str, Any], **how: Any) -> Any:
    fields: list[Any] = [
        *required.items(),
        *((key, kind | UnsetType, UNSET) for key, kind in optional.items()),
    ]
    return msgspec.defstruct(name, fields, forbid_unknown_fields=True, kw_only=True, module=__name__, **how)


def _many(kind: Any) -> Any:
    return list[kind]


_SOURCE = _table("Source", {}, {"header": Name, "attribute": Name, "producer": Name})
_SESSION_ID = _table(
    "SessionId", {}, {"sources": _many(_SOURCE), "evictionTtlSeconds": Rate, "evictionSweepSeconds": Rate}
)
_SESSION = {
    "strategy": Literal["encoded_endpoint_header", "session_id"],
    "encodedEndpointHeaderConfig": _table("EncodedHeader", {}, {"header": Name}),
    "sessionIdConfig": _SESSION_ID,
    "profileName": Name,
}
_PRECISE = {
    "tokenProcessorConfig": _table("TokenProcessor", {}, {"blockSizeTokens": Count, "hashSeed": str}),
    "indexerConfig": Table,
    "kvEventsConfig": Table,
    "speculativeIndexing": bool,
    "speculativeTTL": Duration,
}
_BY_LABEL = {"label": Name, "validValues": list[Name], "allowsNoLabel": bool}
_RENDER = _table("Render", {}, {"url": Name})
_PICKER = {"maxNumOfEndpoints": Annotated[int, Meta(ge=1)]}
_STAGE = Literal["decode", "prefill", "encode"]
_CONDITION = dict[str, Any]

# Plugin -> its parameters.
PARAMETERS: dict[str, dict[str, Any]] = {
    "approx-prefix-cache-producer": {
        "autoTune": bool, "blockSizeTokens": Count, "blockSize": Count, "maxPrefixBlocksToMatch": Count,
        "maxPrefixTokensToMatch": Count, "lruCapacityPerServer": Count,
    },
    "precise-prefix-cache-producer": _PRECISE,
    "inflight-load-producer": {
        "addEstimatedOutputTokens": bool, "outputRatio": Amount, "maxEstimatedOutputTokens": Count,
        "prefixMatchInfoProducerName": Name, "syncCrossReplicaState": bool,
    },
    "token-producer": {
        "backend": Literal["estimate", "vllm"], "modelName": Name, "vllm": _RENDER,
    },
    "predicted-latency-producer": {},
    "session-id-producer": {},
    "prefix-cache-affinity-filter": {
        "affinityThreshold": Share, "explorationProbability": Share, "maxTTFTPenaltyMs": Amount,
        "ttftSource": Literal["prefillThroughput", "latencyPredictor"], "peakPrefillThroughput": Rate,
        "prefixMatchInfoProducerName": Name, "latencyPredictionInfoProducerName": Name,
        "inFlightLoadProducerName": Name,
    },
    "session-affinity-filter": _SESSION,
    "utilization-filter": {"conditions": _many(_CONDITION), "fallbackOnEmpty": bool},
    "slo-headroom-tier-filter": {"epsilonExploreNeg": Share},
    "prefill-filter": {},
    "decode-filter": {},
    "by-label-filter": _BY_LABEL,
    "queue-scorer": {},
    "running-requests-size-scorer": {},
    "kv-cache-utilization-scorer": {},
    "load-aware-scorer": {"threshold": Rate},
    "active-request-scorer": {
        "idleThreshold": Count, "maxBusyScore": Share, "requestTimeout": Duration,
        "inFlightLoadProducerName": Name,
    },
    "token-load-scorer": {"queueThresholdTokens": Rate, "inFlightLoadProducerName": Name},
    "prefix-cache-scorer": {
        "prefixMatchInfoProducerName": Name, "matchLengthWeight": Share, "matchLengthScaleTokens": Rate,
    },
    "no-hit-lru-scorer": {
        "lruSize": Count, "prefixMatchInfoProducerName": Name, "prefixPluginType": Name,
        "prefixPluginName": Name,
    },
    "session-affinity-scorer": _SESSION,
    "latency-scorer": {
        "ttftWeight": Amount, "tpotWeight": Amount, "headroomSelectionStrategy": Name,
        "compositeKVWeight": Amount, "compositeQueueWeight": Amount, "compositePrefixWeight": Amount,
    },
    "precise-prefix-cache-scorer": _PRECISE,
    "max-score-picker": _PICKER,
    "weighted-random-picker": _PICKER,
    "random-picker": _PICKER,
    "single-profile-handler": {},
    "disagg-profile-handler": {
        "stageOrder": _many(_STAGE), "profiles": _table("Profiles", {}, dict.fromkeys(
            ("decode", "prefill", "encode"), Name)),
        "deciders": _table("Deciders", {}, {"prefill": Name, "encode": Name}),
    },
    "prefix-based-pd-decider": {"nonCachedTokens": Count, "promptTokens": Count},
    "always-disagg-pd-decider": {},
    "utilization-detector": {},
    "metrics-data-source": {},
    "core-metrics-extractor": {},
    "endpoint-notification-source": {},
    "file-discovery": {"path": Name, "endpoints": list[Table]},
}  # fmt: skip


def _plugin(kind: str) -> Any:
    title = "".join(word.title() for word in kind.split("-"))
    parameters = _table(f"{title}Parameters", {}, PARAMETERS[kind])
    return _table(title, {}, {"name": Name, "parameters": parameters}, tag_field="type", tag=kind)


_PLUGIN: Any = None
for _kind in PARAMETERS:
    _PLUGIN = _plugin(_kind) if _PLUGIN is None else _PLUGIN | _plugin(_kind)

_REF = _table("Ref", {"pluginRef": Name}, {})
_SCHEDULED = _table("Scheduled", {"pluginRef": Name}, {"weight": Amount})
_BAND = dict[str, Any]
_PROFILE = _table("SchedulingProfile", {"name": Name, "plugins": _many(_SCHEDULED)}, {})
_DATA_SOURCE = _table("DataSource", {"pluginRef": Name, "extractors": _many(_REF)}, {})
Config = _table(
    "EndpointPickerConfig",
    {
        "apiVersion": Literal["llm-d.ai/v1alpha1", "inference.networking.x-k8s.io/v1alpha1"],
        "kind": Literal["EndpointPickerConfig"],
        "plugins": Annotated[_many(_PLUGIN), Meta(min_length=1)],
        "schedulingProfiles": Annotated[
            _many(_PROFILE),
            Meta(min_length=1),
        ],
    },
    {
        "featureGates": list[Name],
        "dataLayer": _table(
            "DataLayer",
            {},
            {
                "injectDefaults": bool,
                "sources": _many(_DATA_SOURCE),
                "discovery": _REF,
                "peerDiscovery": _REF,
                "crossReplicaSyncerPluginRef": Name,
                "crossReplicaSyncInterval": Duration,
            },
        ),
        "flowControl": _table(
            "FlowControl",
            {},
            {
                "maxBytes": Quantity, "maxRequests": Quantity, "defaultRequestTTL": Duration,
                "noEndpointRequestTTL": Duration, "defaultPriorityBand": _BAND,
                "defaultNegativePriorityBand": _BAND, "priorityBands": _many(_BAND),
                "usageLimitPolicyPluginRef": Name, "saturationDetector": _REF, "enableEviction": bool,
            },
        ),
        "requestHandler": _table("RequestHandler", {}, {"parsers": _many(_REF)}),
        "saturationDetector": _REF,
        "parser": _REF,
    },
)  # fmt: skip


def json_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of Config: no key that is not named is allowed."""
    schema = msgspec.json.schema(Config)
    title = "EndpointPickerConfig of llm-d-router after v0.10.0, as agentctl writes it"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}
