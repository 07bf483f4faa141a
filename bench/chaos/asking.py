"""What is asked of the members and of the machine when the faults are over."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.chaos.caretaker import Ended
from bench.chaos.checker import members
from bench.chaos.faults.machines import HUNG
from bench.chaos.recovery import Struck
from node.cli.local import LocalCluster, NotInTime, wait_for
from node.raft import adapter
from node.raft.log import log_store, snapshots
from node.raft.recovery import amnesia_recovery
from testkit.agreement import disagreements

SAID_WHY: Final = 1
"""What a node ends with that cannot go on; its log says why."""

EXPECTED: Final = (
    r"rota\.member: \S+ is taken to be down: (gone|silent)",
    r"rota\.joining: the cluster has this node as ",
    r"rota\.member: this member could not be marked down, ",  # the last of a full stop have no majority
    r"rota\.lease: no lease for ",
    r"rota\.runs: \S+: attempt \d+ on \S+ (failed|was lost|ran out of time)",  # the checker judges what becomes of it
    r"rota: killed \d+ processes that an earlier start had left behind",  # started while supervisors still kill
)
"""Warnings that the faults themselves bring about."""

_SILENT: Final = r"rota\.members: does not fit: {} \(\S+\) accepts connections and says nothing: "
"""What the others say of a member that was stopped, or whose disk did not answer, for longer than `LASTING_S`."""

_CLOCK: Final = (r"rota\.clock: this machine's wall clock is \S+ s (ahead of|behind) most members' clocks: ",)

_BLOCKED: Final = (
    r"rota\.raft_watchdog: Raft thread blocked for ",
    r"rota\.raft_watchdog: Raft thread resumed after ",
)

_DISK: Final = (
    *_BLOCKED,  # while it waits for room
    r"rota\.disk: ",
    r"rota\.member: this node takes on nothing new, and the others own its tasks: no room on its disk: ",
    r"rota\.controller: run \S+: stopping its attempt: no room on ",
    rf"{re.escape(snapshots.__name__)}: no room for ",
    r"rota\.membership: cannot save the members' addresses: ",
    r"rota: this node cannot go on: its data folder \S+ cannot be used: ",
    rf"{re.escape(adapter.__name__)}: Raft has stopped on this member: database or disk is full",
    rf"{re.escape(adapter.__name__)}: Raft's files could not be closed in good order: ",
    r"rota\.history: .*: database or disk is full",
    r"rota\.http: answering GET \S+ failed: database or disk is full",
)

_DAMAGE: Final = (
    rf"{re.escape(log_store.__name__)}: .* kept as ",
    rf"{re.escape(amnesia_recovery.__name__)}: \S+ has caught up with the others, and votes again",
    r"rota\.history: \S+ is damaged \(.*\): kept as ",
    r"rota: this node cannot go on: \S+ is damaged \(.*\), and is kept as ",
    # It read what is damaged just then.
    r"rota\.http: answering GET \S+ failed: "
    r"(database disk image is malformed|file is not a database|malformed database schema|disk I/O error)",
)

SAID_OF: Final = {
    "clock an hour ahead": _CLOCK,
    "clock an hour back": _CLOCK,
    "full disk": _DISK,
    HUNG: _BLOCKED,
    "damaged files": _DAMAGE,
}
"""What a node says that such a fault has struck, from then on, and no other node."""

ENDS_OF: Final = {"full disk", "damaged files"}
"""Kinds of fault after which a node may end by itself, with 1, having said why."""


def patterns(node: str, struck: Mapping[tuple[str, str], int], *, stalled: bool = False) -> dict[str, int]:
    """What is expected in a node's log, each with the number of lines after which it is. `struck`: by kind of fault and
    victim, how many lines there were when it was first struck so. `stalled`: the machine's disk has stood still.
    """
    said = dict.fromkeys((*EXPECTED, *(_BLOCKED if stalled else ())), 0)
    for (kind, victim), lines in struck.items():
        if ("SIGSTOP" in kind or kind == HUNG) and victim != node:
            said[_SILENT.format(re.escape(victim))] = 0
        if victim == node:
            said |= {pattern: min(lines, said.get(pattern, lines)) for pattern in SAID_OF.get(kind, ())}
    return said


def unasked(ended: Iterable[Ended], struck: Iterable[Struck]) -> list[str]:
    """The nodes that ended by themselves, other than those which a fault that may do so had struck before."""
    excuses = [(victim, one.struck_s) for one in struck if one.kind in ENDS_OF for victim in one.victims]
    return [
        f"{one.node} has ended by itself, with {one.code}"
        for one in ended
        if one.code != SAID_WHY or not any(one.node == victim and one.at_s > at_s for victim, at_s in excuses)
    ]


def logs(
    cluster: LocalCluster, struck: Mapping[tuple[str, str], int], *, stalled: bool
) -> tuple[Counter[str], list[str]]:
    """How often each expected warning was given, and all lines that nothing explains. The rest as in `patterns`."""
    expected: Counter[str] = Counter()
    unexplained = []
    for name in cluster.names:
        log = cluster.log_file(name).read_text(errors="replace").splitlines()
        known, unknown = members.alarms(f"{name}.log", log, patterns(name, struck, stalled=stalled))
        expected += known
        unexplained += unknown
    return expected, unexplained


def lines(cluster: LocalCluster, name: str) -> int:
    """How many lines a node's log has."""
    log = cluster.log_file(name)
    return log.read_bytes().count(b"\n") if log.exists() else 0


def settled(cluster: LocalCluster, deadline_s: float = 60) -> list[str]:
    """Wait until no run is active and every member says the same; what does not come about."""
    active: list[str] = []

    def all_ended() -> bool:
        active[:] = members.stuck(cluster.client.items("/v1/runs"))
        return not active

    try:
        wait_for("no run is active", all_ended, deadline_s, pause_s=0.5)
    except NotInTime as error:
        return [str(error), *active]
    found: list[str] = []

    def agree() -> bool:
        found[:] = disagreements(cluster)
        return not found

    try:
        wait_for("the members agree", agree, deadline_s, pause_s=0.5)
    except NotInTime as error:
        return [str(error), *found]
    return []


def leftovers(folder: Path) -> list[str]:
    """Processes that the nodes have left running: every worker has its node's folder in its environment."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            environment = (process / "environ").read_bytes()
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (OSError, ValueError):
            continue
        if f"NURSERY_OF={folder}".encode() in environment:
            found.append(f"process {process.name} was left behind: {line[:200]}")
    return found


def now() -> datetime:
    """The machine's wall clock."""
    return datetime.now(UTC)
