"""What a validation against a live server says beside the comparison: what was sent, and what was not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from agentctl.analyzers.words import count, percent
from agentctl.endpoint.replayed import LATE_S, NOT_SENT, Replayed, first_token_s
from agentctl.endpoint.rows import BUSY
from agentctl.endpoint.server import short
from agentctl.endpoint.slice import Slice
from agentctl.present import Fact, Section, Table, Value
from agentctl.validate.back_test import Compared
from agentctl.validate.words import LATENCY
from agentctl.validate_endpoint_pace import Pace

F64 = NDArray[np.float64]
SHOWN = ("ttft_s", "tpot_s", "e2e_s")
MANY = 0.1  # share of requests from which something is worth a warning
LEAST = 3  # requests for a correlation


@dataclass(frozen=True)
class Sent:
    """reasons: of each row why its times are not used, None where they are; said: limits the server told."""

    part: Slice
    rows: Replayed
    reasons: tuple[str | None, ...]
    said: dict[str, int]
    overhead_s: float | None

    @property
    def set_aside(self) -> dict[str, int]:
        return dict(Counter(why for why in self.reasons if why and why != NOT_SENT))

    @property
    def used(self) -> list[dict[str, Any]]:
        return [row for row, why in zip(self.rows.rows, self.reasons, strict=True) if why is None]

    @property
    def delays(self) -> F64:
        """How long after its time each request was sent, s."""
        sent = [row for row in self.rows.rows if row["status"] != NOT_SENT]
        return np.array([max(0.0, row["sent"] - row["due"]) for row in sent])

    def document(self) -> dict[str, Any]:
        head, used, delays = self.rows.header, self.used, self.delays
        end = self.rows.end or {}
        return {
            "model": short(str(head.get("model"))),
            "server": head.get("kind"),
            "dialect": head.get("dialect"),
            "server_limits": self.said,
            "slice": {
                **head["slice"], "max_context": head.get("max_context"), "sessions": self.part.sessions,
                "requests_planned": self.part.n_requests, "left_out": self.part.left_out,
                "sessions_too_long": self.part.too_long_sessions,
            },
            "complete": self.rows.end is not None,
            "sent": int(delays.size),
            "not_sent": sum(why == NOT_SENT for why in self.reasons),
            "compared": len(used),
            "set_aside": self.set_aside,
            "ended_early": sum(row["completion_tokens"] < row["max_tokens"] for row in used),
            "chunks_not_tokens": sum(first_token_s(row) is None for row in used),
            "late": {
                "limit_s": LATE_S, "requests": int((delays > LATE_S).sum()),
                "p50_s": _quantile(delays, 0.5), "p99_s": _quantile(delays, 0.99),
            },
            "seconds": end.get("seconds"),
            "client_busy": end.get("client_busy"),
            "other_traffic_known": end.get("load_known"),
            "request_overhead_s": self.overhead_s,
            "prompts_mean_relative_error": _lengths(used),
        }  # fmt: skip

    def warnings(self) -> Iterator[str]:
        told, n = self.document(), max(len(self.rows.rows), 1)
        if not told["complete"]:
            yield "the replay was interrupted: what was measured until then is compared"
        if told["not_sent"] and told["complete"]:
            yield f"{count(told['not_sent'], 'request')} not sent: the time was up (--seconds)"
        for why, left in self.part.left_out.items():
            yield f"{count(left, 'request')} of these sessions left out: {why}"
        if self.part.too_long_sessions:
            yield f"{count(self.part.too_long_sessions, 'session')} of more requests than allowed passed over"
        aside = sum(self.set_aside.values())
        if aside:
            reasons = ", ".join(f"{why} {k}" for why, k in sorted(self.set_aside.items()))
            yield f"{count(aside, 'request')} compared with nothing: {reasons}"
        if told["late"]["requests"] > MANY * n:
            yield (
                f"{count(told['late']['requests'], 'request')} sent more than {1000 * LATE_S:.0f} ms after "
                "their time (--rate, or this client): they are simulated when they were sent"
            )
        if told["ended_early"]:
            yield (
                f"{count(told['ended_early'], 'answer')} shorter than the log's: the server does not force "
                "lengths; they are simulated as long as they were"
            )
        if told["chunks_not_tokens"]:
            yield (
                f"{count(told['chunks_not_tokens'], 'answer')} with chunks that are not tokens: their TTFT "
                "and TPOT are compared with nothing"
            )
        if told["other_traffic_known"] is False:
            yield "the server does not say what it is serving: other traffic would not be noticed"
        if self.overhead_s is None:
            yield (
                "the profile does not say what the way from the client to the engine takes (calibrate "
                "endpoint measures it): it is in the measured times and not in the simulated ones"
            )


@dataclass(frozen=True)
class Distance:
    """Of one latency. correlation, rank_correlation: request by request, at the measured arrivals; ks: the
    largest gap between the two cumulated distributions, there and at the simulation's own pace."""

    latency: str
    requests: int
    correlation: float | None
    rank_correlation: float | None
    ks: float | None
    ks_own_pace: float | None


