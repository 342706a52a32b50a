"""Block size: the one multiple of 16 that fits every row, against trying them all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentctl.errors import InputError
from agentctl.ingest.blocks import BlockSizes, fits_block


def see(prompt: list[int], n_ids: list[int], first_line: int = 1) -> BlockSizes:
    sizes = BlockSizes()
    lines = np.arange(first_line, first_line + len(prompt))
    sizes.see(np.array(prompt, np.int64), np.array(n_ids, np.int64), lines, "log")
    return sizes


def fitting(prompt: list[int], n_ids: list[int]) -> set[int]:
    """Every size up to 4096 for which all lists are ceil(p / B), or all floor(p / B)."""
    rows = [(p, n) for p, n in zip(prompt, n_ids, strict=True) if p > 0 and n > 0]
    sizes = range(16, 4097, 16)
    ceil = {size for size in sizes if all(n == -(-p // size) for p, n in rows)}
    return ceil | {size for size in sizes if all(n == p // size for p, n in rows)}


@pytest.mark.parametrize("size", [16, 64, 256, 512])
@pytest.mark.parametrize("has_tail", [True, False])
def test_the_size_that_made_the_lists_is_found(size, has_tail):
    prompt = [size * k + k % 7 for k in range(1, 60)]
    n_ids = [-(-p // size) if has_tail else p // size for p in prompt]
    assert see(prompt, n_ids).choose() == size


def test_a_list_that_no_size_explains_is_an_error_that_names_the_row():
    """vllm-project/guidellm PR 948: two ids for 20 tokens at 512 a block must be seen."""
    with pytest.raises(InputError, match="no block size") as error:
        see([512 * 4 + 9, 512 * 7 + 9, 20], [5, 8, 2]).choose()
    assert error.value.place == "log:3"
    assert error.value.hint is not None and "--block-tokens" in error.value.hint


def test_lists_with_and_without_a_tail_do_not_mix():
    with pytest.raises(InputError, match="no block size"):
        see([512 * 4 + 9, 512 * 7 + 9], [5, 7]).choose()


def test_several_sizes_that_fit_are_an_error_that_lists_them():
    with pytest.raises(InputError, match="several block sizes fit every row"):
        see([1000], [1]).choose()


def test_a_log_without_ids_has_no_block_size():
    assert see([1000, 5], [0, 0]).choose() is None
    assert BlockSizes().choose() is None


@given(st.data())
def test_the_choice_equals_trying_every_size(data):
    size = data.draw(st.sampled_from([16, 32, 48, 64, 128]))
    prompt = data.draw(st.lists(st.integers(1, 3000), min_size=1, max_size=12))
    lists = {
        "ceil": lambda p: -(-p // size),
        "floor": lambda p: p // size,
        "off": lambda p: p // size + p % 2,
    }
    rule = lists[data.draw(st.sampled_from(sorted(lists)))]
    n_ids = [rule(p) for p in prompt]
    split = data.draw(st.integers(0, len(prompt)))
    sizes = see(prompt[:split], n_ids[:split])
    sizes.merge(see(prompt[split:], n_ids[split:], first_line=split + 1))
    fits = fitting(prompt, n_ids)
    if not any(p > 0 and n > 0 for p, n in zip(prompt, n_ids, strict=True)):
        assert sizes.choose() is None
    elif len(fits) == 1:
        assert sizes.choose() == fits.pop()
    else:
        with pytest.raises(InputError, match="several" if fits else "no block size"):
            sizes.choose()


def test_a_list_fits_when_it_is_floor_or_ceil_empty_or_of_a_prompt_of_unknown_length():
    prompt = np.array([130, 130, 130, 128, 128, 130, -1, 40])
    n_ids = np.array([2, 3, 4, 2, 3, 0, 9, 1])
    assert fits_block(prompt, n_ids, 64).tolist() == [True, True, False, True, False, True, True, True]
