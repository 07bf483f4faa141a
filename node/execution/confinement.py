"""Describes, for the operator, the accesses that this machine's kernel cannot deny to tasks. Pure."""

from collections.abc import Collection
from typing import Final

_SINCE: Final = {3: "6.2", 6: "6.12"}
"""For a Landlock ABI, the first version of Linux that has it."""

_LACKS: Final = {
    3: "tasks can truncate files that they may only read",
    6: "tasks can signal other processes of the node's user, the node's own too, and connect to abstract sockets",
}
"""For a Landlock ABI, a sentence on what tasks can do under an older ABI."""

_NAMED: Final = 3
"""The maximum number of files that a sentence names."""


def not_kept(
    landlock: int,
    *,
    commands: bool,
    command_confined: bool,
    filtered: bool = True,
    linked: Collection[str] = (),
) -> tuple[str, ...]:
    """Return sentences on what tasks can do on this machine although they should not; empty if confinement is complete.

    `landlock` is the kernel's Landlock ABI; 0 if it has none. `commands`: the member runs commands, which are confined
    if `command_confined`. `filtered`: system calls are filtered (`tasks.seccomp`). `linked` are the node's own
    files that have another hard link.

    >>> not_kept(7, commands=True, command_confined=True)
    ()
    >>> not_kept(5, commands=False, command_confined=True)
    ... # doctest: +ELLIPSIS
    ("tasks can signal other processes of the node's user, ...: that takes Linux 6.12 or later",)
    >>> not_kept(7, commands=True, command_confined=True, linked=["/run/secrets/token", *"abc"])  # doctest: +ELLIPSIS
    ("commands can open ... by a hard link ...: /run/secrets/token, a, b, ... (find the link with find ...)",)
    """
    if not landlock:
        return (
            "tasks are not confined, since this kernel has no Landlock (Linux 5.19 or later has it, unless the boot "
            "parameter lsm= leaves it out or a container's seccomp filter refuses it): a fault in a kind, in Spark or "
            "in a program opens all that the node's user may",
        )
    lacks = [f"{what}: that takes Linux {_SINCE[abi]} or later" for abi, what in _LACKS.items() if landlock < abi]
    if not filtered:
        lacks.append(
            "tasks that need no network are kept from TCP at most, and tasks can change the limits, priority and "
            "processors of other processes of the node's user: seccomp is not supported here"
        )
    if linked and commands and command_confined:
        names = f"{', '.join(sorted(linked)[:_NAMED])}{', ...' if len(linked) > _NAMED else ''}"
        lacks.append(
            f"commands can open files of the node by a hard link outside of the node's own folders: {names} (find the "
            "link with find / -samefile FILE, and remove it)"
        )
    if commands and not command_confined:
        lacks.append("commands are not confined (ROTA_COMMAND_CONFINED=0): they may do all that the node's user may")
    return tuple(lacks)
