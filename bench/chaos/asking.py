"""What is asked of the members and of the machine when the faults are over."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.chaos.checker import members
from node.cli.local import LocalCluster, NotInTime, wait_for

EXPECTED: Final = (
    r"rota\.member: \S+ is taken to be down: (gone|silent)",
    r"rota\.joining: the others have this node as ",
    r"rota\.member: the others do not know that this member is down: ",  # the last of a full stop have no majority
    r"rota\.lapses: no lease for ",
    r"rota: killed \d+ processes that an earlier start had left behind",  # started while supervisors still kill
)
"""Warnings that the faults themselves bring about."""

CLOCK: Final = (r"rota\.clock: this machine's wall clock is \S+ s (ahead of|behind) most members' clocks: ",)
"""What a node says whose clock is off."""

DISK: Final = (
    r"rota: this node cannot go on: its data folder \S+ cannot be used: ",
    r"node\.raft\.adapter: Raft has stopped on this member: database or disk is full",
    r"node\.raft\.adapter: Raft's files could not be closed in good order: ",
    r"rota\.history: .*: database or disk is full",
    r"node\.http\.app: answering GET \S+ failed: database or disk is full",
)
"""What a node says whose disk is full."""

DAMAGE: Final = (
    r"node\.raft\.folder: .* kept as ",
    r"node\.raft\.recovery: \S+ has caught up with the others, and votes again",
    r"rota\.history: \S+ is damaged \(.*\): kept as ",
    r"rota: this node cannot go on: \S+ is damaged \(.*\), and is kept as ",
    r"node\.http\.app: answering GET \S+ failed: ",  # it read what is damaged just then
)
"""What a node says of whose folder files were damaged."""


def logs(cluster: LocalCluster, patterns: Sequence[str]) -> tuple[Counter[str], list[str]]:
    """How often each expected warning was given, and all lines that nothing explains."""
    expected: Counter[str] = Counter()
    unexplained = []
    for name in cluster.names:
        lines = cluster.log_file(name).read_text(errors="replace").splitlines()
        known, unknown = members.alarms(f"{name}.log", lines, patterns)
        expected += known
        unexplained += unknown
    return expected, unexplained


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


def disagreements(cluster: LocalCluster) -> list[str]:
    """Where two members tell different things of tasks and runs."""
    found = []
    for what, key in (("/v1/tasks", "name"), ("/v1/runs", "run_id")):
        told = {name: {item[key]: item for item in cluster.client_of(name).items(what)} for name in cluster.names}
        found += members.disagreements(told)
    return found


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
