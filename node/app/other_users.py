"""Checks, when the node starts, that it can run attempts as other users (`ROTA_RUN_AS`, `ROTA_WORK_UIDS`)."""

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

from node.app.config import Config
from node.execution.account import CAPABILITIES
from node.execution.linux import lacking_capabilities

_SUBORDINATE = Path("/etc/subuid")
_MAP = Path("/proc/self/uid_map")


def why_not_other_users(config: Config) -> str:
    """Say why this node cannot run attempts as other users although it should, and what to do; "" if it can."""
    if not config.other_users:
        return ""
    names = " and ".join(filter(None, ("ROTA_RUN_AS" * bool(config.run_as), "ROTA_WORK_UIDS" * bool(config.work_uids))))
    if missing := lacking_capabilities(CAPABILITIES):
        return (
            f"{names} is set, and this node may not run attempts as other users: it lacks "
            f"{', '.join(f'CAP_{name}' for name in missing)}. Start it as root or with these capabilities "
            f"(docs/how-to/run-a-task-as-another-user.md), or unset {names}"
        )
    uids = config.work_uids
    if not uids:
        return ""
    given = f"ROTA_WORK_UIDS={uids.start}-{uids.stop - 1}"
    taken = [f"{one.pw_uid} is the user {one.pw_name}" for one in pwd.getpwall() if one.pw_uid in uids]
    taken += [f"{os.geteuid()} is this node's user"] if os.geteuid() in uids else []
    taken += [f"{_SUBORDINATE} gives some of them to {who}" for who in overlapping(uids, _text(_SUBORDINATE))]
    if taken:
        return (
            f"{given}: {taken[0]}, whose processes would be killed at each start of this node: name user ids that "
            "nobody else has"
        )
    if not mapped(uids, _text(_MAP)):
        return f"{given}: not all of these exist in this container ({_MAP}): name some that do"
    return ""


def doubts(config: Config, data: Path) -> Iterator[str]:
    """Yield reasons why attempts of other users may fail on this node, a sentence each."""
    if not config.other_users:
        return
    for user in config.run_as:
        try:
            pwd.getpwnam(user)
        except KeyError:
            yield f"ROTA_RUN_AS names {user}, and there is no user of this name here: attempts that run as {user} fail"
    for folder in data.parents:
        if not folder.stat().st_mode & 0o001:
            yield (
                f"{folder} can be entered only by its owner and its group, so that other users cannot reach their "
                f"scratch folders in {data}: attempts of such users fail (chmod o+x {folder}, or move the data folder)"
            )
    if lacking_capabilities(("SYS_PTRACE",)):
        yield (
            "this node lacks CAP_SYS_PTRACE: if a supervisor is killed, processes of another user that have left its "
            "attempt's session are found only if that user's id is one of ROTA_WORK_UIDS"
        )


def overlapping(uids: range, subordinate: str) -> list[str]:
    """Return the users to whom the text of /etc/subuid gives some of `uids`. Pure.

    >>> overlapping(range(100000, 100010), "deploy:100000:65536"), overlapping(range(90000, 90010), "deploy:100000:9")
    (['deploy'], [])
    """
    found = []
    for line in subordinate.splitlines():
        who, _, numbers = line.partition(":")
        first, _, count = numbers.partition(":")
        if first.isdecimal() and count.isdecimal():
            theirs = range(int(first), int(first) + int(count))
            if uids.start < theirs.stop and theirs.start < uids.stop:
                found.append(who)
    return found


def mapped(uids: range, uid_map: str) -> bool:
    """Return whether `uids` exist, by the text of /proc/self/uid_map: checks the first and the last of them. Pure.

    >>> whole, container = "0 0 4294967295", "0 100000 65536"
    >>> mapped(range(200000, 200100), whole), mapped(range(200000, 200100), container)
    (True, False)
    """
    left = {uids.start, uids.stop - 1}
    for line in uid_map.splitlines():
        first, _, count = map(int, line.split())
        left = {uid for uid in left if not first <= uid < first + count}
    return not left


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
