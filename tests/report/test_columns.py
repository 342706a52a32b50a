"""A table fits its terminal without losing a digit."""

from hypothesis import given
from hypothesis import strategies as st

from agentctl.report.columns import Column, widths

WORDS = st.lists(st.text("abc", min_size=1, max_size=9), min_size=1, max_size=4).map(" ".join)
NUMBERS = st.integers(0, 10**9).map("{:,}".format)
COLUMNS = st.lists(
    st.builds(Column, WORDS, st.lists(NUMBERS, min_size=1, max_size=3).map(tuple), st.just(False))
    | st.builds(Column, WORDS, st.lists(WORDS, min_size=1, max_size=3).map(tuple), st.just(True)),
    min_size=1,
    max_size=6,
)


@given(COLUMNS, st.integers(0, 200))
def test_every_number_and_every_word_fits_its_column(columns, room):
    for column, width in zip(columns, widths(columns, room), strict=True):
        pieces = [word for cell in column.cells for word in (cell.split() if column.is_text else [cell])]
        assert width >= max(len(piece) for piece in [*pieces, *column.head.split()])


@given(COLUMNS, st.integers(0, 200))
def test_no_column_is_wider_than_it_wishes_and_all_fit_unless_they_cannot(columns, room):
    found = widths(columns, room)
    least = widths(columns, 0)
    assert sum(found) <= max(room, sum(least))
    assert all(width <= column.wish for column, width in zip(columns, found, strict=True))


@given(COLUMNS)
def test_with_room_for_all_nothing_breaks(columns):
    assert widths(columns, 10_000) == [column.wish for column in columns]
