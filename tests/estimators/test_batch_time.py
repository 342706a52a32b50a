"""The batch-time formula, with numbers that can be added by hand."""

from hypothesis import given
from hypothesis import strategies as st

from agentctl.estimators.batch_time import BatchTime, batch_time, chunk_pairs

C = BatchTime(
    "hinge", b0=1.0, b_prefill=0.5, b_decode=0.25, b_context=0.01, b_context_mixed=0.02, b_attention=0.001,
    b_past=0.1, h0=0.5, h_seq=0.25,
)  # fmt: skip


def test_decodes_alone_pay_for_their_context():
    assert batch_time(C, 0, 0, 0, n_prefill=0, n_decode=2, decode_context=100) == 1.0 + 0.5 + 1.0


def test_a_batch_with_prefill_reads_decode_contexts_at_the_mixed_rate():
    assert batch_time(C, 4, 10, 3, n_prefill=1, n_decode=2, decode_context=100) == (
        1.0 + 2.0 + 0.5 + 2.0 + 0.001 * 10 + 0.1 * 3
    )


def test_many_sequences_are_bound_by_the_host():
    assert batch_time(C, 0, 0, 0, n_prefill=0, n_decode=100, decode_context=0) == 1.0 + 25.0
    assert batch_time(C._replace(h_seq=1.0), 0, 0, 0, 0, n_decode=100, decode_context=0) == 100.5


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8))
def test_pairs_of_a_prompt_do_not_depend_on_how_it_is_cut(chunks):
    total, pairs = 0, 0.0
    for tokens in chunks:
        pairs += chunk_pairs(tokens, total)
        total += tokens
    assert pairs == chunk_pairs(total, 0) == total * (total + 1) / 2
