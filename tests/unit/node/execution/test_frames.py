"""Frames between node, supervisor and worker."""

import contextlib
import socket
from dataclasses import fields
from typing import Any, get_args

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.execution import frames

VALUES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(0, 2**31),
    float: st.floats(allow_nan=False),
    float | None: st.none() | st.floats(allow_nan=False),
    str: st.text(max_size=20),
    str | None: st.none() | st.text(max_size=20),
    bytes: st.binary(max_size=20),
    bool: st.booleans(),
}


def a_frame() -> st.SearchStrategy[Any]:
    return st.one_of(
        *(st.builds(frame, *(VALUES[field.type] for field in fields(frame))) for frame in get_args(frames.Frame))
    )


@settings(max_examples=100, deadline=None)
@given(a_frame())
def test_a_packed_frame_is_unpacked_unchanged(frame: frames.Frame) -> None:
    assert frames.from_packet(frames.to_packet(frame)) == frame


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40))
def test_invalid_bytes_raise_a_frame_error(data: bytes) -> None:
    with contextlib.suppress(frames.BadFrame):
        frames.from_packet(data)


@pytest.mark.parametrize(
    "frame", [["Nobody"], ["Hello"], ["Hello", "1"], ["Progress", 1.0, None, None], 7, {}, [], [["Hello"], 1]]
)
def test_a_frame_with_the_wrong_fields_is_refused(frame: Any) -> None:
    with pytest.raises(frames.BadFrame):
        frames.from_packet(msgpack.packb(frame))


def test_the_last_frame_is_read_though_the_peer_closed_with_unread_data() -> None:
    """Linux then reports a reset before the data that was sent earlier."""
    ours, theirs = frames.new_channel()
    with ours:
        ours.send(frames.to_packet(frames.RenewFrame(1.0)))
        theirs.send(frames.to_packet(frames.HelloFrame(7)))
        theirs.close()
        assert frames.receive(ours) == frames.HelloFrame(7)
        assert frames.receive(ours) is None


def test_the_largest_frames_fit_a_packet() -> None:
    ours, theirs = frames.new_channel()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, b"\5\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0")
        largest = frames.CheckpointAskFrame(1, b"x" * 64 * 1024)
        theirs.send(frames.to_packet(largest))
        assert frames.receive(ours) == largest