def distances(found: Compared | None, pace: Pace | None) -> tuple[Distance, ...]:
    if found is None:
        return ()
    told = []
    for name in SHOWN:
        known = found.pairs.known(name)
        logged, ours = found.pairs.logged[name][known], found.pairs.simulated[name][known]
        own = pace.simulated[name][known] if pace else np.empty(0)
        own = own[np.isfinite(own)]
        told.append(
            Distance(
                name, int(known.sum()), _correlation(logged, ours),
                _correlation(rankdata(logged), rankdata(ours)), _gap(logged, ours), _gap(logged, own),
            )
        )  # fmt: skip
    return tuple(told)


def _correlation(a: F64, b: F64) -> float | None:
    if a.size < LEAST or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def _gap(a: F64, b: F64) -> float | None:
    """Kolmogorov and Smirnov's distance; what differs by less than a microsecond is the same. The pairs are
    no independent samples: no p-value is given."""
    if not a.size or not b.size:
        return None
    a, b = a.round(6), b.round(6)
    at = np.concatenate([a, b])
    share = [np.searchsorted(np.sort(one), at, side="right") / one.size for one in (a, b)]
    return float(np.abs(share[0] - share[1]).max())


def _quantile(values: F64, share: float) -> float | None:
    return float(np.quantile(values, share, method="inverted_cdf")) if values.size else None


def _lengths(used: Sequence[dict[str, Any]]) -> float | None:
    """How far prompts were from the log's lengths: 0 with token ids."""
    gaps = [abs(row["prompt_tokens"] / row["asked_tokens"] - 1) for row in used]
    return float(np.mean(gaps)) if gaps else None


def sections_of(
    compared: Sequence[Section], sent: Sent, far: Sequence[Distance], pace: Pace | None
) -> tuple[Section, ...]:
    verdict, *others = compared
    told = tuple(sent.warnings())
    first = Section(
        verdict.name, verdict.title, verdict.sentence, verdict.facts, verdict.tables, verdict.figures,
        verdict.assumptions, (*verdict.warnings, *told), verdict.is_detail, verdict.is_refusal,
    )  # fmt: skip
    shape = (_distribution(far, pace),) if far else ()
    return (first, _sent(sent), *shape, *others, _assumed(sent))


def _sent(sent: Sent) -> Section:
    told = sent.document()
    sentence = (
        f"{count(told['sent'], 'request')} of {count(sent.part.sessions, 'session')} sent to the server, "
        f"{told['compared']} compared."
    )
    facts = [
        Fact("sent late", told["late"]["requests"], "count", f"more than {1000 * LATE_S:.0f} ms after time"),
        Fact("lateness p99", told["late"]["p99_s"], "s"),
        Fact("client busy", told["client_busy"], "ratio", f"of a core; above {percent(BUSY)} it is in times"),
        Fact("way to the engine", sent.overhead_s, "s", "added to simulated TTFT and end-to-end times"),
        *(Fact(f"server's {name}", value, "", "as it says") for name, value in sent.said.items()),
    ]
    rows: list[tuple[Value, ...]] = [("left out", why, n) for why, n in sent.part.left_out.items()]
    rows += [("not compared", why, n) for why, n in sorted(sent.set_aside.items())]
    tables = (Table((("what", ""), ("reason", ""), ("requests", "count")), tuple(rows)),) if rows else ()
    return Section("sent", "What was sent", sentence, facts=tuple(facts), tables=tables)


def _distribution(far: Sequence[Distance], pace: Pace | None) -> Section:
    rows: list[tuple[Value, ...]] = [
        (LATENCY[one.latency], one.requests, one.correlation, one.rank_correlation, one.ks, one.ks_own_pace)
        for one in far
    ]
    head = (
        ("time", ""), ("requests", "count"), ("correlation", ""), ("of ranks", ""), ("KS distance", "ratio"),
        ("at its own pace", "ratio"),
    )  # fmt: skip
    sentence = (
        "The KS distance is the largest gap between the two distributions: 0 is the same, 100 % no overlap."
    )
    facts: tuple[Fact, ...] = ()
    if pace is not None and pace.session_measured_s.size:
        error = pace.session_simulated_s / pace.session_measured_s - 1
        facts = (
            Fact("sessions of several turns", int(error.size), "count"),
            Fact("their length, bias", float(error.mean()), "ratio", "turns after the simulated ends"),
            Fact("their length, MAPE", float(np.abs(error).mean()), "ratio"),
        )
    table = Table(head, tuple(rows))  # type: ignore[arg-type]
    return Section("distribution", "In distribution", sentence, facts=facts, tables=(table,))


def _assumed(sent: Sent) -> Section:
    text = sent.rows.header["dialect"]["prompts"] == "text"
    return Section(
        "endpoint-assumptions", "Assumed of the server", "The comparison also holds under these assumptions.",
        assumptions=(
            "prompts are random tokens named by the trace's blocks: shared where the log shares, and without "
            "effect on speed; what the server answered is in no later prompt",
            "prompts are words, their lengths as the server's usage says" if text
            else "prompts are token ids, as long as in the log",
            "one engine answers, its cache empty of these prompts at the start",
            "requests are simulated when they were sent; at its own pace a turn follows the simulated end of "
            "the one before, by the log's gap",
        ),
    )  # fmt: skip
