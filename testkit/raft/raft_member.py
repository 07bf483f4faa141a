"""One member of a Raft cluster in a process of its own, driven by lines of JSON: see `raft_cluster`."""

import json
import logging
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import msgpack

from node.raft.adapter import Raft
from node.raft.consensus import Consensus
from node.raft.ports import RaftOwner, RaftRole, RaftSettings, RaftTiming
from node.raft.wire import encryption
from node.state.attempts import Cancel
from node.state.codec import unpack_batch
from node.state.entries import Proposal, ProposalId
from node.state.value import Result

PAGE = 500


class Ledger:
    """A state machine that keeps every proposal, in order, and applies none twice."""

    def __init__(self, cluster_id: str = "") -> None:
        self._cluster_id = cluster_id
        self.order: dict[tuple[str, int, int], str] = {}
        self.repeated = 0

    @property
    def cluster_id(self) -> str:
        """The cluster is founded by the first entry."""
        return self._cluster_id if self.order else ""

    def apply(self, entry: bytes) -> Sequence[tuple[ProposalId, Result]]:
        results = []
        for each in unpack_batch(entry):
            assert isinstance(each.entry, Cancel)
            key = (each.id.proposer, each.id.session, each.id.sequence)
            if key in self.order:
                self.repeated += 1
            else:
                self.order[key] = each.entry.run_id
            results.append((each.id, Result("ok")))
        return results

    def capture(self) -> Callable[[], Iterator[bytes]]:
        rows = list(self.order.items())

        def pieces() -> Iterator[bytes]:
            for start in range(0, len(rows), PAGE):
                yield msgpack.packb(rows[start : start + PAGE])

        return pieces

    def restore(self, pieces: Iterable[bytes]) -> None:
        self.order = {}
        for piece in pieces:
            for key, text in msgpack.unpackb(piece, use_list=False):
                self.order[key] = text

    def digest(self) -> int:
        rows = list(self.order.items())  # in one step: Raft's thread may be applying
        return zlib.crc32(msgpack.packb([(*key, text) for key, text in rows]))


class Alarm(logging.Handler):
    """Keeps the library's log lines about truncating applied entries."""

    def __init__(self) -> None:
        super().__init__()
        self.rung: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "truncating already-applied" in record.getMessage():
            self.rung.append(record.getMessage())


