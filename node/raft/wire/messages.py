"""The messages on Raft's connections: their kinds, the fields of each, and the values that a field may have.

A message is a dict of plain values whose "type" names its kind. It goes over the wire as msgpack. Each received message
is first checked against `KINDS`: objects, unknown kinds, missing or additional fields, and values of a wrong type or
beyond their bounds are refused. A new kind of message is a new row in `KINDS`. Some kinds have several shapes, each
with its own set of fields.
"""

import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgpack

from node.raft.errors import UnreadableChange
from node.raft.log import membership

Message = dict[str, Any]
Check = Callable[[Any], bool]
Shape = Mapping[str, Check]

MESSAGE_BYTES: Final = 16 << 20
"""The largest message. Members send less than 5 MiB: a batch of entries, and one entry beyond the batch's limit."""

COMMAND_BYTES: Final = 2 << 20
"""The limit of an entry's command. The library sends a larger one in pickled pieces, which are refused."""

COMPRESSED_FROM: Final = 4096
"""Messages of at least this size, in bytes, are compressed. For smaller ones, zlib would take most of the time."""

_PLAIN: Final = b"\x00"
_ZLIB: Final = b"\x01"
_LEVEL: Final = 3
_TEXT_MAX: Final = 1024
_NAMES_MAX: Final = 1024


class BadMessage(Exception):
    """The received bytes are not a message of this version. The text gives the reason."""


# -- checks of fields' values


def number(value: Any) -> bool:
    """Whether a value is a term, an index or a count."""
    return type(value) is int and 0 <= value < 1 << 63


def flag(value: Any) -> bool:
    """Whether a value is True or False."""
    return type(value) is bool


def text(value: Any) -> bool:
    """Whether a value is a name, an id or an address."""
    return type(value) is str and len(value) <= _TEXT_MAX


def names(value: Any) -> bool:
    """Whether a value is a list of names."""
    return type(value) in (list, tuple) and len(value) <= _NAMES_MAX and all(map(text, value))


def numbers(value: Any) -> bool:
    """Whether a value is a dict from names to numbers."""
    return (
        type(value) is dict
        and len(value) <= _NAMES_MAX
        and all(text(name) and number(one) for name, one in value.items())
    )


def optional(check: Check) -> Check:
    """Return a check that accepts None, and all values that `check` accepts."""
    return lambda value: value is None or check(value)


def proposed(value: Any) -> bool:
    """Whether a value is the command of a proposed entry: bytes for the state machine, or a change of membership."""
    return _command(value) and value[0] in (membership.REGULAR[0], membership.MEMBERSHIP)


def entries(value: Any) -> bool:
    """Whether a value is a list of consecutive entries of the log, each as (command, index, term)."""
    if type(value) not in (list, tuple):
        return False
    return all(
        type(entry) in (list, tuple)
        and len(entry) == 3
        and _command(entry[0])
        and number(entry[1])
        and number(entry[2])
        and entry[1] == value[0][1] + position
        for position, entry in enumerate(value)
    )


def part(value: Any) -> bool:
    """Whether a value is a part of a snapshot: bytes, and two flags for the first and the last part."""
    return (
        type(value) in (list, tuple)
        and len(value) == 3
        and type(value[0]) is bytes
        and flag(value[1])
        and flag(value[2])
    )


def _command(value: Any) -> bool:
    if type(value) is not bytes or not 0 < len(value) < COMMAND_BYTES:
        return False
    if value[0] == membership.MEMBERSHIP:
        try:
            membership.parse_change(value)
        except UnreadableChange:
            return False
        return True
    return value[0] in (membership.REGULAR[0], membership.NO_OP)


_STANDING: Final[Shape] = {"last_log_term": number, "last_log_index": number}
_APPEND: Final[Shape] = {"term": number, "commit_index": number}

_STATEMENT: Final[Shape] = {
    **dict.fromkeys(("member", "roll", "founding", "cluster_id", "told_by"), text),
    **dict.fromkeys(("free", "complete", "belongs"), flag),
    **dict.fromkeys(("members", "without"), names),
    "life": number,
}

