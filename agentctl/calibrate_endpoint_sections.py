"""What a calibration from outside says, for the terminal and the HTML report."""

from __future__ import annotations

from collections.abc import Iterator

from agentctl.analyzers.words import count, percent
from agentctl.calibrate_endpoint_mixed import Mixed
from agentctl.endpoint.rows import Read
from agentctl.estimators.batch_terms import MEANING
from agentctl.estimators.endpoint_fit import EndpointFit
from agentctl.present import Fact, Section, Table, Unit, Value

NANO = 1e9
POOR = 0.10  # held-out error from which the reader is warned
POOR_MIXED = 0.15
STAIR = 0.15  # error of a width from which it may be a stair of captured graphs
MANY = 0.1  # share of requests set aside


def sections_of(fitted: EndpointFit, read: Read, mixed: Mixed) -> tuple[Section, ...]:
    return (
        _verdict(fitted, read, mixed),
        _coefficients(fitted),
        _widths(fitted),
        _requests(read),
        _assumed(fitted),
    )


def _verdict(fitted: EndpointFit, read: Read, mixed: Mixed) -> Section:
    sentence = (
        f"From {count(read.read, 'request')}, as a client sees them: timings left out of the fit are met to "
        f"{percent(fitted.held_out.mape)}"
    )
    if mixed.ttft_mape is not None and mixed.ttft_mape_alone is not None:
        sentence += (
            f", first tokens of a mixed load never fitted to {percent(mixed.ttft_mape)} "
            f"({percent(mixed.ttft_mape_alone)} if each request were alone)"
        )
    overhead = fitted.values.get("delta")
    facts = [
        Fact(
            "held-out MAPE", fitted.held_out.mape, "ratio", "mean relative error, cells of the plan left out"
        ),
        *(
            Fact(f"of {kind}", one.mape, "ratio", count(one.rows, "row"))
            for kind, one in fitted.by_kind.items()
        ),
        Fact("mixed load, TTFT MAPE", mixed.ttft_mape, "ratio", mixed.why or f"{mixed.requests} requests"),
        Fact("mixed load, TTFT bias", mixed.ttft_bias, "ratio", "of the means; above 0: simulated too long"),
        Fact("mixed load, duration MAPE", mixed.e2e_mape, "ratio"),
        Fact("wait of a request", overhead, "s", "network, HTTP, tokenising; no part of the batch time"),
        Fact("chunk budget", fitted.budget, "tokens", fitted.budget_status),
        Fact("condition", fitted.condition, "", "above 30 coefficients trade off"),
    ]
    return Section(
        "fit", "How long a batch takes", f"{sentence}.", facts=tuple(facts),
        warnings=tuple(_warnings(fitted, read, mixed)),
    )  # fmt: skip


def _warnings(fitted: EndpointFit, read: Read, mixed: Mixed) -> Iterator[str]:
    if fitted.missing:
        yield f"no profile can be written: {', '.join(fitted.missing)} cannot be seen in what was measured"
    bounded = [name for name, one in fitted.coefficients.items() if one.status == "bounded" and one.at_most]
    if bounded:
        yield (
            f"{', '.join(bounded)} cannot be told from 0 and count as 0: times as probed are met as well; "
            "longer contexts and wider batches may show more"
        )
    if fitted.held_out.mape > POOR:
        yield f"a held-out error of {percent(fitted.held_out.mape)} is large: was the machine quiet?"
    if mixed.ttft_mape is not None and mixed.ttft_mape > POOR_MIXED:
        yield f"a mixed load is met to {percent(mixed.ttft_mape)} only: do not trust predictions under load"
    if mixed.why:
        yield f"the mixed load judges nothing: {mixed.why}"
    aside = sum(read.set_aside.values())
    if aside > MANY * read.read:
        yield f"{count(aside, 'request')} of {read.read} were set aside: see the reasons"
    if fitted.stairs and fitted.stairs.seen:
        yield (
            f"widths cost as much as the next of {_sizes(fitted)}: captured graphs pad batches "
            f"({percent(fitted.stairs.error)} off with stairs, {percent(fitted.stairs.error_line)} with the "
            "line that is written)"
        )
    elif any(one.kind == "plateau" and abs(p / one.seconds - 1) > STAIR
           for one, p in zip(fitted.rows, fitted.predicted, strict=True)):  # fmt: skip
        yield "some widths are far off the line, and off the usual sizes of captured graphs, too"


