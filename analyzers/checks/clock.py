"""Is the time in the log what it claims to be?"""

from __future__ import annotations

import numpy as np
import polars as pl

from agentctl.analyzers.checks.finding import Check, Finding, Log
from agentctl.analyzers.elapsed import elapsed
from agentctl.analyzers.words import count, percent, seconds

MANY_TIES = 0.10  # of the rows
A_TICK = 1e-3  # s; a smaller step is how close two requests came, not how coarse the clock is
MIN_TIME_BLOCKS = 12  # statistics resample blocks of span/16, at least 60 s and at most 600 s
MIN_BLOCK_S, MAX_BLOCK_S, BLOCKS = 60.0, 600.0, 16
MIN_LIFETIMES = 10  # trace length in median session lifetimes


def ties(log: Log) -> Finding | None:
    arrival = log.rows["arrival_s"].to_numpy()
    steps = elapsed(arrival[1:], arrival[:-1])
    tied = int((steps == 0).sum())
    if not tied:
        return None
    share = tied / arrival.size
    tick = steps[steps > 0].min(initial=np.inf)
    step = f"; arrivals come in steps of {seconds(float(tick))}" if A_TICK <= tick < np.inf else ""
    return Finding(
        "clock-ties",
        "warn" if share > MANY_TIES else "note",
        f"{count(tied, 'request')} ({percent(share)}) share their arrival with the one before{step}",
        "the order among them is that of the file, and their spacing is not real",
        "log arrivals in milliseconds",
        tied,
        share,
    )


def order(log: Log) -> Finding | None:
    """Rows older than one above them in their file; synthesised starts have an order of their own."""
    if log.is_synthesised or not log.rows.height:
        return None
    by_file = log.rows.sort("source_file", "source_row")
    newest = pl.col("arrival_s").cum_max().over("source_file")
    late = int(by_file.select((pl.col("arrival_s") < newest).sum()).item())
    if not late:
        return None
    return Finding(
        "clock-order",
        "note",
        f"{count(late, 'row')} stand below a later arrival in their file",
        "none here: rows are sorted by arrival; a tool that trusts the file's order misjudges reuse",
        "nothing to do, unless several hosts wrote the file: then compare their clocks",
        late,
        late / log.rows.height,
    )


def gaps(log: Log) -> Finding | None:
    """A turn cannot arrive before the end of the request that it waited for."""
    negative = int((log.rows["gap_s"] < 0).sum())
    if not negative:
        return None
    return Finding(
        "clock-negative-gap",
        "warn",
        f"{count(negative, 'turn')} arrived before the end of the turn that they follow",
        "think times are wrong there, so a replay by think time is too early",
        "log arrival and end from one clock",
        negative,
        negative / log.rows.height,
    )


def durations(log: Log) -> Finding | None:
    """Negative durations, and first tokens after the end."""
    rows = log.rows
    wrong = (pl.col("e2e_s") < 0) | (pl.col("ttft_s") < 0) | (pl.col("ttft_s") > pl.col("e2e_s"))
    n = int(rows.select(wrong.fill_null(False).sum()).item())
    if not n:
        return None
    return Finding(
        "clock-durations",
        "warn",
        f"{count(n, 'request')} have a negative duration or a first token after their end",
        "latencies, ends and gaps of these are wrong",
        "take ttft and e2e from one clock",
        n,
        n / rows.height,
    )


def length(log: Log) -> Finding | None:
    """Too short for intervals (a trace with synthesised starts can be made as long as one likes)."""
    if log.is_synthesised or not log.rows.height:
        return None
    span = float(log.rows["arrival_s"][-1] - log.rows["arrival_s"][0])
    lifetime = float((log.sessions["last_s"] - log.sessions["first_s"]).median() or 0.0)  # type: ignore[arg-type]
    blocks = span / min(max(span / BLOCKS, MIN_BLOCK_S), MAX_BLOCK_S)
    if blocks >= MIN_TIME_BLOCKS and span >= MIN_LIFETIMES * lifetime:
        return None
    return Finding(
        "clock-span",
        "warn",
        f"the log spans {seconds(span)} ({blocks:.3g} time blocks); a median session {seconds(lifetime)}",
        "intervals from resampling are too narrow, and most sessions lie at an edge",
        f"use a log of at least {seconds(max(MIN_TIME_BLOCKS * MIN_BLOCK_S, MIN_LIFETIMES * lifetime))}",
    )


def origin(log: Log) -> Finding | None:
    time = log.meta["time"]
    if log.is_synthesised:
        return Finding(
            "clock-synthesised",
            "note",
            f"the log has no absolute times: sessions start at {time['session_rate_per_min']:g} per minute "
            f"(seed {time['seed']})",
            "load, concurrency and reuse between sessions follow that rate, not what happened",
            "choose it with --session-rate, or use a log with times",
        )
    if time["tz_assumed"]:
        return Finding(
            "clock-zone",
            "note",
            f"times have no zone; {time['tz_assumed']} is assumed",
            "joins with other logs may be off by hours",
            "log times with their zone",
        )
    return None


CHECKS: tuple[Check, ...] = (ties, order, gaps, durations, length, origin)
