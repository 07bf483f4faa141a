import jump
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashing.key import key64, mix
from hashing.succession import succession
from tests.oracle import placement as oracle

keys = st.integers(0, 2**64 - 1)


# st.text() would spend a second on its table of all characters
texts = st.lists(st.integers(0, 0x10FFFF).map(chr).filter(lambda c: not "\ud800" <= c <= "\udfff")).map("".join)


@given(texts)
def test_a_key_hashes_as_section_4_says(text: str) -> None:
    assert key64(text) == oracle.key64(text)


def test_two_spellings_of_a_letter_are_two_keys() -> None:
    assert key64("été") != key64("e\u0301te\u0301")


def test_a_lone_surrogate_has_no_key() -> None:
    with pytest.raises(UnicodeEncodeError):
        key64("\ud800")


def test_mix_gives_the_published_sequence_of_splitmix64() -> None:
    # the first numbers that the reference program (Vigna, splitmix64.c) draws from seed 0
    state, drawn = 0, []
    for _ in range(3):
        drawn.append(mix(state))
        state = (state + 0x9E3779B97F4A7C15) % 2**64
    assert drawn == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@given(keys)
def test_mix_is_modulo_two_to_the_64(h: int) -> None:
    assert mix(h) == oracle.mix(h)


@settings(max_examples=60)
@given(keys, st.integers(1, 300))
def test_the_installed_jump_hash_is_the_papers(key: int, n: int) -> None:
    # Lamping & Veach 2014, figure 1
    assert jump.hash(key, n) == oracle.jump(key, n)


@settings(max_examples=60)
@given(keys, st.integers(0, 20))
def test_a_succession_is_each_slot_once_in_section_4s_order(key: int, n: int) -> None:
    order = list(succession(key, n))
    assert sorted(order) == list(range(n))
    assert order == oracle.succession(key, n)


@given(keys, st.integers(1, 12))
def test_one_more_slot_takes_keys_and_moves_none_between_the_others(key: int, n: int) -> None:
    # Lamping & Veach 2014, section 2: only what moves to the new bucket moves
    before, after = next(succession(key, n)), next(succession(key, n + 1))
    assert after in {before, n}
