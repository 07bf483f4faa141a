"""Entry, term and vote are on the disk before anything says so: seen in the system calls of real members.

Not what the product says of itself, but what the kernel was asked: between an entry's arrival and the message that
acknowledges it there is a write to the journal's files and a sync of them that has returned; of a snapshot, too.
"""

import json
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from node.cli.local import wait_for
from testkit.raft.raft_cluster import Cluster
from testkit.raft.syscalls import Call, CannotTrace, Tracer
from testkit.raft.traced_member import NOTES

pytestmark = pytest.mark.integration

JOURNAL = "raft.sqlite"
JOURNAL_FILES = (f"{JOURNAL}-wal", JOURNAL)
INCOMING = "snapshot.incoming.tmp"


@dataclass
class Disk:
    """What a trace shows of one member: what is in memory only, what is written, and what was said too early.

    A fact is ("entry", index) or ("vote", term). `proven` counts what was said of facts that had been synced.
    `incoming` is how it stands with a snapshot from the leader.
    """

    in_memory: set[tuple[str, int]] = field(default_factory=set)
    written: set[tuple[str, int]] = field(default_factory=set)
    early: list[str] = field(default_factory=list)
    proven: dict[str, int] = field(default_factory=dict)
    synced: set[tuple[str, int]] = field(default_factory=set)
    incoming: Literal["none", "written", "synced"] = "none"

    def follow(self, calls: Iterable[Call]) -> "Disk":
        """Go through a trace."""
        for call in calls:
            place = Path(call.file).name
            if call.name == "pwrite64" and place in JOURNAL_FILES:
                self.written |= self.in_memory
                self.in_memory.clear()
            elif call.name in ("fsync", "fdatasync") and place in JOURNAL_FILES and call.result == 0:
                self.synced |= self.written
                self.written.clear()
            elif call.name == "write" and place == INCOMING:
                self.incoming = "written"
            elif call.name in ("fsync", "fdatasync") and place == INCOMING and call.result == 0:
                self.incoming = "synced"
            elif call.name == "write" and place == NOTES:
                for line in call.data.splitlines():
                    self._note(json.loads(line))
        return self

    def _note(self, note: dict[str, Any]) -> None:
        match note:
            case {"what": "adds", "index": index}:
                self.in_memory.add(("entry", index))
            case {"what": "takes", "kind": "request_vote", "term": term} | {"what": "votes", "term": term}:
                self.in_memory.add(("vote", term))
            case {"what": "says", "kind": "request_vote" | "response_vote" as kind, "term": term}:
                self._says(kind, "vote", term)
            case {"what": "says", "kind": "next_node_idx", "index": index}:
                self._says("acknowledgement", "entry", index)
                if index and self.incoming == "written":
                    self.early.append(f"acknowledgement of {index}, and the snapshot is not on the disk")
                elif index and self.incoming == "synced":
                    self.proven["snapshot"] = self.proven.get("snapshot", 0) + 1
                    self.incoming = "none"
            case {"what": "applies", "index": index, "leads": True}:
                self._says("answer to a client", "entry", index)

    def _says(self, saying: str, kind: str, number: int) -> None:
        not_yet = {fact for fact in self.in_memory | self.written if fact[0] == kind and fact[1] <= number}
        if not_yet:
            self.early.append(f"{saying} of {kind} {number}, and {sorted(not_yet)} are not on the disk")
        elif (kind, number) in self.synced:
            self.proven[saying] = self.proven.get(saying, 0) + 1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, module="testkit.raft.traced_member")
    yield made
    made.close()


def trace(cluster: Cluster, member: str) -> Tracer:
    process = cluster.running[member]
    try:
        return Tracer(process.popen.pid, wait_for("Raft's thread", lambda: process.thread))
    except CannotTrace as error:
        pytest.skip(f"NOT SHOWN HERE that entries and votes are synced before they are acknowledged: {error}")


