"""The functions that work in chunks give the same results as those that work at once."""

import random
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashing.chunked import CHUNK, dict_in_chunks, list_in_chunks, set_in_chunks, sorted_in_chunks

SIZES = (0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 7)
PAIRS = st.lists(st.tuples(st.integers(0, 20), st.integers()), max_size=120)


@given(PAIRS)
def test_sorted(pairs: list[tuple[int, int]]) -> None:
    assert sorted_in_chunks(pairs) == sorted(pairs)
    assert sorted_in_chunks(iter(pairs), key=itemgetter(0)) == sorted(pairs, key=itemgetter(0)), (
        "equals keep their order"
    )


@given(PAIRS)
def test_gathered(pairs: list[tuple[int, int]]) -> None:
    assert list_in_chunks(iter(pairs), chunk=8) == pairs
    assert set_in_chunks(iter(pairs), chunk=8) == set(pairs)
    assert list(dict_in_chunks(iter(pairs), chunk=8).items()) == list(dict(pairs).items())


def test_the_result_is_that_of_doing_it_at_once() -> None:
    rng = random.Random(7)
    for size in SIZES:
        numbers = [rng.randrange(1000) for _ in range(size)]
        assert list_in_chunks(iter(numbers)) == numbers
        assert set_in_chunks(iter(numbers)) == set(numbers)
        assert dict_in_chunks((number, -number) for number in numbers) == {number: -number for number in numbers}
        assert sorted_in_chunks(iter(numbers)) == sorted(numbers)
        pairs = list(enumerate(numbers))
        by_number = sorted(pairs, key=itemgetter(1))
        assert sorted_in_chunks(pairs, key=itemgetter(1)) == by_number, "what is equal changed places"


@pytest.mark.parametrize("step", [1, -1, 7919])
def test_nothing_long_is_sorted_at_once(step: int) -> None:
    """A part holds what is sampled once, and of each piece less than lies between two of its samples."""
    count, piece, sampled = 4096, 64, 16
    lengths: list[int] = []
    items = [step * number % count for number in range(count)]
    assert sorted_in_chunks(items, chunk=piece, sampled=sampled, on_range=lengths.append) == sorted(items)
    assert sum(lengths) == count
    assert max(lengths) <= piece + count // sampled, lengths
