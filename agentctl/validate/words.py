"""A back-test in sentences: the verdict, where errors come from, what to do; the document has the numbers."""

from __future__ import annotations

import numpy as np

from agentctl.analyzers.words import count, number, percent
from agentctl.validate.back_test import FAIL, HIT_FAIL, HIT_WARN, WARN, BackTest, Compared
from agentctl.validate.intervals import Estimate

LATENCY = {"ttft_s": "TTFT", "e2e_s": "end-to-end time", "tpot_s": "TPOT", "queue_s": "queue"}
SHORT = {"ttft_s": "TTFT", "e2e_s": "end-to-end"}
SAME = 5e-5  # no digit that is printed differs
EARLY, MOST_EARLY = 1e-6, 0.01  # TTFT over the duration by more than rounding; share of requests
ANOTHER_UNIT = 300.0  # no engine is as many times faster than another
MANY = 2.0  # an error beyond is told as a multiple
NOTABLE = 0.05  # a bias below it is not worth a cause
EVEN = 0.10  # biases of the bins of load that differ by less are alike
SLACK_S = 0.02  # a gap of TTFT below it is the way from the client and back, not the engine


def statement(test: BackTest) -> str:
    """The verdict in one or two sentences."""
    if test.compared is None or test.error is None:
        return f"Not validated: {test.why_not}."
    lead = {
        "OK": f"The simulator reproduces this {test.of}",
        "WARN": f"The simulator reproduces this {test.of} only roughly",
        "FAIL": f"The simulator does not reproduce this {test.of}",
    }[test.status]
    return f"{lead}: {_what(test)}."


def finding(test: BackTest) -> str:
    """V1's line among the checks of a recommendation."""
    if test.compared is None:
        return f"UNVALIDATED: {test.why_not}"
    policy = test.compared.policy
    placed = "as logged" if policy is None else f"by {policy}"
    more = "" if test.status == "OK" else "; agentctl validate TRACE shows where"
    return f"simulated with the requests placed {placed}: {_what(test)}{more}"


def _what(test: BackTest) -> str:
    """How far simulated and logged are apart."""
    found = test.compared
    if found is None or test.error is None or test.worst is None:
        return str(test.why_not)
    limits = f"limits {100 * WARN:.0f} and {100 * FAIL:.0f} %"
    name, part = test.worst
    judged = " and ".join(SHORT[one] for one in SHORT if found.errors[one].n)  # the log may have one alone
    if abs(test.error.value or 0.0) < SAME:
        said = [f"{judged} p50 and p95 are the same as in the log"]
    else:
        said = [
            f"{LATENCY[name]} {part} is {_off(test.error)}, the largest error of {judged} p50 and "
            f"p95 ({limits})"
        ]
    gap = test.hit_gap
    if gap is None:
        said.append(found.no_hits or "no request has logged and simulated hits")
    elif abs(gap) < SAME:
        said.append("the hit ratio is the same")
    else:
        points = f"{100 * abs(gap):.1f} points too {'high' if gap > 0 else 'low'}"
        said.append(f"the hit ratio is {points} (limits {100 * HIT_WARN:.0f} and {100 * HIT_FAIL:.0f})")
    if found.rejected:
        said.append(
            f"{count(found.rejected, 'request')} that the log's engines served can never fit a simulated one"
        )
    return "; ".join(said)


def warnings(test: BackTest) -> tuple[str, ...]:
    """Where errors come from as far as it can be seen, and what weakens the comparison."""
    found = test.compared
    if found is None:
        return ()
    told = []
    if found.in_sample:
        told.append(
            "the profile was fitted to this very log: these are errors in sample, those on other traffic are "
            "larger; judge it on a log that it has not seen"
        )
    unit = _unit(found)
    told += [cause for cause in ((unit,) if unit else (_speed(found), _waiting(found), _hits(test))) if cause]
    if found.n_guessed:
        told.append(f"{count(found.n_guessed, 'request')} without an engine placed where its session was")
    if found.policy is not None:
        told.append(
            f"the log's placement is not known: {found.policy} placed the requests, so that its errors are "
            "in the numbers, too"
        )
    if test.status != "OK" and found.policy is None and not found.engines:
        told.append(
            "the log names no engine, so that one is taken to have served it all; were there more, say so: "
            "--engines N --current POLICY"
        )
    if found.blocks.caveat:
        told.append(found.blocks.caveat)
    return tuple(told)


