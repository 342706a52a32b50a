"""What `load` says to a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentctl.analyzers.words import count, number, percent, seconds
from agentctl.present import Fact, Figure, Section, Table

if TYPE_CHECKING:
    from agentctl.analyzers.load import Result

SKEW_WARNING = (
    0.01,
    0.30,
)  # the top 1 % of sessions with more than 30 % of the tokens decide every comparison


def describe(result: Result) -> Section:
    return Section(
        name="load",
        title="Load and balance",
        sentence=_sentence(result),
        facts=_facts(result),
        tables=_tables(result),
        figures=_figures(result),
        assumptions=_assumptions(result),
        warnings=_warnings(result),
    )


def _sentence(result: Result) -> str:
    if result.requests_per_min is None:
        return f"The load cannot be told: {result.rates_reason}."
    text = f"The log offers {number(result.requests_per_min)} requests/min over {seconds(result.span_s)}"
    if result.sessions_per_min is not None and result.multi_turn_sessions:
        text += f", from {number(result.sessions_per_min)} new sessions/min"
    if result.requests_in_flight:
        text += f", with {number(result.requests_in_flight.mean)} requests in flight on average"
    hot = [h for h in result.headroom if h.hot_prefixes]
    if hot:
        prefixes = count(hot[0].hot_prefixes or 0, "prefix", "prefixes")
        return (
            f"{text}; on {hot[0].engines} engines, {prefixes} would bring an engine that alone held it more "
            f"than its share of the requests: the most used has {percent(result.prefixes[0].request_ratio)}."
        )
    return f"{text}."


def _facts(result: Result) -> tuple[Fact, ...]:
    requests, sessions = result.requests_in_flight, result.sessions_in_flight
    return (
        Fact("Requests", result.requests_per_min, "per_min", "mean over the trace"),
        Fact("Requests in the busiest minute", result.peak_requests_per_min, "per_min",
             "size the cluster for this, not for the mean"),
        Fact("New sessions", result.sessions_per_min, "per_min", "the load that a simulation scales"),
        Fact("Prompt", result.prompt_tokens_per_s, "tokens_per_s",
             "prefill demand without any cache; multiply by one minus the hit ratio"),
        Fact("Output", result.output_tokens_per_s, "tokens_per_s", "decode demand"),
        Fact("Requests in flight, p99", requests.p99 if requests else None, "count",
             "batch slots the cluster needs; sequences per engine times engines should exceed it"),
        Fact("Sessions in flight, p99", sessions.p99 if sessions else None, "count",
             "contexts whose KV must stay somewhere to be hit again"),
    )  # fmt: skip


def _tables(result: Result) -> tuple[Table, ...]:
    tables = [
        Table(
            (("engines", "count"), ("requests per engine", "per_min"), ("hot prefixes", "count")),
            tuple((h.engines, h.requests_per_min_per_engine, h.hot_prefixes) for h in result.headroom),
            "Balance headroom",
        ),
        Table(
            (("top sessions", "ratio"), ("sessions", "count"), ("share of tokens", "ratio")),
            tuple((t.session_ratio, t.sessions, t.token_ratio) for t in result.top_sessions),
            "Do few sessions carry the load?",
        ),
        Table(
            (("window", "s"), ("requests", ""), ("session starts", "")),
            tuple((b.window_s, b.requests_dispersion, b.sessions_dispersion) for b in result.burstiness),
            "Burstiness: variance over mean of the counts per window (1 = Poisson)",
        ),
        Table(
            (
                ("first node", ""), ("requests", "count"), ("sessions", "count"), ("share x", "ratio"),
                ("x/(1-x)", ""), ("common prefix", "tokens"), ("safe up to engines", "count"),
            ),
            tuple(
                (p.node, p.requests, p.sessions, p.request_ratio, p.odds, p.common_tokens, p.safe_engines)
                for p in result.prefixes
            ),
            "Most used prefixes",
        ),
    ]  # fmt: skip
    return tuple(table for table in tables if table.rows)


def _figures(result: Result) -> tuple[Figure, ...]:
    if not result.arrivals_curve.x:
        return ()
    return (
        Figure(
            "load-arrivals", "When does the load come?", "seconds since the first request", "requests/min",
            (result.arrivals_curve,),
            "Peaks that last longer than a session decide the size of the cluster; with a trend, results "
            "from one part of the trace do not carry over to another."
            + (" Session starts are synthesised here: only the shape inside sessions is real."
               if result.starts == "synthesised" else ""),
            y_unit="per_min",
        ),
    )  # fmt: skip


def _assumptions(result: Result) -> tuple[str, ...]:
    texts = []
    if not result.prefixes_reason:
        texts.append(
            "Hot-prefix test x/(1-x) <= |M|/|rest| with |M| = 1, per first block that two requests share "
            f"(after the {result.common_prefix_tokens or 0:,} tokens that all have), over the whole trace: a "
            "prefix passes on n engines while its share of requests is at most 1/n."
        )
    texts += [
        "For comparison: on published agent traces with 43-48 requests per minute and engine balance was "
        "attainable in aggregate.",
        "Tokens of a session: prompts and outputs of all its requests, cached or not.",
    ]
    if result.starts == "synthesised":
        texts.append(
            "Session starts are synthesised: rates, concurrency and burstiness follow the chosen rate."
        )
    if result.hash_scope == "session":
        texts.append("Block ids are local to a session, so a prefix that sessions share cannot be seen.")
    return tuple(texts)


def _warnings(result: Result) -> tuple[str, ...]:
    found = []
    if result.concurrency_reason:
        found.append(
            f"Concurrency is unknown: {result.concurrency_reason}. Log the duration (--map e2e_s=FIELD)."
        )
    share, limit = SKEW_WARNING
    for top in result.top_sessions:
        if top.session_ratio == share and top.token_ratio > limit and top.sessions > 1:
            found.append(
                f"The top {percent(share)} of sessions hold {percent(top.token_ratio)} of the tokens: "
                "results depend on where these few go. Use a longer log; read intervals, not means."
            )
    return tuple(found)
