"""The frames that node, supervisor and worker send to one another: msgpack, one frame a packet.

Every channel is a SOCK_SEQPACKET pair, so a packet arrives whole or not at all. The heartbeat thread and the event loop
may both write to one channel, and a full channel never has half a frame in it.
"""

import math
import socket
from dataclasses import dataclass, fields
from typing import Any, Final

import msgpack

FRAME_BYTES_MAX: Final = 160 * 1024
"""The maximum size of a frame. The largest frames carry a checkpoint, a secret or a result of 64 KiB, packed."""


UNIT_CHARS_MAX: Final = 64
"""The maximum length of the name of a unit of progress."""


class BadFrame(Exception):
    """The packet is not a valid frame."""


@dataclass(frozen=True, slots=True)
class ReadyFrame:
    """Nursery to node: ready to fork."""


@dataclass(frozen=True, slots=True)
class HelloFrame:
    """Supervisor to node: the supervisor runs. No part of the attempt begins before this frame."""

    pid: int


@dataclass(frozen=True, slots=True)
class RenewFrame:
    """Node to supervisor: the lease lasts until `deadline_s` on CLOCK_BOOTTIME."""

    deadline_s: float


@dataclass(frozen=True, slots=True)
class StopFrame:
    """Node to supervisor, supervisor to worker: stop the attempt, for this reason."""

    why: str


@dataclass(frozen=True, slots=True)
class KillFrame:
    """Node to supervisor: kill every process of the attempt now."""


@dataclass(frozen=True, slots=True)
class FailFrame:
    """Node to supervisor: kill every process of the attempt now; the attempt has failed with this error."""

    error: str


@dataclass(frozen=True, slots=True)
class BriefFrame:
    """Supervisor to worker, with the file of the brief: read it, and wait for `GoFrame`."""


@dataclass(frozen=True, slots=True)
class GoFrame:
    """Supervisor to worker: the process group is recorded, and the work of the brief may begin.

    The frame carries the descriptor of the ruleset to enter, if there is one. `remarks`, a sentence a line, are printed
    to the log if the attempt fails in its domain. `account` is the packed `Account` to become; empty: none.
    """

    remarks: str = ""
    account: bytes = b""


@dataclass(frozen=True, slots=True)
class PreparingFrame:
    """Supervisor to node: a process is being prepared without an attempt. Once it has one, `HelloFrame` follows."""

    pid: int


@dataclass(frozen=True, slots=True)
class AttemptFrame:
    """Node to the supervisor of a prepared process: run the attempt whose brief is in the file sent with this frame."""


@dataclass(frozen=True, slots=True)
class PreparedFrame:
    """Worker to supervisor to node: the preparation has ended. `error` is one line; empty if it succeeded."""

    error: str


@dataclass(frozen=True, slots=True)
class TakenFrame:
    """Worker to supervisor: the worker has the brief. No part of the kind's work begins before this frame."""


@dataclass(frozen=True, slots=True)
class StartedFrame:
    """Worker to supervisor to node: the kind is loaded, the params are valid, the work begins."""


@dataclass(frozen=True, slots=True)
class ProgressFrame:
    """Worker to supervisor to node: the progress of the work."""

    done: float
    total: float | None
    unit: str


@dataclass(frozen=True, slots=True)
class CheckpointAskFrame:
    """Worker to supervisor to node: commit this checkpoint. `sequence` counts the requests of an attempt."""

    sequence: int
    data: bytes


@dataclass(frozen=True, slots=True)
class CheckpointDoneFrame:
    """Node to supervisor to worker: a checkpoint is `ok`, `fenced`, `unknown`, or refused for the reason given."""

    sequence: int
    code: str


@dataclass(frozen=True, slots=True)
class SecretAskFrame:
    """Worker to supervisor: send the value of a reference. `source` is `secret` or `env`. One request at a time."""

    source: str
    name: str


@dataclass(frozen=True, slots=True)
class SecretFrame:
    """Supervisor to worker: the value of a secret, which the log redacts from now on; None: refused, see `why`."""

    value: str | None
    why: str


@dataclass(frozen=True, slots=True)
class DoneFrame:
    """Worker to supervisor: the kind returned. `result` is JSON. `saw_stop`: the kind had seen a request to stop."""

    result: str | None
    saw_stop: bool


@dataclass(frozen=True, slots=True)
class FailedFrame:
    """Worker to supervisor: the kind raised. `error` is one line. `away`: an outside service is unreachable."""

    error: str
    retry: bool
    saw_stop: bool
    away: bool = False