def _off(error: Estimate) -> str:
    value = error.value or 0.0
    if value > MANY:
        return f"{number(1 + value)} times as long"
    text = f"{percent(abs(value))} too {'long' if value > 0 else 'short'}"
    if error.low is None or error.high is None:
        return text
    return f"{text} (95 % interval {100 * error.low:+.1f} to {100 * error.high:+.1f} %)"


def _unit(found: Compared) -> str | None:
    """Latencies that are no latencies in seconds, or not of the same clock: nothing else is worth saying."""
    ttft, e2e = found.pairs.logged["ttft_s"], found.pairs.logged["e2e_s"]
    both = np.isfinite(ttft) & np.isfinite(e2e)
    early = (ttft[both] > e2e[both] * (1 + EARLY)).mean() if both.any() else 0.0
    if early > MOST_EARLY:
        return (
            f"{percent(float(early))} of the log's requests ended before their first token: have ttft_s and "
            "e2e_s the same unit, and do they count from the same instant?"
        )
    medians = [(found.errors[name].simulated.p50, found.errors[name].logged.p50) for name in SHORT]
    shares = [ours / theirs for ours, theirs in medians if ours and theirs]
    if shares and (max(shares) < 1 / ANOTHER_UNIT or min(shares) > ANOTHER_UNIT):
        return (
            "every latency is hundreds of times off: are the log's in another unit than seconds? "
            "agentctl ingest --map ttft_s=FIELD:ms --map e2e_s=FIELD:ms"
        )
    return None


def _speed(found: Compared) -> str | None:
    """All times are off by about the same at every load: the engine is faster or slower than the profile."""
    name = "tpot_s" if found.errors["tpot_s"].n else "e2e_s"
    biases = [one.errors[name].bias.value for one in found.bins]
    known = [bias for bias in biases if bias is not None]
    whole = found.errors[name].bias.value
    if whole is None or abs(whole) < NOTABLE or max(known) - min(known) > EVEN:
        return None
    slower = "slower" if whole > 0 else "faster"
    return (
        f"{LATENCY[name]} is {percent(abs(whole))} too {'long' if whole > 0 else 'short'} at every load: the "
        f"profile's engine is {slower} than the log's (another GPU, model or parallelism, or "
        "host time that was not measured?); "
        "agentctl calibrate log TRACE fits one to it"
    )


def _waiting(found: Compared) -> str | None:
    """Decoding is right and the first token is not: it is what happens before."""
    tpot, ttft = found.errors["tpot_s"], found.errors["ttft_s"]
    if tpot.bias.value is None or ttft.error.get("mean", Estimate(None)).value is None:
        return None
    error, gap = ttft.error["mean"].value, ttft.gap_s.value
    if error is None or gap is None or abs(tpot.bias.value) >= NOTABLE or abs(error) <= WARN:
        return None
    if abs(gap) < SLACK_S:
        return None
    return (
        f"decoding is right (TPOT bias {100 * tpot.bias.value:+.1f} %) and the mean TTFT is "
        f"{percent(abs(error))} too {'long' if error > 0 else 'short'}: prefill or waiting differ; compare "
        "the engine's max_num_seqs, max_num_batched_tokens and KV blocks with the cluster's"
    )


def _hits(test: BackTest) -> str | None:
    gap = test.hit_gap
    if gap is None or abs(gap) <= HIT_WARN:
        return None
    if gap > 0:
        return (
            "the simulated caches find more than the log's: fewer KV blocks, other traffic on them, or "
            "a restart would explain it"
        )
    return (
        "the simulated caches find less than the log's: content that was cached before the log began, more "
        "KV blocks, a further KV tier, or block ids that hide what was shared would explain it"
    )
