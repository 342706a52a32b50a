"""Whole prompts from token counts that hold the cached tokens or leave them out.

OpenTelemetry's conventions put what was read from and written to the cache into the input count
(semantic-conventions #3163). APIs of Anthropic's kind and Bedrock's Converse count the three apart, and
instrumentations pass on either: OpenLLMetry 0.62 adds them up for Anthropic and does not for Bedrock
(openllmetry #4449). Langfuse means its usage keys as disjoint buckets, but many SDKs send an input that holds
the cached part, which is then counted twice (langfuse #12306, #10592).
"""

from __future__ import annotations

from typing import NamedTuple

from agentctl.formats.base import Reading

# Cached parts this close to the whole input are part of it: a count beside the input comes so near by
# accident only, a count inside it in every later turn of an agent. Our convention.
NEARLY_ALL = 0.9


class Usage(NamedTuple):
    """Token counts of one request as they are logged; None: unknown."""

    input: int | None
    output: int | None
    cached: int | None = None
    written: int | None = None
    other: int = 0  # further parts of the input (audio, ...) in logs that count these apart
    total: int | None = None
    emitter: str = ""  # who counted: what one request shows holds for all of its emitter

    @property
    def parts(self) -> int:
        return (self.cached or 0) + (self.written or 0) + self.other


class InputCounts:
    """Tells whether counts of the input hold the cached tokens.

    A request's own numbers decide first: parts larger than the input are not in it, and some totals prove
    something. Then what its emitter has shown so far, in the same chunk, too. Then the convention.

    are_apart  the convention: beside the input (Langfuse) or in it (OpenTelemetry)
    total_is_sent  totals come from the client; Langfuse adds up one that was not sent, which proves nothing
    """

    def __init__(self, are_apart: bool, total_is_sent: bool) -> None:
        self._are_apart, self._total_is_sent = are_apart, total_is_sent
        self._apart: set[str] = set()  # emitters known to count cached tokens beside the input ...
        self._inside: set[str] = set()  # ... and in it
        self._n = {True: 0, False: 0}  # requests with cached tokens, by apart

    def whole_prompts(self, usages: list[Usage]) -> list[int | None]:
        """prompt_tokens: with the cached ones."""
        for usage in usages:
            says = self._says(usage)
            if says is True:
                self._apart.add(usage.emitter)
            elif says is False or _is_nearly_all(usage):
                self._inside.add(usage.emitter)
        return [self._whole(usage) for usage in usages]

    def warn(self, reading: Reading) -> None:
        """Say how many requests were read against the convention."""
        against, n = self._n[not self._are_apart], sum(self._n.values())
        if against and self._are_apart:
            reading.warnings.append(
                f"{against:,} of {n:,} requests with cached tokens hold them in the input count, although "
                "the format keeps them apart: they are not added again"
            )
        elif against:
            reading.warnings.append(
                f"{against:,} of {n:,} requests with cached tokens leave them out of the input count, "
                "although the convention puts them in: they are added"
            )

    def _whole(self, usage: Usage) -> int | None:
        if usage.input is None or usage.input < 0 or usage.parts <= 0:
            return usage.input
        says = self._says(usage)
        is_apart = self._expected(usage.emitter) if says is None else says
        self._n[is_apart] += 1
        return usage.input + usage.parts if is_apart else usage.input

    def _says(self, usage: Usage) -> bool | None:
        """Whether this request's own numbers are apart; None: they fit both."""
        if usage.input is None or usage.parts <= 0:
            return None
        if usage.parts > usage.input:
            return True
        if usage.total is None or usage.output is None:
            return None
        if self._total_is_sent and usage.total == usage.input + usage.parts + usage.output:
            return True
        if self._are_apart and usage.total == usage.input + usage.output:
            return False
        return None

    def _expected(self, emitter: str) -> bool:
        return emitter in self._apart or (self._are_apart and emitter not in self._inside)


def _is_nearly_all(usage: Usage) -> bool:
    return usage.input is not None and NEARLY_ALL * usage.input < usage.parts <= usage.input
