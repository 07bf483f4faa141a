"""Parsers of settings' texts. Each raises `ValueError` with a sentence that says what would be right."""

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from node.runtime.descriptors import attempts_limit, hard_limit
from node.settings.own_environment import EVERY_PROGRAMS
from node.settings.row import PREFIX

if TYPE_CHECKING:
    from node.state.entries import Seed

# The state and a task's definition are imported only where needed: `rota up` reads the table and parses no value.

_UID_MIN: Final = 1000
"""User ids below this are the system's."""
_UID_MAX: Final = 2**32 - 2
"""The number after this one, the largest, means "no user" to the kernel."""


def is_name(text: str) -> bool:
    """Return whether a text can be a node's id."""
    from tasks.definition.spec import NAME_PATTERN

    return re.match(NAME_PATTERN, text) is not None


def no_value(_: object) -> None:
    """Return None, the value of a setting that is not given and has no default."""


def parse_words(text: str) -> tuple[str, ...]:
    """Parse words separated by commas; empty ones are dropped. Never raises.

    >>> parse_words("a, b,,")
    ('a', 'b')
    """
    return tuple(part.strip() for part in text.split(",") if part.strip())


def parse_members(text: str) -> "tuple[Seed, ...]":
    """Parse `id=host:raftport:httpport,...` as seeds in the order given, which becomes the order of the slots.

    >>> parse_members("a=127.0.0.1:7101:8101")
    (Seed(id='a', host='127.0.0.1', raft_port=7101, http_port=8101),)
    """
    from node.state.entries import Seed

    seeds: list[Seed] = []
    for part in parse_words(text):
        name, equals, address = part.partition("=")
        host, _, ports = address.rpartition(":")
        host, _, raft = host.rpartition(":")
        if not (equals and is_name(name) and host and raft.isdigit() and ports.isdigit()):
            raise ValueError(f"{part!r} is not id=host:raftport:httpport")
        if not all(0 < int(port) < 65_536 for port in (raft, ports)):
            raise ValueError(f"{part!r}: a port must be between 1 and 65535")
        seeds.append(Seed(name, host, int(raft), int(ports)))
    if len({seed.id for seed in seeds}) != len(seeds):
        raise ValueError("two members have the same id")
    addresses = [(seed.host, port) for seed in seeds for port in (seed.raft_port, seed.http_port)]
    if twice := next((one for one in addresses if addresses.count(one) > 1), None):
        raise ValueError(
            f"{twice[0]}:{twice[1]} is there twice: each member has a Raft port and an HTTP port of its own"
        )
    return tuple(seeds)


def parse_labels(text: str) -> tuple[tuple[str, str], ...]:
    """Parse `name=value,...` as sorted pairs.

    >>> parse_labels("zone=b, disk=ssd")
    (('disk', 'ssd'), ('zone', 'b'))
    """
    pairs = [part.partition("=") for part in parse_words(text)]
    if any(not name or not equals for name, equals, _ in pairs):
        raise ValueError("labels are name=value, separated by commas")
    return tuple(sorted((name.strip(), value.strip()) for name, _, value in pairs))


def parse_env_allow(text: str) -> tuple[str, ...]:
    """Parse the names of variables that tasks may be given."""
    names = parse_words(text)
    if any(name.upper().startswith(PREFIX) for name in names):
        raise ValueError("ROTA_* variables belong to the node and are never given to tasks")
    if needed := ", ".join(name for name in names if name in EVERY_PROGRAMS):
        raise ValueError(
            "variables named here are taken out of the environment of every program, and programs are found by "
            f"{needed}: name only variables that hold secrets"
        )
    return names


def parse_users(text: str) -> tuple[str, ...]:
    """Parse names of users.

    >>> parse_users("deploy, postgres")
    ('deploy', 'postgres')
    """
    from tasks.definition.spec import USER_PATTERN

    users = parse_words(text)
    for user in users:
        if re.match(USER_PATTERN, user) is None:
            raise ValueError(f"{user!r} is not a user's name: users are given by name, separated by commas")
    return users


def parse_uids(text: str) -> range:
    """Parse a range of user ids, `FIRST-LAST`.

    >>> parse_uids("200000-200099")
    range(200000, 200100)
    """
    first, dash, last = text.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal()):
        raise ValueError("must be FIRST-LAST, for example 200000-200099")
    if not _UID_MIN <= int(first) <= int(last) <= _UID_MAX:
        raise ValueError(f"must be from {_UID_MIN} to {_UID_MAX}, the first not after the last")
    return range(int(first), int(last) + 1)


def parse_roots(text: str) -> tuple[str, ...]:
    """Parse absolute folders, separated by commas. Raises `ValueError`.

    >>> parse_roots("/srv, /var/lib/app/")
    ('/srv', '/var/lib/app')
    """
    roots = [part.strip() for part in text.split(",") if part.strip()]
    for root in roots:
        if not root.startswith("/") or ".." in root.split("/"):
            raise ValueError(f"{root!r} is not a folder: write absolute paths, separated by commas, without '..'")
    return tuple("/" + os.path.normpath(root).lstrip("/") for root in roots)


def parse_folder(text: str) -> str:
    """Parse one absolute folder. Raises `ValueError`."""
    roots = parse_roots(text)
    if len(roots) != 1:
        raise ValueError("must be one folder")
    return roots[0]


def parse_confine(text: str) -> bool:
    """Parse whether confinement is required. Raises `ValueError`.

    >>> parse_confine("auto"), parse_confine("required")
    (False, True)
    """
    if text not in ("auto", "required"):
        raise ValueError("must be auto or required")
    return text == "required"


def parse_switch(text: str) -> bool:
    """Parse a switch: 1 or 0, also as true, yes, on and false, no, off."""
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError("must be 1 or 0")


def parse_memory(text: str) -> int | None:
    """Parse a size in bytes; None for 0, which is no limit.

    >>> parse_memory("2GiB"), parse_memory("0")
    (2147483648, None)
    """
    from tasks.definition.limits import MEMORY_MIN, SIZE_MAX, parse_size

    found = int(text) if text.isdecimal() and text.isascii() else parse_size(text)
    if found and not MEMORY_MIN <= found <= SIZE_MAX:
        raise ValueError("must be 0, or from 32MiB to 1024TiB")
    return found or None


def parse_cores(text: str) -> int | None:
    """Parse a number of cores into thousandths; None for 0, which is no limit.

    >>> parse_cores("1.5"), parse_cores("0")
    (1500, None)
    """
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", text):
        raise ValueError("must be a number of cores with three decimal places at most, such as 1.5")
    milli = round(float(text) * 1000)
    if milli and not 10 <= milli <= 4_096_000:
        raise ValueError("must be 0, or from 0.01 to 4096")
    return milli or None


def parse_files(text: str) -> int | None:
    """Parse how many files a process may have open; None for 0: as many as the node's hard limit leaves."""
    return zero_or(integer_between(32, attempts_limit(hard_limit())))(text)


def parse_disk_bytes(text: str) -> int:
    """Parse a size on the disk, in bytes."""
    return integer_between(0, 2**62)(text)


def zero_or(parse: Callable[[str], int]) -> Callable[[str], int | None]:
    """Return a parser like `parse`, except that 0 gives None, which is no limit.

    >>> zero_or(integer_between(8, 9))("0"), zero_or(integer_between(8, 9))("8")
    (None, 8)
    """
    return lambda text: None if text == "0" else parse(text)


def integer_between(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from `least` to `most`.

    >>> integer_between(1, 9)("7")
    7
    """

    def parse(text: str) -> int:
        if not text.strip().isdigit() or not least <= int(text) <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(text)

    return parse
