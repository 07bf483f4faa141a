"""The identity of a data source: facts that distinguish it from another source of the same name, and their comparison.

Facts are short texts by name: the machine, the file system's UUID, a database server's identifier. Two sources count as
the same unless a fact that is known of both differs. A fact that is missing from one of them is ignored: for example, a
container has no machine id, and an old kernel does not report the UUID.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, StringConstraints

from tasks.errors import Failed, Unretryable

Facts = Mapping[str, str]

AcceptedSources = Annotated[
    list[Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]],
    Field(max_length=100),
    BeforeValidator(lambda given: [given] if isinstance(given, str) else given),
]
"""The type of a kind's param `accept_source`: an `identity_id`, or a list of them."""

SAID_AS: Final = {
    "type": "type",
    "path": "path",
    "node": "node",
    "machine": "machine",
    "file_system": "file system",
    "uuid": "file system UUID",
    "fsid": "file system id",
    "mount_inode": "inode of the mount's root",
    "application": "application_id",
    "inode": "inode of the file",
    "system": "PostgreSQL system identifier",
    "database": "database",
    "stream": "stream",
    "server": "MariaDB server",
    "host": "host name of the server",
    "data_folder": "data folder of the server",
}
"""All facts in the order in which they are shown: the name of each in the code, and the name that users see."""


class OtherSource(Failed, Unretryable):
    """The source is not the same as before. Nothing has been written."""


def identity_id(facts: Facts) -> str:
    """Return an id of exactly these facts: 16 hexadecimal digits.

    >>> identity_id({"node": "a", "path": "/srv"}) == identity_id({"path": "/srv", "node": "a"})
    True
    """
    packed = "\0".join(f"{name}={facts[name]}" for name in sorted(facts))
    return blake2b(packed.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def differing(was: Facts, now: Facts) -> list[str]:
    """Return the names of the facts that are known of both sources and differ; empty if the sources count as the same.

    The file system's id counts only if its UUID is not known of both: some file systems make a new id at each mount.

    >>> differing({"node": "a", "uuid": "1", "fsid": "8"}, {"uuid": "1", "fsid": "9", "machine": "m"})
    []
    >>> differing({"node": "a", "fsid": "8"}, {"node": "b", "uuid": "1", "fsid": "9"})
    ['node', 'fsid']
    """
    both = was.keys() & now.keys()
    left_out = {"fsid"} if "uuid" in both else set()
    return [name for name in _ordered(both - left_out) if was[name] != now[name]]


def describe(facts: Facts, names: Iterable[str] | None = None) -> str:
    """These facts (all, or those in `names`) as text for users.

    >>> describe({"uuid": "9f", "node": "node-1"})
    'node node-1, file system UUID 9f'
    """
    chosen = facts.keys() if names is None else [name for name in names if name in facts]
    return ", ".join(f"{SAID_AS.get(name, name)} {facts[name]}" for name in _ordered(chosen))


def _ordered(names: Iterable[str]) -> list[str]:
    order = list(SAID_AS)
    return sorted(names, key=lambda name: (order.index(name) if name in SAID_AS else len(order), name))
