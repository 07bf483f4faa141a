"""The user that an attempt runs as if it is not the node's user: a named user, or a user id of the attempt's own.

A task may name a user (`run_as`) that the member's settings allow (`ROTA_RUN_AS`). An attempt that needs no path on the
machine may get a user id of its own instead (`ROTA_WORK_UIDS`), so that attempts cannot signal or trace one another.
"""

import os
import pwd
import signal
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final, NamedTuple

import msgpack

from node.execution.linux import die_with_parent, keep_capabilities, open_memory
from node.execution.order import Order
from tasks.access import why_not_as
from tasks.errors import Unretryable

ROOT: Final = "root"
SHELL: Final = "/bin/sh"
"""The value of the variable SHELL. As in cron, it does not depend on the user's login shell."""

CAPABILITIES: Final = ("CHOWN", "DAC_OVERRIDE", "KILL", "SETGID", "SETUID")
"""The capabilities of a node that runs attempts as other users: to become a user, give it its folders, kill its
processes, and remove its files."""


class RefusedUser(Unretryable):
    """The attempt cannot run as its user on this member. The message says what to do."""


class NoFreeUid(Exception):
    """Every user id of `ROTA_WORK_UIDS` is in use by an attempt."""


class Account(NamedTuple):
    """A user of this machine."""

    #: The user's name; "" for a user id that only one attempt has.
    name: str
    #: The user id.
    uid: int
    #: The id of the primary group.
    gid: int
    #: The ids of all groups of the user, the primary one among them.
    groups: tuple[int, ...]
    #: The path of the home folder.
    home: str

    @property
    def called(self) -> str:
        """Return the name of this user for a message."""
        return self.name or f"uid {self.uid}"

    def pack(self) -> bytes:
        """Pack as msgpack."""
        return bytes(msgpack.packb(self))


def unpack_account(packed: bytes) -> Account | None:
    """The inverse of `Account.pack`; None if `packed` is empty."""
    if not packed:
        return None
    name, uid, gid, groups, home = msgpack.unpackb(packed)
    return Account(name, uid, gid, tuple(groups), home)


def account_of(user: str, allowed: Collection[str], member: str) -> Account:
    """Look up `user` on this machine. Raises `RefusedUser` if the user does not exist or is not allowed."""
    if why := why_not_as(user, allowed, member):
        raise RefusedUser(why)
    try:
        found = pwd.getpwnam(user)
        groups = os.getgrouplist(user, found.pw_gid)
    except KeyError:
        raise RefusedUser(
            f"run_as: {user}: there is no user of this name on {member}; make it there, or bind the task to members "
            "that have it (group)"
        ) from None
    if found.pw_uid == 0 and ROOT not in allowed:
        raise RefusedUser(
            f"run_as: {user}: it has uid 0 on {member}, and may do all that root may: ROTA_RUN_AS there must name root "
            "too"
        )
    return Account(user, found.pw_uid, found.pw_gid, tuple(groups), found.pw_dir)


def of_number(uid: int, scratch: Path) -> Account:
    """Make the account of a user id without a name: it has no further groups, and its home is the scratch folder."""
    return Account("", uid, uid, (), str(scratch))


def lowest_free(numbers: range, used: Collection[int]) -> int:
    """Return the lowest user id of `numbers` that is not in `used`, for the next attempt. Pure. Raises `NoFreeUid`.

    >>> lowest_free(range(200000, 200003), {200000, 200002})
    200001
    """
    found = next((number for number in numbers if number not in used), None)
    if found is None:
        raise NoFreeUid(
            f"every uid of ROTA_WORK_UIDS={numbers.start}-{numbers.stop - 1} is taken by an attempt whose processes "
            "have not ended; add uids to it"
        )
    return found


def account_for(order: Order, scratch: Path) -> Account | None:
    """Determine the user of an attempt, and make it the owner of the empty `scratch`. None: the node's own user.

    Raises `RefusedUser` and `OSError`.
    """
    if order.run_as:
        found = account_of(order.run_as, order.may_run_as, order.node)
    elif order.uid is not None:
        found = of_number(order.uid, scratch)
    else:
        return None
    give(found, scratch)
    return found


def environment(account: Account) -> dict[str, str]:
    """Return the environment variables that describe a user, as cron sets them. Pure.

    >>> environment(Account("deploy", 1001, 1001, (1001,), "/home/deploy"))
    {'HOME': '/home/deploy', 'USER': 'deploy', 'LOGNAME': 'deploy', 'SHELL': '/bin/sh'}
    """
    name = account.name or str(account.uid)
    return {"HOME": account.home, "USER": name, "LOGNAME": name, "SHELL": SHELL}


def give(account: Account, scratch: Path) -> None:
    """Make the user the owner of the empty `scratch`, and let all users pass through its parent. Raises `OSError`."""
    scratch.parent.chmod(0o711)
    scratch.chmod(0o700)
    os.chown(scratch, account.uid, account.gid, follow_symlinks=False)


def become(account: Account, output: int, needed: Iterable[Path]) -> None:
    """Become the user, irreversibly. The worker must have no other thread. `output` is its pipe to the log.

    Raises `RefusedUser` if the user cannot reach one of the `needed` paths, and `OSError`.
    """
    parent = os.getppid()
    os.fchown(output, account.uid, account.gid)  # so that the work can reopen it as /dev/stderr
    os.setgroups(account.groups)
    os.setresgid(account.gid, account.gid, account.gid)
    os.setresuid(account.uid, account.uid, account.uid)
    if account.uid != 0:
        # The kernel drops capabilities only if the process was root; a node that is an ordinary user may have some too.
        keep_capabilities(())
    # The kernel forgets the parent's death signal when a process becomes another user.
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    open_memory()  # the kernel has closed it, as it does at every change of user
    os.environ.update(environment(account))
    for path in needed:
        if (closed := first_closed(path)) is not None:
            raise RefusedUser(
                f"{account.called} cannot enter the folder {closed}, and so cannot reach {path}: let others pass it "
                f"(chmod o+x {closed}), or move what is below it elsewhere"
            )


def first_closed(path: Path) -> Path | None:
    """Return the first folder on the way to `path` that this process cannot enter; None if it can enter all."""
    return next((folder for folder in reversed(path.parents) if not os.access(folder, os.X_OK)), None)
