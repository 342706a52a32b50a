"""Coefficients from client-side timings: against what the engine itself logged of the same run."""

import numpy as np
import pytest
from oracles.client_log import client_rows

from agentctl.endpoint.rows import rows_of
from agentctl.errors import InputError
from agentctl.estimators.endpoint_fit import Row, fit_endpoint

KINDS = {"B": ("cold", "cold"), "C": ("suffix", "suffix"), "A": ("plateau", "decode")}


def recorded():
    """Blocks B, C and A of the recorded probe as measured requests."""
    found = []
    for number, row in enumerate(client_rows()):
        tag = row["tag"].split(":")[0]
        if tag in KINDS:
            kind, role = KINDS[tag]
            usage = row["usage"]
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            found.append({
                "step": row["tag"] if tag == "A" else f"{tag}{number}", "kind": kind, "role": role,
                "status": "ok", "asked_tokens": row["plen"], "prefix_tokens": cached, "sent": row["t0"],
                "max_tokens": row["mx"], "chunks_s": row["ts"], "prompt_tokens": usage["prompt_tokens"],
                "cached_tokens": cached, "completion_tokens": usage["completion_tokens"],
            })  # fmt: skip
    return rows_of(found, {})


def test_a_recorded_probe_gives_what_the_engine_logged_of_the_same_run():
    """Engine-side least squares of that run: 0.297 ms a token, 2.44 us a context token, 0.219 us a pair."""
    read = recorded()
    fitted = fit_endpoint(read.rows)
    assert read.set_aside == {} and len(read.rows) == 67
    assert fitted.values["b_prefill"] == pytest.approx(0.297e-3, rel=0.15)
    assert fitted.values["b_context"] == pytest.approx(2.44e-6, rel=0.15)
    assert fitted.values["b_attention"] == pytest.approx(0.219e-6, rel=0.15)
    assert fitted.values["b0"] == pytest.approx(11.5e-3, rel=0.15)
    assert fitted.held_out.mape < 0.05
    assert all(one.status == "ok" for one in fitted.coefficients.values())
    assert (fitted.budget, fitted.budget_status) == (None, "not seen")  # chunks of 1,024 hardly show there


