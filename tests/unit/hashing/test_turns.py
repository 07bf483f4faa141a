"""Cut into pieces, or not: the result is the same."""

import random

from hashing.turns import PIECE, dict_in_turns, list_in_turns, set_in_turns, sorted_in_turns

SIZES = (0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 3 * PIECE + 7)


def test_the_result_is_that_of_doing_it_at_once() -> None:
    rng = random.Random(7)
    for size in SIZES:
        numbers = [rng.randrange(1000) for _ in range(size)]
        assert list_in_turns(iter(numbers)) == numbers
        assert set_in_turns(iter(numbers)) == set(numbers)
        assert dict_in_turns((number, -number) for number in numbers) == {number: -number for number in numbers}
        assert sorted_in_turns(iter(numbers)) == sorted(numbers)
        pairs = list(enumerate(numbers))
        by_number = sorted(pairs, key=lambda pair: pair[1])
        assert sorted_in_turns(pairs, key=lambda pair: pair[1]) == by_number, "what is equal changed places"
