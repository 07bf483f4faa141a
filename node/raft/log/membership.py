"""The members by the log: the latest change of membership counts, committed or not (Ongaro 2014, section 4.1)."""

import re
from collections.abc import Collection, Iterable
from typing import Final, Literal

import msgpack

from node.raft.errors import UnreadableChange
from node.raft.log.append_filter import Entry

REGULAR = b"\x00"
NO_OP = 1
MEMBERSHIP = 2
"""The first byte of a command is its kind, as the library defines it."""

_PICKLED: Final = re.compile(
    rb"\x80\x02\]q\x00\(X\x03\x00\x00\x00(add|rem)q\x01(?:X(....)(.*)q\x02|h\x01)e\.", re.DOTALL
)
"""The pickle of the list [what, member] with protocol 2: two strings, or one string that is used twice."""


def change_command(what: Literal["add", "rem"], member: str) -> bytes:
    """Pack a change for the log, without the first byte. `member`: "id host port" for "add", the id for "rem"."""
    packed: bytes = msgpack.packb([what, member])
    return packed


def parse_change(command: bytes) -> tuple[str, str]:
    r"""Return the change in a membership command: "add" or "rem", and the member. Raises `UnreadableChange`.

    Earlier versions pickled changes. Those are matched as text, and never unpickled.

    >>> parse_change(b"\x02" + change_command("add", "n4 host 7001"))
    ('add', 'n4 host 7001')
    """
    packed = command[1:]
    try:
        change = _unpickled(packed) if packed[:1] == b"\x80" else msgpack.unpackb(packed, use_list=False)
    except (ValueError, msgpack.UnpackException):
        change = None
    match change:
        case ("add", str(member)) if _is_complete(member):
            return "add", member
        case ("rem", str(member)) if member:
            return "rem", member
    raise UnreadableChange(
        f"a change of membership cannot be read ({packed[:40]!r}): was the log written by a later version of Rota?"
    )


def _unpickled(packed: bytes) -> tuple[str, str] | None:
    """Return the two strings of a change that an earlier version pickled; None: another pickle. Raises `ValueError`."""
    found = _PICKLED.fullmatch(packed)
    if found is None:
        return None
    what, size, member = found.groups()
    if size is not None and int.from_bytes(size, "little") != len(member):
        return None
    return what.decode(), (what if size is None else member).decode()


def _is_complete(member: str) -> bool:
    parts = member.split(" ")
    return len(parts) == 3 and all(parts) and parts[2].isascii() and parts[2].isdigit() and int(parts[2]) < 65_536


def any_change(entries: Iterable[Entry]) -> bool:
    """Whether there is a change of membership among these entries."""
    return any(command[0] == MEMBERSHIP for command, _, _ in entries)


def latest(entries: Iterable[Entry], otherwise: int) -> int:
    """Return the index of the last change of membership among these entries; `otherwise` if there is none."""
    return max((index for command, index, _ in entries if command[0] == MEMBERSHIP), default=otherwise)


def removed(entries: Iterable[Entry]) -> frozenset[str]:
    """Return the ids of the members that these entries remove, and do not add again."""
    last: dict[str, str] = {}
    for command, _, _ in entries:
        if command[0] == MEMBERSHIP:
            what, member = parse_change(command)
            last[_id(member)] = what
    return frozenset(member for member, what in last.items() if what == "rem")


def may_follow(before: Collection[str], after: Collection[str], knowing: Collection[str]) -> bool:
    """Whether the members may change from `before` to `after`. `knowing` have all earlier changes in their logs.

    A new member has no vote before it has caught up, and it catches up only once most others have answered it
    (`amnesia`). So that a leader can still be elected, the old members that know all changes must be a majority of
    `after`. This is stricter than Raft, and like etcd's `strict-reconfig-check`. As in etcd, a single member may add
    another one, since it could not grow otherwise.

    >>> may_follow("abc", "abcd", "ab"), may_follow("abc", "abcd", "abc"), may_follow("abc", "ab", "ab")
    (False, True, True)
    """
    return len(before) == 1 or 2 * len(set(before) & set(after) & set(knowing)) > len(after)


def after(cluster: Iterable[str], entries: Iterable[Entry]) -> tuple[str, ...]:
    """Return the members after these entries, each as "id host port". `cluster`: the members before them."""
    members = {_id(member): member for member in cluster}
    for command, _, _ in entries:
        if command[0] != MEMBERSHIP:
            continue
        what, member = parse_change(command)
        if what == "add":
            members.setdefault(_id(member), member)
        else:
            members.pop(_id(member), None)
    return tuple(sorted(members.values()))


def _id(member: str) -> str:
    return member.split(" ", 1)[0]
