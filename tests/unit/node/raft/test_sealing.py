"""A sealed message is opened by who has the secret, and by nobody if one bit of it is another."""

import pytest
from cryptography.exceptions import InvalidTag
from hypothesis import given
from hypothesis import strategies as st
from pysyncobj import syncobj

from node.raft import consensus
from node.raft.sealing import Seal

SEAL = Seal("the secret")


@given(st.binary(max_size=300), st.integers(0, 2**63))
def test_what_is_sealed_is_opened_and_tells_its_time(data: bytes, time: int) -> None:
    token = SEAL.encrypt_at_time(data, time)
    assert SEAL.extract_timestamp(token) == time
    assert Seal("the secret").decrypt(token) == data
    assert data not in token or len(data) < 4


def test_a_message_with_any_other_bit_is_refused() -> None:
    token = SEAL.encrypt_at_time(b"append this", 7)
    for bit in range(8 * len(token)):
        other = bytearray(token)
        other[bit // 8] ^= 1 << bit % 8
        with pytest.raises(InvalidTag):
            SEAL.decrypt(bytes(other))


@pytest.mark.parametrize("length", [0, 1, 12, 20, 30])
def test_what_is_too_short_is_refused(length: int) -> None:
    with pytest.raises((InvalidTag, ValueError)):
        SEAL.decrypt(SEAL.encrypt_at_time(b"append this", 7)[:length])


def test_another_secret_opens_nothing() -> None:
    with pytest.raises(InvalidTag):
        Seal("another").decrypt(SEAL.encrypt_at_time(b"append this", 7))


def test_no_two_messages_are_alike() -> None:
    assert len({SEAL.encrypt_at_time(b"the same", 7) for _ in range(1000)}) == 1000


def test_the_library_seals_with_it() -> None:
    assert consensus.Consensus is not None
    assert syncobj.getEncryptor is Seal