def seen(cluster: Cluster, tracers: dict[str, Tracer]) -> dict[str, Disk]:
    """Stop all, and go through what each did."""
    cluster.stop()
    for tracer in tracers.values():
        tracer.join()
    return {member: Disk().follow(tracer.calls) for member, tracer in tracers.items()}


def proven(disks: Iterable[Disk], saying: str) -> int:
    return sum(disk.proven.get(saying, 0) for disk in disks)


def test_entries_term_and_vote_are_synced_before_anything_says_so(cluster: Cluster) -> None:
    cluster.start()
    first = cluster.leader().me
    tracers = {member: trace(cluster, member) for member in cluster.addresses}
    for process in list(cluster.running.values()):
        process.do("push", start=0, count=40, window=4)
    cluster.kill(first)  # and one of the others asks the other for its vote
    cluster.leader().do("push", start=1_000, count=20, window=4)
    disks = seen(cluster, tracers)
    assert [early for disk in disks.values() for early in disk.early] == []
    assert proven(disks.values(), "acknowledgement") > 20
    assert proven(disks.values(), "answer to a client") > 20
    assert proven(disks.values(), "request_vote") > 0
    assert proven(disks.values(), "response_vote") > 0


@pytest.mark.more
def test_a_snapshot_from_the_leader_is_synced_before_it_is_acknowledged(cluster: Cluster) -> None:
    cluster.timing = {"batch_bytes": 1, "log_entries": 200}
    cluster.start()
    lagging = cluster.followers()[0].me
    cluster.kill(lagging)
    leader = cluster.leader()
    leader.do("push", start=0, count=600, window=20, size=2_000)
    wait_for("the log to be compacted", lambda: leader.do("state")["first_index"] > 100)
    cluster.more = {"awaits_tracer": True}
    cluster.start(lagging)
    tracer = trace(cluster, lagging)
    cluster.same(600)
    disks = seen(cluster, {lagging: tracer})
    assert disks[lagging].early == []
    assert proven(disks.values(), "snapshot") > 0


def test_a_flush_that_is_left_out_is_noticed(cluster: Cluster) -> None:
    """What is shown above would not be worth anything otherwise."""
    cluster.more = {"unsynced": True}
    cluster.start()
    first = cluster.leader().me
    tracers = {member: trace(cluster, member) for member in cluster.addresses}
    cluster.running[first].do("push", start=0, count=20, window=4)
    cluster.kill(first)
    cluster.leader()
    early = [early for disk in seen(cluster, tracers).values() for early in disk.early]
    for saying in ("acknowledgement", "answer to a client", "request_vote", "response_vote"):
        assert any(each.startswith(saying) for each in early), saying


def test_several_entries_share_one_sync(cluster: Cluster) -> None:
    """Proposals that come together are one entry, and entries that come together are one transaction."""
    cluster.timing = {"batch_bytes": 1, "flights": 64}  # an entry for each proposal
    cluster.start()
    leader = cluster.leader()
    tracers = {process.me: trace(cluster, process.me) for process in cluster.followers()}
    leader.do("push", start=0, count=600, window=64)
    cluster.stop()
    for tracer in tracers.values():
        tracer.join()
        syncs = sum(call.name in ("fsync", "fdatasync") and JOURNAL in call.file for call in tracer.calls)
        assert 0 < syncs < 400, "at least some of 600 entries must have shared a sync"


def test_a_kill_in_the_middle_of_a_compaction_loses_nothing(tmp_path: Path) -> None:
    """A snapshot is put in its place, and the log cut behind it: at any moment in between there is all of it."""
    rng = random.Random(7)
    kept, compactions = 0, 0
    for _ in range(12):
        command = [sys.executable, "-m", "testkit.raft.compacting", str(tmp_path / "n1"), str(kept)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(rng.randrange(5, 60)):
                what, _, index = process.stdout.readline().partition(" ")
                assert what in ("kept", "cut"), "it did not find what it had kept"
                compactions += what == "cut"
                kept = max(kept, int(index))
            process.kill()
            for line in process.stdout:
                if line.endswith("\n"):
                    kept = max(kept, int(line.partition(" ")[2]))
    assert compactions > 20