def rows(kinds, noise=0.0, budget=10**9):
    """Of an engine whose coefficients are 2 ms delta, 5 ms, 30 us, 100 us, 0.3 us, 10 ns, 0.4 us."""
    random = np.random.default_rng(0)
    found = []
    for new in (8, 64, 256, 512, 1024, 2048, 4096) * 2:
        chunks = -(-new // budget)
        past = budget * chunks * (chunks - 1) / 2
        seconds = 2e-3 + 5e-3 * chunks + 30e-6 * new + 5e-9 * new * (new + 1) + 4e-7 * past
        found.append(Row("cold", f"c{new}", seconds, new=new))
    for past, new in ((512, 64), (2048, 64), (2048, 256), (4096, 128)):
        pairs = new * past + new * (new + 1) / 2
        found.append(
            Row("suffix", f"s{past}", 7e-3 + 30e-6 * new + 1e-8 * pairs + 4e-7 * past, new=new, past=past)
        )
    for n, context in (
        (1, 64),
        (1, 4096),
        (4, 1024),
        (8, 512),
        (8, 8192),
        (16, 2048),
        (2, 64),
        (2, 4096),
        (6, 64),
        (12, 6000),
    ):
        found.append(Row("plateau", f"p{n}{context}", 5e-3 + 1e-4 * n + 3e-7 * context, 1, n, context))
    factor = np.exp(noise * random.standard_normal(len(found)))
    return [
        row._replace(seconds=row.seconds * f)
        for row, f in zip(found, factor, strict=True)
        if row.kind in kinds
    ]


def test_the_standard_errors_cover_the_truth():
    fitted = fit_endpoint(rows(("cold", "suffix", "plateau"), noise=0.03))
    for name, true in (("b0", 5e-3), ("b_prefill", 30e-6), ("b_context", 3e-7), ("b_attention", 1e-8)):
        one = fitted.coefficients[name]
        assert 0 < one.standard_error < 0.2 * true and abs(one.value - true) < 3 * one.standard_error


def test_without_decodes_the_wait_and_the_fixed_cost_are_not_told_apart():
    fitted = fit_endpoint(rows(("cold", "suffix")))
    assert {"b_decode", "b_context"} <= set(fitted.missing)
    delta, b0 = fitted.coefficients["delta"], fitted.coefficients["b0"]
    assert "not separable" in (delta.status, b0.status)
    assert b0.value is None or delta.value is None


def test_the_chunk_budget_shows_in_long_prompts():
    assert fit_endpoint(rows(("cold", "suffix", "plateau"), budget=512)).budget == 512
    assert fit_endpoint(rows(("cold", "suffix", "plateau"))).budget is None


def test_the_chunk_budget_is_counted_beside_decodes_where_times_do_not_show_it(monkeypatch):
    """A prompt of 3,500 tokens in four batches: 1,024 each, however noisy the times are."""
    monkeypatch.setattr("agentctl.estimators.endpoint_fit.DRAWS", 10)
    found = noisy(rows(("cold", "suffix", "plateau")), 0.1, 0)
    assert fit_endpoint(found).budget is None
    for chunks, budget in ((14, 256), (7, 512), (4, 1024), (2, 2048), (1, None), (5, None)):
        beside = Row("inject", "i", 0.2, chunks + 1, 1, 64 * (chunks + 1), 3500, 0, chunks)
        assert fit_endpoint([*found, beside]).budget == budget


def test_too_few_rows_are_an_error():
    with pytest.raises(InputError, match="too few"):
        fit_endpoint(rows(("plateau",))[:7])


def noisy(found, share, seed):
    factor = np.exp(share * np.random.default_rng(seed).standard_normal(len(found)))
    return [row._replace(seconds=row.seconds * f) for row, f in zip(found, factor, strict=True)]


def test_a_term_that_cannot_be_told_from_nothing_is_bounded_and_not_claimed():
    """Decodes cost 20 ns each here, a thousandth of the noise: the bound holds, and the rest stays right."""
    found = [row._replace(seconds=row.seconds - 0.9998e-4 * row.n_decode)
             for row in rows(("cold", "suffix", "plateau"))]  # fmt: skip
    fitted = fit_endpoint(noisy(found, 0.02, 2))
    one = fitted.coefficients["b_decode"]
    assert (one.value, one.status) == (None, "bounded") and 20e-9 < one.at_most < 1e-4
    assert fitted.missing == [] and fitted.batch_terms["b_decode"] == 0.0
    assert fitted.values["b0"] == pytest.approx(5e-3, rel=0.1)


@pytest.mark.parametrize("seed", [0, 1])
def test_terms_that_stand_for_each_other_are_refused(seed):
    """Contexts that grow with the widths: either alone would meet the times, and neither is claimed unless
    its error is small."""
    found = rows(("cold", "suffix"))
    for n, context in ((1, 1000), (8, 9200), (16, 15000), (1, 1150), (8, 7000), (16, 17000)):
        found.append(Row("plateau", f"p{n}{context}", 5e-3 + 1e-3 * n + 1e-6 * context, 1, n, context))
    fitted = fit_endpoint(noisy(found, 0.1, seed))
    pair = [fitted.coefficients[name] for name in ("b_decode", "b_context")]
    assert "not identified" in {one.status for one in pair} and fitted.missing
    for one, true in zip(pair, (1e-3, 1e-6), strict=True):
        assert one.value is None or abs(one.value - true) < 3 * one.standard_error


def test_a_fixed_cost_that_is_lost_in_noise_is_missing(monkeypatch):
    monkeypatch.setattr("agentctl.estimators.endpoint_fit.DRAWS", 50)
    fitted = fit_endpoint(noisy(rows(("cold", "suffix", "plateau")), 1.5, 5))
    assert all(
        one.value is None or one.standard_error < 0.5 * one.value for one in fitted.coefficients.values()
    )
    assert "b0" in fitted.missing


def test_padded_widths_are_found_and_a_line_is_none():
    def served(padded):
        found = rows(("cold", "suffix"))
        for n, context in (
            (1, 64),
            (2, 512),
            (3, 64),
            (4, 4096),
            (6, 512),
            (8, 64),
            (9, 64),
            (12, 256),
            (16, 64),
        ):
            seconds = 5e-3 + 4e-4 * padded(n) + 3e-7 * n * context
            found.append(Row("plateau", f"p{n}", seconds, 1, n, n * context))
        return fit_endpoint(found).stairs

    stairs = served(lambda n: min(size for size in (1, 2, 4, 8, 16) if size >= n))
    assert stairs.seen and stairs.error < 1e-3 < stairs.error_line
    assert not served(lambda n: n).seen
    assert not fit_endpoint(recorded().rows).stairs.seen  # no graphs on a CPU
