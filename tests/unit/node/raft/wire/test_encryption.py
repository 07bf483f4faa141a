"""An encrypted message is decrypted once, in sequence, and only by the other end of its connection."""

import pytest
from cryptography.exceptions import InvalidTag
from hypothesis import given
from hypothesis import strategies as st
from pysyncobj import syncobj

from node.raft import consensus
from node.raft.wire.encryption import (
    FAMILY,
    MAGIC,
    NONCE_BYTES,
    PROOF_BYTES,
    VERSION_CHARS_MAX,
    CallerClaim,
    EncryptedChannel,
    NotSealed,
    RefusalCode,
    Seal,
    refusal,
)

SEAL = Seal("the secret")
ANOTHER = Seal("another secret")
REFUSED = (InvalidTag, NotSealed)


def pair(dialler: Seal = SEAL, listener: Seal = SEAL, nonce: bytes = b"d") -> tuple[EncryptedChannel, EncryptedChannel]:
    """Both ends of a connection, greeted."""
    ends = dialler.channel(nonce * NONCE_BYTES, dialled=True), listener.channel(b"l" * NONCE_BYTES, dialled=False)
    ends[0].agree(ends[1].greeting())
    ends[1].agree(ends[0].greeting())
    return ends


@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=300)), max_size=6))
def test_a_message_encrypted_at_one_end_is_decrypted_at_the_other(said: list[tuple[bool, bytes]]) -> None:
    dialler, listener = pair()
    for by_dialler, data in said:
        here, there = (dialler, listener) if by_dialler else (listener, dialler)
        sealed = here.seal(data)
        assert there.open(sealed) == data
        assert data not in sealed or len(data) < 4


@pytest.mark.parametrize("first", [True, False])
def test_a_message_with_any_bit_flipped_is_refused(first: bool) -> None:
    for bit in range(8 * (27 + PROOF_BYTES * first)):
        dialler, listener = pair()
        if not first:
            listener.open(dialler.seal(b"before"))
        other = bytearray(dialler.seal(b"append this"))
        other[bit // 8] ^= 1 << bit % 8
        with pytest.raises(REFUSED):
            listener.open(bytes(other))


@pytest.mark.parametrize("length", [0, 1, 12, 20, 32, 40])
def test_a_message_that_is_too_short_is_refused(length: int) -> None:
    dialler, listener = pair()
    with pytest.raises(REFUSED):
        listener.open(dialler.seal(b"append this")[:length])


@pytest.mark.parametrize("order", [[0, 0], [1], [0, 2], [0, 1, 0], [0, 1, 1]])
def test_repeated_missing_and_reordered_messages_are_refused(order: list[int]) -> None:
    """An attacker between two members could make them take an append, a vote or a command twice."""
    dialler, listener = pair()
    sealed = [dialler.seal(b"message %d" % number) for number in range(3)]
    for number in order[:-1]:
        listener.open(sealed[number])
    with pytest.raises(REFUSED):
        listener.open(sealed[order[-1]])


def test_a_message_of_another_connection_is_refused() -> None:
    """The nonce of either side changes the key."""
    before, listener = pair(nonce=b"1")[0], pair(nonce=b"2")[1]
    with pytest.raises(NotSealed):
        listener.open(before.seal(b"a vote"))
    dialler, later = pair(nonce=b"1")[0], pair(nonce=b"2")
    dialler.seal(b"hello")
    later[1].open(later[0].seal(b"hello"))
    with pytest.raises(InvalidTag):
        later[1].open(dialler.seal(b"a vote"))


def test_a_reflected_message_is_refused() -> None:
    dialler, listener = pair()
    sealed = dialler.seal(b"a vote")
    with pytest.raises(NotSealed):
        dialler.open(sealed)
    listener.open(sealed)
    again = dialler.seal(b"another")
    dialler.open(listener.seal(b"hello"))
    with pytest.raises(InvalidTag):
        dialler.open(again)


def test_a_message_under_another_secret_is_refused() -> None:
    dialler, listener = pair(ANOTHER, SEAL)
    with pytest.raises(NotSealed, match="another secret"):
        listener.open(dialler.seal(b"append this"))


def test_the_first_message_commits_to_one_secret() -> None:
    """AES-GCM does not commit to its key: a message that decrypts under many keys would test many secrets at once."""
    dialler, listener = pair(ANOTHER, SEAL)
    honest = pair()[0].seal(b"hello")
    with pytest.raises(NotSealed):
        listener.open(dialler.seal(b"hello")[:PROOF_BYTES] + honest[PROOF_BYTES:])


@pytest.mark.parametrize("greeting", [b"", MAGIC, b"rota/rf1" + bytes(NONCE_BYTES), MAGIC + bytes(NONCE_BYTES + 300)])
def test_an_invalid_greeting_is_refused(greeting: bytes) -> None:
    with pytest.raises(NotSealed):
        SEAL.channel(bytes(NONCE_BYTES), dialled=False).agree(greeting)


def test_a_greeting_contains_nothing_derived_from_the_secret() -> None:
    nonce = b"n" * NONCE_BYTES
    greetings = {
        seal.channel(nonce, dialled=dialled).greeting() for seal in (SEAL, ANOTHER) for dialled in (True, False)
    }
    assert greetings == {MAGIC + nonce}


def test_the_library_encrypts_with_this_channel() -> None:
    assert consensus.Consensus is not None
    assert syncobj.getEncryptor is Seal


@pytest.mark.parametrize("protocol", [b"rf2", b"rf9"])
def test_a_caller_of_another_build_is_named_by_what_it_claims(protocol: bytes) -> None:
    """The form of a greeting is the same in all builds; the earliest made no claim."""
    said = FAMILY + protocol + bytes(NONCE_BYTES)
    for claim, theirs in (
        (b"", CallerClaim()),
        (CallerClaim("node-2", "0.3.0").pack(), CallerClaim("node-2", "0.3.0")),
    ):
        with pytest.raises(NotSealed) as refused:
            SEAL.channel(bytes(NONCE_BYTES), dialled=False).agree(said + claim)
        assert (refused.value.code, refused.value.theirs, refused.value.refused_here) == ("build", theirs, True)


@pytest.mark.parametrize("code", ["build", "secret"])
def test_a_dialler_hears_why_it_is_refused_and_by_which_build(code: RefusalCode) -> None:
    said = refusal(code, "0.3.0\x1b[2J" + "x" * 100)
    dialler = SEAL.channel(bytes(NONCE_BYTES), dialled=True)
    greeted, _ = pair()
    for end, hear in ((dialler, dialler.agree), (greeted, greeted.open)):
        with pytest.raises(NotSealed) as refused:
            hear(said)
        assert (refused.value.code, refused.value.refused_here) == (code, False), end
        assert refused.value.theirs.version.startswith("0.3.0\\x1b[2J")
        assert len(refused.value.theirs.version) == VERSION_CHARS_MAX


def test_a_caller_cannot_refuse() -> None:
    _, listener = pair()
    with pytest.raises(NotSealed) as refused:
        listener.open(refusal("build", "0.3.0"))
    assert refused.value.code == "secret", "it has not proved anything"


@given(st.binary(max_size=300))
def test_whatever_a_stranger_claims_is_short_and_printable(claim: bytes) -> None:
    channel = SEAL.channel(bytes(NONCE_BYTES), dialled=False)
    try:
        channel.agree(MAGIC + bytes(NONCE_BYTES) + claim)
    except NotSealed as refused:
        assert refused.code == "no-member"
    assert (channel.theirs.member + channel.theirs.version).isprintable()
    assert len(channel.theirs.member) <= 128 >= 2 * len(channel.theirs.version)
