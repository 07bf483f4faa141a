"""Entries and snapshots as msgpack, each with a version number.

Members of different versions read the same log and snapshots:

- A batch is `[version, [[proposer, session, sequence, code, field, ...], ...]]`. Codes are never used twice, and
  fields are only ever added at an entry's end, with a default.
- An entry with an unknown code or unknown fields becomes `Unreadable`: every member refuses it, but counts it and
  keeps its result. So an entry of a new kind must not be proposed before every member runs a version that knows it.
- A snapshot is a stream of records, cut into pieces; each piece is `[version, number, last, digest, bytes]`.
  Equal states give equal pieces.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import msgpack

from node.state import (
    attempts,
    awaiting,
    backfills,
    blackouts,
    calendars,
    claims,
    deadlines,
    digest,
    fan_out,
    joins,
    members,
    occurrences,
    offers,
    registry,
    restoring,
    settings,
    telling,
)
from node.state.entries import CODES, Proposal, ProposalId, Unreadable
from node.state.shape import Misfit, field_names, shape
from node.state.snapshot import assembled, records
from node.state.value import EndedRun, Run, Series, State

VERSION: Final = 1

TOPICS: Final = (
    *(members, settings, registry, occurrences, claims, attempts, deadlines, restoring, telling, joins),
    *(awaiting, backfills, fan_out, calendars, blackouts, offers, digest),
)
"""The modules that declare entries: without all of them, some codes would not be known."""

PIECE_BYTES_MAX: Final = 256 * 1024
PROPOSER_CHARS_MAX: Final = 255

_CODE_OF: Final[dict[type[Any], int]] = {cls: code for code, cls in CODES.items()}
_ACTION, _BACKFILL = field_names(Run).index("action"), field_names(Run).index("backfill")
_SERIES: Final = field_names(EndedRun).index("series")
_BODY_BYTES: Final = PIECE_BYTES_MAX - 64
_RECORD_BYTES_MAX: Final = 64 * 1024 * 1024
_WHAT_TO_DO: Final = (
    "Stop this node, move its data folder out of the way and start it again: it takes everything over from the "
    "other members. Where there are no others, put back a copy of the folder."
)


class BadEntry(ValueError):
    """The bytes are not a valid batch of proposals, or a proposal cannot be packed."""


class DamagedSnapshot(Exception):
    """The bytes are not a valid snapshot, or not a valid record of a finished run. The message says how to go on."""


def pack_batch(proposals: Sequence[Proposal]) -> bytes:
    """Pack the proposals as one Raft entry. Raises `BadEntry` if one cannot be packed.

    Fields of a wrong type are packed if possible: the reader refuses them.
    """
    try:
        return bytes(msgpack.packb([VERSION, [_proposal_wire(one) for one in proposals]]))
    except Exception as error:  # a value of a wrong type may raise anything
        raise BadEntry(f"cannot be packed: {error!r}") from error


def unpack_batch(data: bytes) -> list[Proposal]:
    """Unpack the proposals that `pack_batch` packed, and check every field. Raises `BadEntry`.

    If only a proposal's entry is unreadable, not its id, the entry is returned as an `Unreadable`.
    """
    try:
        wire = msgpack.unpackb(data)
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
        raise BadEntry(f"not msgpack: {error!r}") from error
    if type(wire) is not list or len(wire) != 2 or wire[0] != VERSION or type(wire[1]) is not list:
        raise BadEntry(f"not a batch of version {VERSION}")
    return [_proposal(one) for one in wire[1]]


def pack_ended(ended: EndedRun) -> bytes:
    """Pack an ended run in the form that history stores and members exchange."""
    return bytes(msgpack.packb([VERSION, shape(EndedRun).wire(ended)]))


def unpack_ended(data: bytes) -> EndedRun:
    """Unpack a run that `pack_ended` packed. Raises `DamagedSnapshot`."""
    try:
        version, wire = msgpack.unpackb(data)
        if version != VERSION:
            raise Misfit(f"version {version!r}")
        return shape(EndedRun).value(wire)
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
        raise _unreadable(error) from error


@dataclass(frozen=True, slots=True)
class EndedGlance:
    """What `glance` finds in a packed ended run."""

    action: bool
    backfill: int
    series: Series | None


def glance(data: bytes) -> EndedGlance:
    """Return a little of a run that `pack_ended` packed, at a tenth of the cost of `unpack_ended`.

    Raises `DamagedSnapshot`.
    """
    try:
        _, wire = msgpack.unpackb(data)
        run, series = wire[0], wire[_SERIES]
        action = run[_ACTION] if len(run) > _ACTION else ""
        backfill = run[_BACKFILL] if len(run) > _BACKFILL else 0
        return EndedGlance(bool(action), backfill, None if series is None else shape(Series).value(series))
    except (ValueError, TypeError, IndexError, OverflowError, msgpack.UnpackException) as error:
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> DamagedSnapshot:
    return DamagedSnapshot(
        f"A finished run's record cannot be read ({error!r}). Delete the history file and start the node again: "
        "it fetches the finished runs from the other members."
    )


def snapshot_pieces(state: State) -> Iterator[bytes]:
    """Pack the state, lazily, in pieces of at most 256 KiB. Works in any thread, also while entries are applied."""
    buffer = bytearray()
    number = 0
    for record in records(state):
        buffer += msgpack.packb(record)
        while len(buffer) > _BODY_BYTES:
            yield _piece(number, bytes(buffer[:_BODY_BYTES]), last=False)
            del buffer[:_BODY_BYTES]
            number += 1
    yield _piece(number, bytes(buffer), last=True)


def from_pieces(pieces: Iterable[bytes]) -> State:
    """Restore the state from the output of `snapshot_pieces`. Raises `DamagedSnapshot`."""
    try:
        return assembled(_read_records(pieces))
    except (ValueError, TypeError, KeyError, OverflowError, msgpack.UnpackException) as error:
        raise DamagedSnapshot(f"The snapshot cannot be read ({error!r}). {_WHAT_TO_DO}") from error


def _proposal_wire(proposal: Proposal) -> list[Any]:
    entry = proposal.entry
    code = _CODE_OF[type(entry)]
    one = proposal.id
    return [one.proposer, one.session, one.sequence, code, *shape(type(entry)).wire(entry)]


def _proposal(wire: Any) -> Proposal:
    if type(wire) is not list or len(wire) < 4:
        raise BadEntry("a proposal is a list of proposer, session, sequence, code and the entry's fields")
    code = wire[3]
    try:
        one = shape(ProposalId).value(wire[:3])
    except Misfit as misfit:
        raise BadEntry(str(misfit)) from misfit
    if len(one.proposer) > PROPOSER_CHARS_MAX or type(code) is not int:
        raise BadEntry(f"a proposer has {PROPOSER_CHARS_MAX} characters at most, and a code is a number")
    cls = CODES.get(code)
    if cls is None:
        return Proposal(one, Unreadable(code, f"entry {code} is not known to this version"))
    try:
        return Proposal(one, shape(cls).value(wire[4:]))
    except Misfit as misfit:
        return Proposal(one, Unreadable(code, str(misfit)))


def _piece(number: int, body: bytes, *, last: bool) -> bytes:
    return bytes(msgpack.packb([VERSION, number, last, _digest(body), body]))


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()


def _read_records(pieces: Iterable[bytes]) -> Iterator[list[Any]]:
    unpacker = msgpack.Unpacker(max_buffer_size=_RECORD_BYTES_MAX)
    complete = False
    for expected, piece in enumerate(pieces):
        version, number, last, digest, body = msgpack.unpackb(piece)
        if version != VERSION:
            raise Misfit(f"it was written in format {version!r}, and this version of Rota reads {VERSION}")
        if complete or number != expected or type(body) is not bytes or _digest(body) != digest:
            raise Misfit(f"piece {expected} is damaged, or not the next one")
        unpacker.feed(body)
        yield from unpacker
        complete = last is True
    if not complete or unpacker.tell() == 0:
        raise Misfit("its end is missing")
