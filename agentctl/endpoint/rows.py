"""From what a client saw to rows that can be fitted; what cannot be trusted is set aside under a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentctl.endpoint.client import Dialect
from agentctl.endpoint.measured import Measured, dialect_of
from agentctl.endpoint.rows_file import with_zeros
from agentctl.estimators.endpoint_fit import Row

MORE_CACHED = "more cached than sent before"
WITHHELD = "chunks are not tokens"
BUSY = 0.8  # of a core: the client's own work is in its timings from there
DISTURBED = 1.5  # times the fastest repeat
BUNCHED = 0.2  # share of gaps far below the usual one: several tokens sent at once
HELD_BACK = 0.5  # share of chunks in one piece with the chunk before
WORDS_OFF, SPARE = 2.0, 64  # tokens of words are off by such a factor, and by so many, at most
FEW = 8  # tokens that random prompts share by chance, and what begins a text
LEAST_GAPS = 4  # of each decode of a plateau
SLOW = 1.5  # times the usual gap: a batch that also carries a prefill
STATUS = {
    "http": "HTTP error", "refused": "no connection", "stalled": "stalled", "closed": "closed early",
    "not streamed": "not streamed", "malformed": "not understood", "failed": "error in the stream",
    "cut": "cut off",
}  # fmt: skip

Request = dict[str, Any]


@dataclass(frozen=True)
class Read:
    rows: tuple[Row, ...]
    set_aside: dict[str, int]  # requests, by reason
    mixed: tuple[Request, ...]  # answered, of the load that is never fitted
    read: int


def read_rows(measured: Measured) -> Read:
    """Rows of the steps that ended."""
    dialect = dialect_of(measured.header, f"{measured.path}:1")
    return rows_of(measured.rows(), measured.steps, dialect)


def rows_of(
    requests: Sequence[Request], steps: dict[str, dict[str, Any]], dialect: Dialect | None = None
) -> Read:
    """steps  {name: its load_before, load_after, client_busy}, as far as known."""
    requests, dialect = with_zeros(requests), dialect or Dialect()
    aside: Counter[str] = Counter()
    rows: list[Row] = []
    mixed: list[Request] = []
    by_step: dict[str, list[Request]] = {}
    for request in requests:
        by_step.setdefault(request["step"], []).append(request)
    for name, its in by_step.items():
        kind = its[0]["kind"]
        reasons = [why_not(one, steps.get(name, {}), dialect) for one in its]
        if kind == "mixed":
            mixed += [one for one, why in zip(its, reasons, strict=True) if why is None]
            aside.update(why for why in reasons if why)
        elif kind in ("cold", "suffix"):
            aside.update(why for why in reasons if why)
            rows += [_first_token(one) for one, why in zip(its, reasons, strict=True)
                     if why is None and one["role"] == kind]  # fmt: skip
        elif kind in ("plateau", "inject"):
            clean, why = _clean(its, reasons)
            found = (
                None
                if why
                else _plateau(its, clean, name)
                if kind == "plateau"
                else _injected(its, clean, name)
            )
            if found:
                rows.append(found)
                aside.update(why for why in reasons if why)
            else:
                aside.update({why or "no window in which all decode": len(its)})
    rows, disturbed = _undisturbed(rows)
    aside.update({"slower than its repeats": disturbed} if disturbed else {})
    return Read(tuple(rows), dict(aside), tuple(mixed), len(requests))


def why_not(one: Request, step: dict[str, Any], dialect: Dialect) -> str | None:
    """Why a request's timings are not used."""
    tokens = one["completion_tokens"]
    if one["status"] != "ok":
        return STATUS.get(one["status"], "not understood")
    if tokens is None or one["prompt_tokens"] is None:
        return "no usage"
    if not lengths_agree(one, dialect):
        return "usage differs from what was sent"
    if not hits_possible(one, dialect):
        return MORE_CACHED
    if tokens != one["max_tokens"]:
        return "another output length than asked for"
    if len(one["chunks_s"]) != tokens:
        return WITHHELD
    if at_once(one["chunks_s"]) or (one["kind"] != "mixed" and _is_bunched(one["chunks_s"])):
        return "chunks came in bunches"
    if one["role"] == "suffix" and one["cached_tokens"] is None:
        return "hits not reported"
    if (step.get("load_before") or 0) > 0 or (step.get("load_after") or 0) > 0:
        return "other traffic"
    if step.get("client_busy", 0.0) > BUSY:
        return "client out of breath"
    return None


def at_once(chunks: Sequence[float]) -> bool:
    """Whether most chunks came in one piece with the chunk before: a proxy or the server held them back, and
    neither the first token's time nor those between tokens can be seen."""
    return len(chunks) > 1 and float((np.diff(chunks) <= 0).mean()) > HELD_BACK


def lengths_agree(one: Request, dialect: Dialect) -> bool:
    """Whether usage can be true of the prompt that was sent: token ids are counted exactly but for what
    begins a text; words are about as many tokens as was measured."""
    asked, told = one["asked_tokens"], one["prompt_tokens"]
    if dialect.prompts == "tokens":
        return bool(asked <= told <= asked + 2)
    least = max(asked, dialect.tokens_around)
    return bool(asked / WORDS_OFF - SPARE <= told <= WORDS_OFF * least + SPARE)


