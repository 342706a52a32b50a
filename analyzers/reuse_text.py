"""What `reuse` says to a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentctl.analyzers.words import count, percent, seconds
from agentctl.present import Curve, Fact, Figure, Section, Table

if TYPE_CHECKING:
    from agentctl.analyzers.reuse import Result
    from agentctl.analyzers.reuse_ratios import TurnGroup

TITLE = "KV reuse"


def describe(result: Result) -> Section:
    if result.reason:
        sentence = f"KV reuse cannot be computed: {result.reason}."
        return Section("reuse", TITLE, sentence, warnings=_warnings(result))
    return Section(
        name="reuse",
        title=TITLE,
        sentence=_sentence(result),
        facts=_facts(result),
        tables=(_needed_table(result), *_pool_tables(result), _turn_table(result)),
        figures=(_capacity_figure(result), *_interval_figures(result), *_working_set_figures(result)),
        assumptions=_assumptions(result),
        warnings=_warnings(result),
    )


def _sentence(result: Result) -> str:
    ratio, needed = result.ideal_token_ratio, {n.share_of_ideal: n.tokens for n in result.needed_for_ideal}
    if not ratio:
        return "No prompt token was computed before: a prefix cache finds nothing in this trace."
    text = (
        f"{percent(ratio)} of the prompt tokens were computed before; one LRU pool of "
        f"{needed[0.9]:,} tokens finds 90 % of that"
    )
    if result.intra_session is None:
        return f"{text}."
    return f"{text}, and {percent(result.intra_session)} of the reuse follows a use by the same session."


def _facts(result: Result) -> tuple[Fact, ...]:
    half, work = result.last_half, result.working_set
    return (
        Fact(
            "Ideal reuse, share of prompt tokens", result.ideal_token_ratio, "ratio",
            "the most that routing and cache size can win of prompts (KV of answers comes on top); identical "
            "partial last blocks count",
        ),
        Fact(
            f"The same in whole blocks of {result.block_tokens} tokens", result.ideal_token_ratio_full_blocks,
            "ratio", "what an engine that caches whole blocks could find",
        ),
        Fact(
            "Ideal reuse over the last half of the requests", half.token_ratio if half else None, "ratio",
            "far above the whole trace: the log is too short to have warmed the cache",
        ),
        Fact(
            "Ideal reuse, mean over requests", result.ideal_request_mean, "ratio",
            "above the token ratio: short prompts reuse more; not the saving in GPU time",
        ),
        Fact(
            "Reuse last used by the same session, share of reused tokens", result.intra_session, "ratio",
            "high: keep a session on its engine; low: prefixes are shared, spread or replicate them",
        ),
        Fact(
            "Reuse that the same session ever had", result.intra_session_any_holder, "ratio",
            "what session affinity alone can keep, if nothing is evicted",
        ),
        Fact(
            "Blocks that only one request used", result.single_use_block_ratio, "ratio",
            "high: admission control (cache on second use) saves space",
        ),
        Fact(
            "Reuse on the tenth of the blocks used most", result.top_tenth_reuse_ratio, "ratio",
            "high: a small hot set; pin or replicate it",
        ),
        Fact(
            "Time since last use, p90 of reused tokens", result.reuse_interval_s.get("p90"), "s",
            "KV that is kept shorter than this loses a tenth of the reuse or more",
        ),
        Fact(
            "Least cache that could hold every reuse", work.peak_waiting_tokens if work else None, "tokens",
            "far below what LRU needs: eviction policy pays more than memory",
        ),
    )  # fmt: skip


def _needed_table(result: Result) -> Table:
    rows = tuple((n.share_of_ideal, n.tokens) for n in result.needed_for_ideal)
    return Table((("share of ideal", "ratio"), ("LRU pool", "tokens")), rows, "How much KV holds the reuse")


def _pool_tables(result: Result) -> tuple[Table, ...]:
    if not result.pools:
        return ()
    rows = tuple(
        (
            p.engines,
            p.engines * p.kv_tokens_per_engine,
            p.bound_ratio,
            p.one_pool_ratio,
            p.dealt_sessions_ratio,
        )
        for p in result.pools
    )
    return (
        Table(
            (
                ("engines", "count"),
                ("KV", "tokens"),
                ("bound", "ratio"),
                ("LRU, one pool", "ratio"),
                ("LRU, sessions dealt", "ratio"),
            ),
            rows,
            "What the KV of n engines keeps, at most and with plain LRU",
        ),
    )


def _turn_table(result: Result) -> Table:
    return Table(
        (("turn", ""), ("requests", "count"), ("prompt", "tokens"), ("ideal reuse", "ratio")),
        tuple((_turns(t), t.requests, t.prompt_tokens, t.ideal_token_ratio) for t in result.by_turn),
        "Reuse by turn",
    )


def _turns(group: TurnGroup) -> str:
    if group.last_turn is None:
        return f"{group.first_turn}+"
    single = group.first_turn == group.last_turn
    return str(group.first_turn) if single else f"{group.first_turn}-{group.last_turn}"


def _capacity_figure(result: Result) -> Figure:
    lru, best = result.lru_curve, result.belady_curve
    curves = [
        Curve("LRU", tuple(float(p.tokens) for p in lru), tuple(p.ratio for p in lru)),
        Curve("LRU, last half", tuple(float(p.tokens) for p in lru), tuple(p.ratio_last_half for p in lru)),
        Curve("Belady's optimum", tuple(float(p.tokens) for p in best), tuple(p.token_ratio for p in best)),
    ]
    if lru and result.ideal_token_ratio is not None:
        ends = (float(lru[0].tokens), float(lru[-1].tokens))
        curves.append(Curve("infinite cache", ends, (result.ideal_token_ratio,) * 2))
    return Figure(
        "reuse-capacity", "How much of the prompts does a cache of this size find?",
        "cache, tokens", "share of prompt tokens", tuple(curves),
        "Size the KV pools of all engines together at the knee of the LRU curve; the gap to the optimum is "
        "what better eviction could win. It is one pool: with a pool per engine, placement decides as well.",
        x_log=True, y_unit="ratio",
    )  # fmt: skip


def _interval_figures(result: Result) -> tuple[Figure, ...]:
    points = result.reuse_interval_cdf
    if not points:
        return ()
    curve = Curve("reused tokens", tuple(p.interval_s for p in points), tuple(p.token_share for p in points))
    return (
        Figure(
            "reuse-interval", "How long does KV wait for its next use?",
            "time since the last use, s", "share of reused tokens", (curve,),
            f"Half of the reuse comes within {seconds(result.reuse_interval_s['p50'])}, 90 % within "
            f"{seconds(result.reuse_interval_s['p90'])}. Times are as logged; another load stretches them.",
            x_log=True, y_unit="ratio",
        ),
    )  # fmt: skip


def _working_set_figures(result: Result) -> tuple[Figure, ...]:
    work = result.working_set
    if work is None:
        return ()
    start = tuple(w.start_s for w in work.windows)
    touched = Curve("touched", start, tuple(float(w.touched_tokens) for w in work.windows), "step")
    waiting = Curve("will be used again", start, tuple(float(w.waiting_tokens) for w in work.windows), "step")
    return (
        Figure(
            "reuse-working-set", "How large is the working set over time?",
            "arrival, s", f"distinct KV per {seconds(work.window_s)}, tokens", (touched, waiting),
            "A pool smaller than what will be used again must lose reuse, whatever it evicts. At the end of "
            "the log nothing is known to be used again, so that curve falls there by construction.",
            y_unit="tokens",
        ),
    )  # fmt: skip


def _assumptions(result: Result) -> tuple[str, ...]:
    return (
        f"Blocks of {result.block_tokens} tokens as in the log, cold cache at the start.",
        "Requests with status ok, aborted or timeout count and fill the cache.",
        "Capacity is one pool of blocks: no block is pinned by a running request, generated tokens are not "
        "cached. A sizing curve, not the simulator's answer.",
        "LRU touches a prompt from its tail to its head, so the tail is evicted first. A partial last block "
        "takes a whole place.",
        "Belady's optimum counts blocks alike, knows the future and may refuse blocks: an upper bound.",
        "Reuse intervals run from arrival to arrival, not from the end of the earlier request.",
    )


def _warnings(result: Result) -> tuple[str, ...]:
    found = []
    if result.excluded_requests:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in result.excluded_requests.items())
        found.append(f"{count(sum(result.excluded_requests.values()), 'request')} left out: {reasons}.")
    if result.chain_conflicts:
        found.append(
            f"{count(result.chain_conflicts, 'block id')} seen under more than one parent: the ids may not "
            "be chained hashes, and reuse is then understated. Ingest again with chained ids."
        )
    if result.hash_scope == "session" and not result.reason:
        found.append(
            "Block ids compare only within a session: reuse across sessions is unknown and not counted; "
            "the ratios are lower bounds."
        )
    return tuple(found)
