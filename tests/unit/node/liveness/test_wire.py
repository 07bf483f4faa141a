"""Heartbeat frames: authenticated with the members' secret."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.identity.cluster_id import ClusterId
from node.liveness.message import Beat, HeartbeatAnswer
from node.liveness.wire import (
    CONTENT_BYTES_MAX,
    MAGIC,
    NONCE_BYTES,
    REFUSAL,
    BadPeerError,
    Bye,
    ForeignClusterError,
    HeartbeatChannel,
)

BEAT = Beat("node-1", 3, 7, 1234.5, 99.25, 1_794_000_000_000_000)
ANSWER = HeartbeatAnswer("node-2", 4, 3, 7, 1234.5, 100.0, 2.0, 1_794_000_000_000_000)


def channel(secret: bytes = b"s", nonce: bytes = b"n", cluster: str = "", *, dialled: bool = False) -> HeartbeatChannel:
    """One end."""
    name = "dialler" if dialled else "listener"
    return HeartbeatChannel(secret, name, ClusterId(cluster), (nonce * NONCE_BYTES)[:NONCE_BYTES], dialled=dialled)


def greeted(dialler: HeartbeatChannel, listener: HeartbeatChannel) -> tuple[HeartbeatChannel, HeartbeatChannel]:
    """Both, and each knows the other's nonce."""
    assert dialler.feed(listener.greeting()) == []
    assert listener.feed(dialler.greeting()) == []
    return dialler, listener


def pair(seed: bytes = b"n", clusters: tuple[str, str] = ("", "")) -> tuple[HeartbeatChannel, HeartbeatChannel]:
    """The one that dialled and the one that listened, greeted and introduced."""
    dialler, listener = greeted(channel(nonce=seed, cluster=clusters[0], dialled=True), channel(cluster=clusters[1]))
    assert listener.feed(dialler.introduction()) == []
    assert dialler.feed(listener.introduction()) == []
    return dialler, listener


def test_nothing_can_be_said_before_the_greeting() -> None:
    assert not channel().ready
    assert not channel(dialled=True).ready
    assert all(end.ready for end in pair())


@pytest.mark.parametrize("clusters", [("a", "a"), ("a", ""), ("", "a")])
def test_members_of_one_cluster_understand_each_other_and_nodes_without_one(clusters: tuple[str, str]) -> None:
    dialler, listener = pair(clusters=clusters)
    assert listener.feed(dialler.pack(BEAT)) == [BEAT]


def test_two_clusters_with_one_secret_do_not_speak_and_the_message_names_both() -> None:
    dialler, listener = greeted(channel(cluster="a", dialled=True), channel(cluster="b"))
    with pytest.raises(ForeignClusterError, match="dialler belongs to cluster a, this node to cluster b") as refused:
        listener.feed(dialler.introduction() + dialler.pack(BEAT))
    with pytest.raises(ForeignClusterError, match="listener belongs to cluster b, this node to cluster a"):
        dialler.feed(listener.farewell(refused.value))


def test_a_first_frame_that_does_not_name_the_cluster_is_refused() -> None:
    dialler, listener = greeted(channel(cluster="a", dialled=True), channel(cluster="a"))
    with pytest.raises(BadPeerError, match="does not name its cluster"):
        listener.feed(dialler.pack(BEAT))


@pytest.mark.parametrize(
    "message", [BEAT, ANSWER, Beat("a", 0, 0, 0.5, None), HeartbeatAnswer("b", 1, 1, 1, 1.0, 2.0, None)]
)
def test_what_one_packs_the_other_reads(message: Beat | HeartbeatAnswer) -> None:
    dialler, listener = pair()
    assert listener.feed(dialler.pack(message)) == [message]
    assert dialler.feed(listener.pack(message)) == [message]


def test_a_goodbye_goes_over() -> None:
    dialler, listener = pair()
    assert isinstance(listener.feed(dialler.pack(Bye()))[0], Bye)


