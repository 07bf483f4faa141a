"""Only messages of the table are accepted, each with its fields, and nothing that arrives is unpickled."""

import pickle
import zlib
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.raft.errors import UnreadableChange
from node.raft.log import membership
from node.raft.wire import messages
from node.raft.wire.messages import (
    COMMAND_BYTES,
    COMPRESSED_FROM,
    KINDS,
    MESSAGE_BYTES,
    BadMessage,
    pack,
    unpack,
    valid_message,
)

CHANGE = bytes([membership.MEMBERSHIP]) + membership.change_command("add", "n4 localhost 7004")
ENTRIES = ((b"\x00put", 7, 2), (b"\x01", 8, 3), (CHANGE, 9, 3))
APPEND = {"type": "append_entries", "term": 3, "commit_index": 6, "entries": ENTRIES, "prevLogIdx": 6, "prevLogTerm": 2}
VOTE = {"type": "response_vote", "term": 3, "life": 1, "lives": {"n2": 1 << 60}, "candidate": 0}
PART = {"type": "append_entries", "term": 3, "commit_index": 6, "serialized": (b"x", True, False)}


class Harmful:
    """Creates a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


@pytest.mark.parametrize(
    "message",
    [
        APPEND,
        {**APPEND, "entries": ()},
        {**APPEND, "prevLogIdx": None, "prevLogTerm": None},
        PART,
        {**PART, "serialized": None},
        VOTE,
        {"type": "ping"},
        {"type": "apply_command", "command": CHANGE, "request_id": 1},
    ],
)
def test_a_packed_message_is_unpacked_unchanged(message: dict[str, Any]) -> None:
    assert unpack(pack(message)) == message


@pytest.mark.parametrize("size", [0, COMPRESSED_FROM - 200, COMPRESSED_FROM, 1 << 20])
def test_messages_of_every_size_are_unpacked_unchanged(size: int) -> None:
    message = {**APPEND, "entries": ((b"\x00" + bytes(size), 7, 2),)}
    packed = pack(message)
    assert unpack(packed) == message
    assert (len(packed) < size) == (size >= COMPRESSED_FROM)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_message_with_a_missing_or_extra_field_is_refused(kind: str) -> None:
    fields = {name: None for shape in KINDS[kind] for name in shape}
    with pytest.raises(BadMessage, match=f"{kind} has other fields"):
        valid_message({"type": kind, **fields, "more": 1})
    for left_out in fields:
        with pytest.raises(BadMessage):
            valid_message({"type": kind} | {name: None for name in fields if name != left_out})


@pytest.mark.parametrize("message", [None, 7, "ping", ["add", "d"], {}, {"type": 7}, {"type": "transfer"}, {1: 2}])
def test_a_message_of_unknown_type_is_refused(message: object) -> None:
    with pytest.raises(BadMessage):
        unpack(b"\x00" + msgpack.packb(message))


@pytest.mark.parametrize("value", [-1, 1 << 63, 1.0, "1", None, True, b"1", [1]])
def test_numeric_fields_accept_non_negative_integers_only(value: object) -> None:
    with pytest.raises(BadMessage, match="late_term has a term"):
        valid_message({"type": "late_term", "term": value})


@pytest.mark.parametrize(
    "command",
    [
        b"",
        "text",
        b"\x03" + pickle.dumps(1, protocol=2),
        b"\x04",
        b"\x02",
        b"\x02" + pickle.dumps(["add"], protocol=2),
        b"\x02" + pickle.dumps(["add", "n4 localhost x"], protocol=2),
        b"\x02" + pickle.dumps(["add", "n4 localhost 7004", 1], protocol=2),
        b"\x02" + msgpack.packb(["transfer", "n4"]),
        b"\x02" + msgpack.packb(["rem", ""]),
        b"\x00" * COMMAND_BYTES,
    ],
)
def test_an_unknown_command_kind_is_refused_in_every_message(command: object) -> None:
    for message in (
        {"type": "apply_command", "command": command},
        {**APPEND, "entries": ((command, 7, 2),)},
    ):
        with pytest.raises(BadMessage):
            valid_message(message)


def test_only_a_leader_may_send_a_no_op() -> None:
    valid_message({**APPEND, "entries": ((b"\x01", 7, 2),)})
    with pytest.raises(BadMessage):
        valid_message({"type": "apply_command", "command": b"\x01"})


@pytest.mark.parametrize(
    "entries", [None, {}, ((b"\x01", 7),), ((b"\x01", 7, 2), (b"\x01", 9, 2)), (b"\x01",), ((7, 7, 7),)]
)
def test_entries_must_be_valid_and_consecutive(entries: object) -> None:
    with pytest.raises(BadMessage, match="entries"):
        valid_message({**APPEND, "entries": entries})


def test_decompressed_size_is_limited() -> None:
    bomb = b"\x01" + zlib.compress(bytes(MESSAGE_BYTES + 1))
    assert len(bomb) < 20_000
    with pytest.raises(BadMessage, match="more than"):
        unpack(bomb)
    with pytest.raises(BadMessage, match="cut short"):
        unpack((b"\x01" + zlib.compress(msgpack.packb(APPEND)))[:-3])


@given(st.binary(max_size=200), st.sampled_from([b"", b"\x00", b"\x01", b"\x00\x81\xa4type\xa4ping"]))
def test_arbitrary_bytes_raise_only_bad_message(data: bytes, before: bytes) -> None:
    try:
        unpack(before + data)
    except BadMessage:
        return


def test_no_pickle_is_loaded(tmp_path: Path) -> None:
    """A caller with the secret could run a program on every node with one message."""
    file = tmp_path / "run"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        harmful = pickle.dumps(Harmful(file), protocol)
        listed = pickle.dumps(["add", Harmful(file)], protocol)
        for data in (harmful, listed, zlib.compress(harmful), zlib.compress(listed)):
            for packed in (data, b"\x00" + data, b"\x01" + data):
                with pytest.raises(BadMessage):
                    unpack(packed)
            with pytest.raises(UnreadableChange):
                membership.parse_change(b"\x02" + data)
            for message in (
                {"type": "apply_command", "command": b"\x02" + data},
                {**APPEND, "entries": ((b"\x02" + data, 7, 2),)},
            ):
                with pytest.raises(BadMessage):
                    unpack(pack(message))
    assert not file.exists()
    pickle.loads(pickle.dumps(Harmful(file)))
    assert file.exists(), "loading this pickle has an effect"


@given(st.sampled_from(["add", "rem"]), st.text(max_size=40), st.integers(0, 65_535))
def test_pickled_membership_changes_are_still_read(what: Any, member: str, port: int) -> None:
    """The first builds of 0.1.0 wrote them so to their journals."""
    whole = f"{member.replace(' ', '_') or 'n4'} host {port}"
    assert membership.parse_change(b"\x02" + pickle.dumps([what, whole], protocol=2)) == (what, whole)
    assert membership.parse_change(b"\x02" + membership.change_command(what, whole)) == (what, whole)


def test_a_pickled_change_for_a_member_named_rem_is_read() -> None:
    name = "rem"
    assert membership.parse_change(b"\x02" + pickle.dumps(["rem", name], protocol=2)) == ("rem", "rem")


def test_every_library_message_is_in_the_table() -> None:
    """A kind that `messages` lacks would be refused by the member that gets it."""
    import inspect
    import re

    from pysyncobj import SyncObj

    said = set(re.findall(r"'type': '(\w+)'", inspect.getsource(SyncObj)))
    assert said == {
        "append_entries", "next_node_idx", "request_vote", "response_vote", "apply_command", "apply_command_response",
        "timeout_now",
    }  # fmt: skip
    assert said <= messages.KINDS.keys()
