"""The frames that node, supervisor and worker say to one another: msgpack, one frame a packet.

Every channel is a SOCK_SEQPACKET pair: a packet arrives whole or not at all, so that the heartbeat thread
and the loop may both write to one channel, and a full channel never leaves half a frame behind.
"""

import socket
from dataclasses import dataclass, fields
from typing import Any, Final

import msgpack

FRAME_BYTES_MAX: Final = 160 * 1024
"""The largest frames carry a checkpoint or a secret (64 KiB), or a result (64 KiB) with room for its wrapping."""


class BadFrame(Exception):
    """What arrived is no frame of ours."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Nursery to node: it forks from now on."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Supervisor to node: it is there. Before this, nothing of the attempt has begun."""

    pid: int


@dataclass(frozen=True, slots=True)
class Renew:
    """Node to supervisor: the lease lasts until `deadline_s` on CLOCK_BOOTTIME."""

    deadline_s: float


@dataclass(frozen=True, slots=True)
class Stop:
    """Node to supervisor, supervisor to worker: come to an end, for this reason."""

    why: str


@dataclass(frozen=True, slots=True)
class KillFrame:
    """Node to supervisor: kill everything, now."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Node to supervisor: kill everything, now; the attempt has failed, of this."""

    error: str


@dataclass(frozen=True, slots=True)
class Go:
    """Supervisor to worker: its process group is recorded, it may begin."""


@dataclass(frozen=True, slots=True)
class StartedFrame:
    """Worker to supervisor to node: the kind is loaded, the params are valid, its work begins."""


@dataclass(frozen=True, slots=True)
class ProgressFrame:
    """Worker to supervisor to node: how far it is."""

    done: float
    total: float | None
    unit: str


@dataclass(frozen=True, slots=True)
class CheckpointAsk:
    """Worker to supervisor to node: commit this. `sequence` counts the asks of an attempt."""

    sequence: int
    data: bytes


@dataclass(frozen=True, slots=True)
class CheckpointDone:
    """Node to supervisor to worker: what became of it: `ok`, `fenced`, `unknown`, or why it was refused."""

    sequence: int
    code: str


@dataclass(frozen=True, slots=True)
class Learned:
    """Worker to supervisor: a secret's value, to be blotted out of the log. Answered by `Noted`."""

    value: str


@dataclass(frozen=True, slots=True)
class Noted:
    """Supervisor to worker: the value will not appear in the log."""


@dataclass(frozen=True, slots=True)
class Done:
    """Worker to supervisor: the kind returned. `result` is JSON. `saw_stop`: it had looked at a request to stop."""

    result: str | None
    saw_stop: bool


@dataclass(frozen=True, slots=True)
class FailedFrame:
    """Worker to supervisor: the kind raised. `error` is one line."""

    error: str
    retry: bool
    saw_stop: bool


@dataclass(frozen=True, slots=True)
class Froze:
    """Supervisor to node: the lease has lapsed, everything of the attempt is stopped."""


@dataclass(frozen=True, slots=True)
class OutOfReach:
    """Supervisor to node: it may not signal these processes, and can neither freeze nor kill them."""

    pids: str


@dataclass(frozen=True, slots=True)
class ThawedFrame:
    """Supervisor to node: the lease is back, everything goes on."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Supervisor to node: the attempt has ended, and no process of it is left.

    `end` is an `AttemptEnd`; `result` is JSON; `log_error` says why the log is not complete, if it is not.
    `starved`: it could not be started for want of processes or memory.
    """

    end: str
    result: str | None
    error: str | None
    retry: bool
    log_error: str | None
    starved: bool = False


Frame = (
    Ready
    | Hello
    | Renew
    | Stop
    | KillFrame
    | Fail
    | Go
    | StartedFrame
    | ProgressFrame
    | CheckpointAsk
    | CheckpointDone
    | Learned
    | Noted
    | Done
    | FailedFrame
    | Froze
    | OutOfReach
    | ThawedFrame
    | Ending
)

_TYPES: Final[dict[str, type[Any]]] = {frame.__name__: frame for frame in Frame.__args__}
_FIELDS: Final[dict[str, tuple[tuple[str, Any], ...]]] = {
    name: tuple((field.name, field.type) for field in fields(frame)) for name, frame in _TYPES.items()
}


def pack(frame: Frame) -> bytes:
    """The packet for `frame`."""
    name = type(frame).__name__
    return bytes(msgpack.packb([name, *(getattr(frame, field) for field, _ in _FIELDS[name])]))


def unpack(packet: bytes) -> Frame:
    """The frame in `packet`. Raises `BadFrame` for anything that `pack` did not make."""
    try:
        name, *values = msgpack.unpackb(packet)
        types = _FIELDS[name]
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise BadFrame(f"not a frame: {type(error).__name__}") from None
    if len(values) != len(types):
        raise BadFrame(f"a {name} with {len(values)} fields, where it has {len(types)}")
    for value, (field, expected) in zip(values, types, strict=True):
        if not isinstance(value, expected):
            raise BadFrame(f"a {name} whose {field} is {type(value).__name__}")
    frame: Frame = _TYPES[name](*values)
    return frame


def channel() -> tuple[socket.socket, socket.socket]:
    """The two ends of a new channel. Neither survives an exec."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def receive(end: socket.socket) -> Frame | None:
    """The next frame, or None if the other end is closed. Raises `BadFrame`, and `BlockingIOError` as `recv` does."""
    try:
        packet = end.recv(FRAME_BYTES_MAX)
    except ConnectionResetError:
        # The other end was closed with something unread in it. Linux says so before it hands out what was
        # sent ahead of that, and says it once: the last frames are still to be read.
        packet = end.recv(FRAME_BYTES_MAX)
    return unpack(packet) if packet else None