class Member:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.me: str = settings["me"]
        self.ledger = Ledger(settings.get("cluster_id", ""))
        self.alarm = Alarm()
        logging.getLogger().addHandler(self.alarm)
        self.session = time.time_ns()
        self.say_lock = threading.Lock()
        raft_settings = RaftSettings(
            self.me,
            {member: (host, port) for member, (host, port) in settings["addresses"].items()},
            Path(settings["folder"]),
            settings["secret"],
            RaftTiming(**settings.get("timing", {})),
            version=settings.get("version", ""),
        )
        owner = RaftOwner(self.role_changed, lambda error: self.say(failed=f"{type(error).__name__}: {error}"))
        self.raft = Raft(raft_settings, self.ledger, owner)
        self.raft.start()

    def say(self, **fields: Any) -> None:
        with self.say_lock:
            sys.stdout.write(json.dumps(fields) + "\n")
            sys.stdout.flush()

    def role_changed(self, role: RaftRole) -> None:
        fields = {"term": role.term, "leader": role.leader, "is_leader": role.is_leader}
        self.say(role={**fields, "has_quorum": role.has_quorum, "ready": role.ready, "at": time.monotonic()})

    def proposal(self, sequence: int, size: int = 0, session: int | None = None) -> Proposal:
        entry = Cancel(0, f"{self.me}-{sequence}".ljust(size, "."))
        return Proposal(ProposalId(self.me, session or self.session, sequence), entry)

    def push(self, ask: int, start: int, count: int, window: int, size: int = 0, timeout_s: float = 20.0) -> None:
        """Propose `count` entries, `window` of them under way at once; report each that is acknowledged."""
        room = threading.Semaphore(window)
        acked: list[int] = []
        failed: list[str] = []
        lock = threading.Lock()

        def answered(sequence: int, future: "Future[Result]") -> None:
            error = future.exception()
            with lock:
                if error is None:
                    acked.append(sequence)
                else:
                    failed.append(type(error).__name__)
            room.release()

        def tell() -> None:
            with lock:
                told, acked[:] = list(acked), []
            if told:
                self.say(acked=told)

        began = time.monotonic()
        for sequence in range(start, start + count):
            room.acquire()
            future = self.raft.propose(self.proposal(sequence, size), timeout_s)
            future.add_done_callback(lambda future, sequence=sequence: answered(sequence, future))  # type: ignore[misc]
            if sequence % 50 == 0:
                tell()
        for _ in range(window):
            room.acquire()
        tell()
        self.say(answer=ask, took_s=time.monotonic() - began, failed=failed)

    def do(self, ask: int, verb: str, arguments: dict[str, Any]) -> None:
        try:
            if verb == "push":
                self.push(ask, **arguments)
                return
            self.say(answer=ask, **getattr(self, verb)(**arguments))
        except Exception as error:
            self.say(answer=ask, error=type(error).__name__, detail=str(error))

    def state(self) -> dict[str, Any]:
        consensus = self.raft._consensus
        assert consensus is not None
        return {
            "count": len(self.ledger.order),
            "digest": self.ledger.digest(),
            "repeated": self.ledger.repeated,
            "truncated": self.raft.truncated,
            "alarms": self.alarm.rung,
            "members": sorted(consensus.members()),
            "first_index": consensus.journal.first_index,
            "votes": consensus.recovery.votes,
            "failure": str(self.raft.failure or ""),
        }

    def keys(self) -> dict[str, Any]:
        return {"keys": [list(key) for key in list(self.ledger.order)]}

    def once(self, sequence: int, timeout_s: float, size: int = 0, session: int | None = None) -> dict[str, Any]:
        began = time.monotonic()
        result = self.raft.propose(self.proposal(sequence, size, session), timeout_s).result(timeout_s + 5)
        return {"code": result.code, "took_s": time.monotonic() - began}

    def latencies(self, start: int, count: int) -> dict[str, Any]:
        took = sorted(self.once(sequence, 10)["took_s"] for sequence in range(start, start + count))
        return {"p50_ms": 1e3 * took[count // 2], "p99_ms": 1e3 * took[count * 99 // 100]}

    def barrier(self, timeout_s: float) -> dict[str, Any]:
        self.raft.barrier(timeout_s).result(timeout_s + 5)
        return {}

    def add(self, member: str, host: str, port: int) -> dict[str, Any]:
        self.raft.add_member(member, (host, port), 10).result(15)
        return {}

    def remove(self, member: str) -> dict[str, Any]:
        self.raft.remove_member(member, 10).result(15)
        return {}

    def hand_over(self, to: str) -> dict[str, Any]:
        consensus = self.raft._consensus
        assert consensus is not None
        consensus.transferLeadership = partial(Consensus.transferLeadership, consensus, consensus.book.node(to))
        self.raft.hand_over()
        return {}

    def mismatches(self) -> dict[str, Any]:
        found = [[one.member, one.code, one.claimed, one.version, one.other] for one in self.raft.mismatches.now()]
        return {"mismatches": found}

    def cpu(self) -> dict[str, Any]:
        return {"cpu_s": time.process_time()}


def main() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    settings = json.loads(sys.argv[1])
    if "protocol" in settings:
        encryption.MAGIC = encryption.FAMILY + settings["protocol"].encode()  # type: ignore[misc]  # another build
    member = Member(settings)
    member.say(started=True)
    for line in sys.stdin:
        order = json.loads(line)
        if order["verb"] == "stop":
            break
        arguments = (order["ask"], order["verb"], order["arguments"])
        threading.Thread(target=member.do, args=arguments, daemon=True).start()
    member.raft.stop()


if __name__ == "__main__":
    main()
