"""Who is a member, by the log: the latest entry counts, committed or not (Ongaro 2014, section 4.1)."""

import pickle
from collections.abc import Collection, Iterable
from typing import Literal

from node.raft.trimming import Entry

REGULAR = b"\x00"
MEMBERSHIP = 2
"""The library's first byte of a command: its kind."""


def pack(what: Literal["add", "rem"], member: str) -> bytes:
    """A change as the library reads it: a pickled list of strings, none of our objects. `member`: "id host port"."""
    return pickle.dumps([what, member], protocol=2)


def unpack(command: bytes) -> tuple[str, str]:
    """The change in a membership command. It has passed the secret, as has all that the library unpickles."""
    what, member = pickle.loads(command[1:])[:2]  # noqa: S301 - the library unpickles it anyway
    return what, member


def changes(entries: Iterable[Entry]) -> bool:
    """Whether there is a change of membership among these entries."""
    return any(command[0] == MEMBERSHIP for command, _, _ in entries)


def latest(entries: Iterable[Entry], otherwise: int) -> int:
    """The index of the last change of membership among these entries; without one, `otherwise`."""
    return max((index for command, index, _ in entries if command[0] == MEMBERSHIP), default=otherwise)


def may_follow(before: Collection[str], after: Collection[str], knowing: Collection[str]) -> bool:
    """Whether the members may be those of `after` next; `knowing` have all changes so far in their logs.

    A new member has no vote before it has caught up, and it catches up only once most others have told it how things
    stand (`recall`). So that somebody can be elected whoever else is away, members of before that have all changes must
    be a majority of those after. That is stricter than Raft, and what etcd checks as `strict-reconfig-check`; as there,
    a member that is alone is free to let another in, since it could not otherwise.

    >>> may_follow("abc", "abcd", "ab"), may_follow("abc", "abcd", "abc"), may_follow("abc", "ab", "ab")
    (False, True, True)
    """
    return len(before) == 1 or 2 * len(set(before) & set(after) & set(knowing)) > len(after)


def after(cluster: Iterable[str], entries: Iterable[Entry]) -> tuple[str, ...]:
    """The members after these entries, each as "id host port", given those before them."""
    members = {_id(member): member for member in cluster}
    for command, _, _ in entries:
        if command[0] != MEMBERSHIP:
            continue
        what, member = unpack(command)
        if what == "add":
            members.setdefault(_id(member), member)
        else:
            members.pop(_id(member), None)
    return tuple(sorted(members.values()))


def _id(member: str) -> str:
    return member.split(" ", 1)[0]