KINDS: Final[Mapping[str, tuple[Shape, ...]]] = {
    # identification of the member at the other end
    "hello": (
        {**dict.fromkeys(("member", "cluster", "called", "start", "version"), text), "port": number, "asks": flag},
    ),
    "cluster": ({**dict.fromkeys(("id", "member", "start", "version"), text), "term": number},),
    "probe": ({"number": number, "where": text},),
    "probe_answer": ({"number": number, "led": flag, "settled": flag},),
    "taken": ({"start": text, "where": text, "led": flag, "settled": flag},),
    "ping": ({},),
    # the log
    "append_entries": (
        {**_APPEND, "entries": entries, "prevLogIdx": optional(number), "prevLogTerm": optional(number)},
        {**_APPEND, "serialized": optional(part)},
    ),
    "next_node_idx": ({"next_node_idx": number, "success": flag, "reset": flag, "term": number},),
    "apply_command": ({"command": proposed}, {"command": proposed, "request_id": number}),
    "apply_command_response": (
        {"request_id": number, "log_idx": number, "log_term": number},
        {"request_id": number, "error": number},
    ),
    # elections
    "request_vote": ({"term": number, **_STANDING, "life": number, "founding": text},),
    "response_vote": ({"term": number, "life": number, "lives": numbers, "candidate": number},),
    "timeout_now": ({"term": number},),
    "pre_vote": ({"number": number, **_STANDING, "founding": text},),
    "pre_vote_answer": ({"number": number, "granted": flag, "term": number},),
    "late_term": ({"term": number},),
    # a member that has lost its log (`amnesia`)
    "recall": ({"life": number},),
    "recall_answer": (
        {"term": number, **_STANDING, "leads": flag, "members": names, "base": names, "whole": flag, "lost": flag},
    ),
    # founding
    "founding": ({**_STATEMENT, "called": text},),
    "founding_answer": (_STATEMENT,),
}


def pack(message: Message) -> bytes:
    """Pack a message. Its values are bytes, str, int, bool, None, and lists, tuples and dicts of them."""
    packed: bytes = msgpack.packb(message)
    if len(packed) < COMPRESSED_FROM:
        return _PLAIN + packed
    return _ZLIB + zlib.compress(packed, _LEVEL)


def unpack(data: bytes) -> Message:
    """Unpack and check a message from `pack`, with tuples in place of lists. Raises `BadMessage`."""
    kind = data[:1]
    if kind == _PLAIN:
        packed = data[1:]
    elif kind == _ZLIB:
        packed = _decompressed(data[1:])
    else:
        raise BadMessage("it does not begin as a message of this version")
    try:
        message = msgpack.unpackb(packed, use_list=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise BadMessage(f"it is not msgpack ({error})") from error
    return valid_message(message)


def valid_message(message: Any) -> Message:
    """Return the message unchanged. Raises `BadMessage` if it does not match `KINDS`."""
    if type(message) is not dict or type(kind := message.get("type")) is not str:
        raise BadMessage("it names no kind of message")
    shapes = KINDS.get(kind)
    if shapes is None:
        raise BadMessage(f"{kind[:40]!r} is an unknown kind of message")
    given = message.keys() - {"type"}
    shape = next((shape for shape in shapes if shape.keys() == given), None)
    if shape is None:
        raise BadMessage(f"{kind} has other fields than it should")
    for name, check in shape.items():
        if not check(message[name]):
            raise BadMessage(f"{kind} has a {name} of the wrong type or size")
    return message


def _decompressed(data: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        packed = stream.decompress(data, MESSAGE_BYTES)
    except zlib.error as error:
        raise BadMessage(f"it cannot be decompressed ({error})") from error
    if not stream.eof:
        raise BadMessage(f"it is cut short, or of more than {MESSAGE_BYTES} bytes")
    return packed
