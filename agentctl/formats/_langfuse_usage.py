"""Token counts of Langfuse's generations: buckets with names of the SDKs' own."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from agentctl.formats._cells import whole
from agentctl.formats._columns import Columns
from agentctl.formats._usage import InputCounts, Usage


class Buckets(NamedTuple):
    usage: Usage
    output: int | None
    reasoning: int | None


def buckets_of(details: dict[str, Any] | None) -> Buckets:
    """The buckets of one generation, by the names that SDKs give them."""
    counts = {name: whole(value) for name, value in (details or {}).items()}
    sums: dict[str, int] = {}
    for name, count in counts.items():
        if count is not None and (kind := _bucket(name)):
            sums[kind] = sums.get(kind, 0) + count
    output, reasoning = sums.get("output"), sums.get("reasoning")
    parts = sorted(name for name in counts if _bucket(name) in ("cached", "written", "other"))
    usage = Usage(
        sums.get("input"),
        output,
        sums.get("cached"),
        sums.get("written"),
        sums.get("other", 0),
        sums.get("total"),
        ",".join(parts),  # SDKs have names of their own
    )
    return Buckets(usage, output, reasoning)


@lru_cache(maxsize=1024)
def _bucket(name: str) -> str | None:
    """Which part of the usage a key names."""
    if name in _EXACT:
        return _EXACT[name]
    if "cache" in name:
        return "written" if "creation" in name or "write" in name else "cached"
    if "reasoning" in name:
        return "reasoning"
    return "other" if name.startswith("input_") else None


_EXACT = {
    "input": "input", "input_tokens": "input", "prompt_tokens": "input", "promptTokens": "input",
    "output": "output", "output_tokens": "output", "completion_tokens": "output",
    "completionTokens": "output", "total": "total", "total_tokens": "total", "totalTokens": "total",
}  # fmt: skip


def put_tokens(columns: Columns, buckets: list[Buckets | None], counts: InputCounts) -> None:
    known = [bucket or Buckets(Usage(None, None), None, None) for bucket in buckets]
    usages = [bucket.usage for bucket in known]
    prompts = counts.whole_prompts(usages)
    columns.tokens("prompt_tokens", prompts, "$.usageDetails.input")
    columns.tokens("cached_tokens", [usage.cached for usage in usages], "$.usageDetails")
    columns.tokens("cache_write_tokens", [usage.written for usage in usages], "$.usageDetails")
    columns.tokens("reasoning_tokens", [bucket.reasoning for bucket in known], "$.usageDetails")
    outputs = [_whole_output(bucket, prompt) for bucket, prompt in zip(known, prompts, strict=True)]
    columns.tokens("output_tokens", outputs, "$.usageDetails.output")


def _whole_output(bucket: Buckets, prompt: int | None) -> int | None:
    """Reasoning is a bucket of its own, too, unless the total says that it is in the output."""
    output, reasoning = bucket.output, bucket.reasoning or 0
    if output is None or output < 0 or reasoning <= 0:
        return output
    is_inside = prompt is not None and bucket.usage.total == prompt + output and reasoning <= output
    return output if is_inside else output + reasoning
