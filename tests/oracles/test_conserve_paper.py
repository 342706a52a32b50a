"""The authors' run of ConServe by hand."""

from oracles.conserve_paper import Prefiller, bookkeeping, cached_prefill, transfer, wrong_turn
from pytest import approx


def test_costs_have_the_values_that_the_authors_code_gives():
    assert transfer(15_400) == approx(20.44e-3, abs=5e-6)
    assert transfer(1_024) == transfer(1) == 4.849e-3
    assert cached_prefill(15_468) == approx(20.29e-3, abs=5e-6)
    assert cached_prefill(12_000) == 14.5e-3
    assert bookkeeping(15_468) == approx(13.67e-3, abs=5e-6)


def test_a_wrong_turn_costs_59_ms_and_123_as_the_authors_count_the_history():
    # 20.44 + 20.29 + 4.85 + 13.67; and with the 25,000 tokens of the shared prompt in front of it.
    assert wrong_turn(15_400, 68) == approx(59.25e-3, abs=1e-5)
    assert wrong_turn(40_400, 68) == approx(123.25e-3, abs=1e-5)


def test_an_overfed_prefill_engine_completes_as_many_as_it_can():
    # Sessions of 15,290 tokens take 0.6116 s each and come every 0.5 s: session k ends at 0.6116 (k + 1).
    engine = Prefiller()
    served = [engine.first_turn(0.5 * k, 15_290) for k in range(256)]
    assert [s.end for s in served] == approx([0.6116 * (k + 1) for k in range(256)])
    assert 256 / served[-1].end == approx(1.635, abs=1e-3)
    assert served[255].start - 0.5 * 255 == approx(0.1116 * 255)  # its wait, 28 s


def test_a_wrong_turn_stands_behind_all_first_turns_and_before_the_next():
    # Two first turns of 25,000 tokens at 0: the engine is free at 2. A wrong turn at 1 waits for 1 s and
    # goes on 59.25 ms later; it has held the engine for 20.29 ms, and the next first turn starts then.
    engine = Prefiller()
    assert [engine.first_turn(0.0, 25_000).end for _ in range(2)] == [1.0, 2.0]
    assert engine.wrong_turn(1.0, 15_400, 68) == approx(2.05925, abs=1e-5)
    assert engine.first_turn(1.5, 25_000).start == approx(2.02029, abs=1e-5)


def test_a_wrong_turn_at_an_idle_engine_waits_for_nothing():
    assert Prefiller().wrong_turn(10.0, 15_400, 68) == approx(10.05925, abs=1e-5)
