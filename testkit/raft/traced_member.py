"""A `raft_member` that notes what it takes, adds, sends and applies, for a tracer that sees the disk as well.

Each note is one write to a file of its own, by Raft's thread, at the moment: before a message leaves, after one came.
`unsynced` in the settings leaves out what the tests are there to notice; with `awaits_tracer` nothing is done unseen.
"""

import json
import os
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any

from node.cli.local import wait_for
from node.raft.consensus import Consensus
from node.raft.core.inbound import Inbound
from node.raft.log import membership
from node.raft.log.journal import SqliteJournal
from node.raft.transport.transport import Transport
from testkit.raft import raft_member

NOTES = "notes"


def watch(notes: Path, *, awaits_tracer: bool = False) -> None:
    """Have the parts say what they do."""
    file = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    take, put, tick, apply = Inbound.take, Transport._put, Consensus.tick, Consensus._SyncObj__doApplyCommand
    add, keep = SqliteJournal.add, SqliteJournal.setCurrentTerm
    told: list[int] = []

    def note(**fields: Any) -> None:
        os.write(file, json.dumps(fields).encode() + b"\n")

    def noting_take(self: Inbound, node: Any, message: Any) -> None:
        entries = message.get("entries") or [(b"", 0, 0)]
        note(what="takes", kind=message["type"], index=entries[-1][1], term=message.get("term", 0))
        take(self, node, message)

    def noting_put(self: Transport, node: Any, message: Any) -> bool:
        success = message.get("success") and not message.get("reset")
        index = message["next_node_idx"] - 1 if success else 0
        note(what="says", kind=message["type"], index=index, term=self._consensus.raftCurrentTerm)
        return put(self, node, message)

    def noting_add(self: SqliteJournal, command: bytes, idx: int, term: int) -> None:
        note(what="adds", index=idx, term=term)
        add(self, command, idx, term)

    def noting_keep(self: SqliteJournal, term: int, votedForNodeId: str | None) -> None:  # noqa: N803
        note(what="votes", term=term)
        keep(self, term, votedForNodeId)

    def noting_apply(self: Consensus, command: bytes) -> None:
        if command[:1] == membership.REGULAR:
            note(what="applies", index=self.raftLastApplied + 1, leads=self.is_leader)
        apply(self, command)

    def telling_tick(self: Consensus, wait_s: float) -> None:
        if not told:
            told.append(threading.get_native_id())
            sys.stdout.write(json.dumps({"thread": told[0]}) + "\n")
            sys.stdout.flush()
            if awaits_tracer:
                wait_for("a tracer", lambda: "TracerPid:\t0\n" not in Path("/proc/thread-self/status").read_text())
        tick(self, wait_s)

    Inbound.take, Transport._put, SqliteJournal.add = noting_take, noting_put, noting_add  # type: ignore[method-assign]
    SqliteJournal.setCurrentTerm = noting_keep  # type: ignore[method-assign]
    Consensus._SyncObj__doApplyCommand, Consensus.tick = noting_apply, telling_tick  # type: ignore[method-assign]


def leave_out_the_flush() -> None:
    """As the library has it: what is written reaches the disk some time."""
    connect = SqliteJournal._connect

    def unsynced(self: SqliteJournal, path: Path) -> sqlite3.Connection:
        db = connect(self, path)
        db.execute("PRAGMA synchronous=OFF")
        return db

    SqliteJournal._connect = unsynced  # type: ignore[method-assign]


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    folder = Path(settings["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    watch(folder / NOTES, awaits_tracer=settings.get("awaits_tracer", False))
    if settings.get("unsynced"):
        leave_out_the_flush()
    raft_member.main()