def _sizes(fitted: EndpointFit) -> str:
    widest = max(row.n_decode for row in fitted.rows)
    sizes = fitted.stairs.sizes if fitted.stairs else ()
    shown = [str(size) for k, size in enumerate(sizes) if not k or sizes[k - 1] < widest]
    return ", ".join(shown)


def _coefficients(fitted: EndpointFit) -> Section:
    rows: list[tuple[Value, ...]] = []
    for name, one in fitted.coefficients.items():
        error = one.standard_error / one.value if one.value and one.standard_error is not None else None
        value = None if one.value is None else float(f"{one.value * NANO:.4g}")
        bound = None if one.at_most is None else float(f"{one.at_most * NANO:.4g}")
        rows.append((name, MEANING.get(name, "each request"), value, error, bound, one.separable, one.status))
    head: tuple[tuple[str, Unit], ...] = (
        ("coefficient", ""), ("per", ""), ("ns", ""), ("standard error", "ratio"), ("at most", ""),
        ("separable", "ratio"),
        ("status", ""),
    )  # fmt: skip
    sentence = (
        "Coefficients in nanoseconds; `bounded` ones cannot be told from 0 and are taken as 0; `separable` "
        "is the share of a term that no other explains."
    )
    return Section("coefficients", "Coefficients", sentence, tables=(Table(head, tuple(rows)),))


def _widths(fitted: EndpointFit) -> Section:
    pairs = [(one, p) for one, p in zip(fitted.rows, fitted.predicted, strict=True) if one.kind == "plateau"]
    rows = tuple(
        (one.n_decode, round(one.context), one.seconds, float(p), float(p / one.seconds - 1))
        for one, p in sorted(pairs, key=lambda pair: (pair[0].n_decode, pair[0].context))
    )
    head: tuple[tuple[str, Unit], ...] = (
        ("decodes", "count"), ("context", "tokens"), ("measured", "s"), ("held out", "s"), ("error", "ratio"),
    )  # fmt: skip
    sentence = (
        "Time between tokens by width; errors that jump between widths are stairs that no line follows."
    )
    return Section("widths", "Decodes by width", sentence, tables=(Table(head, rows),), is_detail=True)


def _requests(read: Read) -> Section:
    rows = tuple(sorted(read.set_aside.items(), key=lambda pair: (-pair[1], pair[0])))
    sentence = f"{count(sum(read.set_aside.values()), 'request')} of {read.read} set aside."
    table = Table((("reason", ""), ("requests", "count")), rows)
    return Section("requests", "What was not used", sentence, tables=(table,) if rows else ())


def _assumed(fitted: EndpointFit) -> Section:
    chunks = {
        "given": f"batches hold {fitted.budget} tokens, as given",
        "found": f"batches hold {fitted.budget} tokens: the usual size that explains first tokens best",
        "not seen": "no prompt was seen to be split: the chunk budget is unknown (--max-num-batched-tokens)",
    }[fitted.budget_status]
    return Section(
        "assumptions", "Assumed", "What the numbers rest on.",
        assumptions=(
            chunks,
            "the client's clock and the network's constant part; a wait that varies is in the errors",
            "time between two batches belongs to the batch: a client cannot tell them apart",
            "the mixed load is simulated without a limit of KV memory",
            "prompts of random tokens: no speculative decoding, and content has no effect on speed",
        ),
    )  # fmt: skip