def test_pieces_and_lumps_are_put_together() -> None:
    dialler, listener = pair()
    stream = b"".join(dialler.pack(message) for message in (BEAT, ANSWER, BEAT))
    got = [message for byte in stream for message in listener.feed(bytes([byte]))]
    assert got == [BEAT, ANSWER, BEAT]
    dialler, listener = pair()
    assert listener.feed(b"".join(dialler.pack(message) for message in (BEAT, ANSWER))) == [BEAT, ANSWER]


def test_another_secret_is_refused_and_the_message_says_what_to_do() -> None:
    dialler, listener = greeted(channel(b"s", dialled=True), channel(b"t"))
    with pytest.raises(BadPeerError, match="ROTA_SECRET must be the same") as refused:
        listener.feed(dialler.introduction())
    told = listener.farewell(refused.value)
    assert dialler.feed(told[:3]) == []
    with pytest.raises(BadPeerError, match="this node has another secret: ROTA_SECRET must be the same"):
        dialler.feed(told[3:])


def test_an_unauthenticated_client_gets_nothing_that_is_made_with_the_secret() -> None:
    """By the first frame of a member it could check guesses at the secret, at home and as fast as it can."""
    said = []
    for secret in (b"s", b"t"):
        unknown, listener = greeted(channel(b"guess", dialled=True), channel(secret))
        assert not listener.ready
        with pytest.raises(AssertionError):
            listener.pack(BEAT)
        with pytest.raises(BadPeerError) as refused:
            listener.feed(unknown.introduction())
        said.append((listener.greeting(), listener.farewell(refused.value)))
    assert said[0] == said[1]
    assert said[0][1] == REFUSAL


def test_a_refusal_is_heard_at_the_beginning_only() -> None:
    """Anybody on the way could insert it: after authentication it is a bad frame like any other."""
    dialler, _ = pair()
    with pytest.raises(BadPeerError, match="too long"):
        dialler.feed(REFUSAL)


def test_a_frame_is_not_taken_twice() -> None:
    dialler, listener = pair()
    frame = dialler.pack(BEAT)
    listener.feed(frame)
    with pytest.raises(BadPeerError):
        listener.feed(frame)


def test_a_frame_is_not_taken_back_from_the_one_it_was_sent_to() -> None:
    dialler, _ = pair()
    with pytest.raises(BadPeerError):
        dialler.feed(dialler.pack(BEAT))


def test_a_frame_of_another_connection_is_not_taken() -> None:
    dialler, _ = pair(seed=b"1")
    _, listener = pair(seed=b"2")
    with pytest.raises(BadPeerError):
        listener.feed(dialler.pack(BEAT))


def test_a_changed_frame_is_not_taken() -> None:
    dialler, listener = pair()
    frame = bytearray(dialler.pack(BEAT))
    frame[9] ^= 1
    with pytest.raises(BadPeerError):
        listener.feed(bytes(frame))


def test_a_frame_that_is_too_long_is_refused_before_it_is_there() -> None:
    _, listener = pair()
    with pytest.raises(BadPeerError, match="too long"):
        listener.feed((CONTENT_BYTES_MAX + 1).to_bytes(2, "big"))


def test_another_protocol_is_refused_at_its_first_bytes() -> None:
    with pytest.raises(BadPeerError, match="not a member"):
        channel().feed(b"GET /")


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_arbitrary_bytes_raise_only_bad_message(data: bytes, greeted: bool) -> None:
    try:
        channel().feed((MAGIC + b"m" * NONCE_BYTES if greeted else b"") + data)
    except BadPeerError:
        return


@settings(max_examples=100, deadline=None)
@given(st.recursive(st.none() | st.integers(-5, 2**63) | st.floats() | st.text(max_size=5), st.lists, max_leaves=8))
def test_no_content_of_a_member_makes_it_raise_anything_else(content: object) -> None:
    """A later version may say more."""
    for fields in (["beat", content, content], ["from", content, content], content):
        for dialler, listener in (pair(), greeted(channel(dialled=True), channel())):
            with suppress(BadPeerError):
                listener.feed(dialler._frame(fields))  # type: ignore[arg-type]  # whatever it says