@dataclass(frozen=True, slots=True)
class FrozenFrame:
    """Supervisor to node: the lease has lapsed, and every process of the attempt is stopped."""


@dataclass(frozen=True, slots=True)
class OutOfReachFrame:
    """Supervisor to node: these processes may not be signalled, so the supervisor can neither freeze nor kill them."""

    pids: str


@dataclass(frozen=True, slots=True)
class ThawedFrame:
    """Supervisor to node: the lease was renewed, and the processes continue."""


@dataclass(frozen=True, slots=True)
class EndedFrame:
    """Supervisor to node: the attempt has ended, and none of its processes is left."""

    #: How the attempt ended: an `AttemptEnd`.
    end: str
    #: The kind's result as JSON; None if it returned none.
    result: str | None
    #: Why the attempt failed; None if it did not fail.
    error: str | None
    #: Whether another attempt may succeed. False: it would fail the same way.
    retry: bool
    #: Why the log is incomplete; None if it is complete.
    log_error: str | None
    #: Whether the attempt could not be started for lack of descriptors, processes or memory.
    starved: bool = False


Frame = (
    ReadyFrame
    | HelloFrame
    | RenewFrame
    | StopFrame
    | KillFrame
    | FailFrame
    | BriefFrame
    | GoFrame
    | PreparingFrame
    | AttemptFrame
    | PreparedFrame
    | TakenFrame
    | StartedFrame
    | ProgressFrame
    | CheckpointAskFrame
    | CheckpointDoneFrame
    | SecretAskFrame
    | SecretFrame
    | DoneFrame
    | FailedFrame
    | FrozenFrame
    | OutOfReachFrame
    | ThawedFrame
    | EndedFrame
)

_TYPES: Final[dict[str, type[Any]]] = {frame.__name__.removesuffix("Frame"): frame for frame in Frame.__args__}
_NAMES: Final[dict[type[Any], str]] = {frame: name for name, frame in _TYPES.items()}
_FIELDS: Final[dict[str, tuple[tuple[str, Any], ...]]] = {
    name: tuple((field.name, field.type) for field in fields(frame)) for name, frame in _TYPES.items()
}


def to_packet(frame: Frame) -> bytes:
    """Encode `frame` as a packet: a list of its name (`Hello` for `HelloFrame`) and its fields in their order."""
    name = _NAMES[type(frame)]
    return bytes(msgpack.packb([name, *(getattr(frame, field) for field, _ in _FIELDS[name])]))


def from_packet(packet: bytes) -> Frame:
    """Decode the frame in `packet`. Raises `BadFrame` if the packet is not one that `to_packet` makes."""
    try:
        name, *values = msgpack.unpackb(packet)
        types = _FIELDS[name]
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise BadFrame(f"not a frame: {type(error).__name__}") from None
    if len(values) != len(types):
        raise BadFrame(f"a {name} frame with {len(values)} fields instead of {len(types)}")
    for value, (field, expected) in zip(values, types, strict=True):
        if not isinstance(value, expected):
            raise BadFrame(f"a {name} frame whose field {field} is of type {type(value).__name__}")
    frame: Frame = _TYPES[name](*values)
    return frame


def progress_fault(progress: ProgressFrame) -> str:
    """Describe the fault of a report of progress in a sentence; "" if it is valid.

    >>> progress_fault(ProgressFrame(1.0, None, "rows")), progress_fault(ProgressFrame(1.0, float("inf"), "rows"))
    ('', 'a progress of 1.0 of inf has no finite figures')
    """
    if not all(map(math.isfinite, (progress.done, progress.total or 0.0))):
        return f"a progress of {progress.done} of {progress.total} has no finite figures"
    if len(progress.unit) > UNIT_CHARS_MAX:
        return f"a unit of progress has {len(progress.unit)} characters; {UNIT_CHARS_MAX} at most are allowed"
    return ""


def new_channel() -> tuple[socket.socket, socket.socket]:
    """Make a channel, and return its two ends. Both are closed on exec."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def receive(end: socket.socket) -> Frame | None:
    """Receive the next frame; None if the other end is closed. Raises `BadFrame`, and `BlockingIOError` as `recv`."""
    try:
        packet = end.recv(FRAME_BYTES_MAX)
    except ConnectionResetError:
        # The peer closed its end before it had read all frames. Linux reports this once as an error; the frames that
        # the peer sent before can still be read.
        packet = end.recv(FRAME_BYTES_MAX)
    return from_packet(packet) if packet else None