def hits_possible(one: Request, dialect: Dialect) -> bool:
    """No more can be cached than was sent before: prompts are random beyond their prefix."""
    most = one["prefix_tokens"] + FEW
    if dialect.prompts == "text":
        most = WORDS_OFF * one["prefix_tokens"] + dialect.tokens_around + SPARE
    return bool((one["cached_tokens"] or 0) <= min(most, one["prompt_tokens"]))


def _is_bunched(chunks: Sequence[float]) -> bool:
    """Of the last gaps, in which others' prefill is rare."""
    gaps = np.diff(chunks)[-16:]
    return len(gaps) >= 8 and float((gaps < 0.2 * np.quantile(gaps, 0.8)).mean()) > BUNCHED


def _first_token(one: Request) -> Row:
    past = one["cached_tokens"] or 0
    cell = f"{one['kind']}-{one['asked_tokens']}-{one['prefix_tokens']}"
    return Row(one["kind"], cell, one["chunks_s"][0], new=one["prompt_tokens"] - past, past=past)


def _clean(its: Sequence[Request], reasons: Sequence[str | None]) -> tuple[list[Request], str | None]:
    """Requests whose chunks are tokens, and why the step is of no use. llama.cpp withholds half characters:
    such a request is a load like any other, and its neighbours tell the time."""
    bad = [why for why in reasons if why]
    spoilt = next((why for why in bad if why != WITHHELD), None)
    clean = [one for one, why in zip(its, reasons, strict=True) if not why]
    enough = 2 * len(bad) < len(its) and any(one["role"] in ("decode", "carrier") for one in clean)
    return clean, spoilt or (None if enough else WITHHELD)


def _arrivals(one: Request) -> np.ndarray:
    return one["sent"] + np.array(one["chunks_s"])


def _plateau(its: Sequence[Request], clean: Sequence[Request], cell: str) -> Row | None:
    """The median time between tokens while all decode, and the context then.

    Between its tokens j and j+1 a request computes on prompt + j - 1 tokens.
    """
    times = [_arrivals(one) for one in its if one["role"] == "decode"]
    begin, end = max(one[0] for one in times), min(one[-1] for one in times)
    gaps, contexts = [], []
    for one in clean:
        arrivals = _arrivals(one)
        inside = np.flatnonzero((arrivals[:-1] >= begin) & (arrivals[1:] <= end))
        if len(inside) < LEAST_GAPS:
            return None
        gaps.append(np.diff(arrivals)[inside])
        contexts.append(one["prompt_tokens"] + inside.mean())
    return Row(
        "plateau",
        cell,
        float(np.median(np.concatenate(gaps))),
        1,
        len(times),
        float(np.mean(contexts) * len(times)),
    )


def _injected(its: Sequence[Request], clean: Sequence[Request], cell: str) -> Row | None:
    """From each decode's last token before the prefill was sent to its token of the batch that ended it."""
    beside = next((one for one in clean if one["role"] == "injected"), None)
    carriers = [one for one in clean if one["role"] == "carrier"]
    n_decode = sum(one["role"] == "carrier" for one in its)
    if beside is None or not carriers:
        return None
    first = beside["sent"] + beside["chunks_s"][0]
    found, contexts = [], []
    start = max(_arrivals(one)[0] for one in its if one["role"] == "carrier")
    for one in carriers:
        arrivals = _arrivals(one)
        usual = float(np.median(np.diff(arrivals)))
        before = int(np.searchsorted(arrivals, beside["sent"])) - 1
        after = int(np.searchsorted(arrivals, first - 0.3 * usual))
        if before < 0 or arrivals[before] < start or after >= len(arrivals) or after <= before:
            return None
        found.append((after - before, float(arrivals[after] - arrivals[before])))
        contexts.append(one["prompt_tokens"] + (before + after - 1) / 2)
    chunks = int(np.median([_slow(one, beside["sent"], first) for one in carriers]))
    batches = Counter(count for count, _ in found).most_common(1)[0][0]
    seconds = float(np.median([time for count, time in found if count == batches]))
    past = beside["cached_tokens"] or 0
    new = beside["prompt_tokens"] - past
    context = float(np.mean(contexts) * n_decode)
    return Row("inject", cell, seconds, batches, n_decode, context, new, past, chunks)


def _slow(one: Request, sent: float, first: float) -> int:
    """Times between its tokens that are far longer than usual while another's prefill goes on: its chunks."""
    arrivals = _arrivals(one)
    gaps = np.diff(arrivals)
    usual = float(np.median(gaps[arrivals[1:] < sent])) if (arrivals[1:] < sent).any() else np.inf
    inside = (arrivals[1:] > sent) & (arrivals[:-1] < first - 0.3 * usual)
    return int((gaps[inside] > SLOW * usual).sum())


def _undisturbed(rows: Sequence[Row]) -> tuple[list[Row], int]:
    """Without first tokens that took far longer than a repeat of the same prompt length."""
    kept = list(_quick(rows))
    return kept, len(rows) - len(kept)


def _quick(rows: Sequence[Row]) -> Iterator[Row]:
    fastest: dict[str, float] = {}
    for row in rows:
        fastest[row.cell] = min(row.seconds, fastest.get(row.cell, np.inf))
    yield from (row for row in rows if row.seconds <= DISTURBED * fastest[row.cell])
