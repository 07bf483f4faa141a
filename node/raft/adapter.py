"""Raft, as the node sees it: propose and wait, a role, and a machine to which committed entries are applied.

One thread does all of it: it sends what waits, lets the library tick, and looks at what has become of the role. What
others call only puts something down under a lock and wakes that thread.
"""

import logging
import secrets
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from pysyncobj.monotonic import monotonic
from pysyncobj.syncobj import SyncObjException

from node.identity.cluster_id import ClusterId
from node.raft.addresses import Book
from node.raft.append_filter import CommittedConflict
from node.raft.barriers import Barriers
from node.raft.changes import Changes, MembershipChange
from node.raft.consensus import Consensus, configuration
from node.raft.errors import (
    Broken,
    ChangeRefused,
    EntryTooLarge,
    MajorityLost,
    NameTaken,
    OutcomeUnknown,
    PortInUse,
    RaftError,
    RaftStopped,
)
from node.raft.founding import Outlook
from node.raft.log_store import open_folder
from node.raft.ports import RaftRole, RaftTiming, StateMachinePort
from node.raft.proposals import Proposals, WaitingProposal
from node.runtime.dns import Resolver
from node.state.entries import Proposal
from node.state.value import Result
from node.telemetry.thread_lag import Worst

logger = logging.getLogger(__name__)
# The library's traceback for a port in use: PortInUse says it in a sentence.
logging.getLogger("pysyncobj.syncobj").addFilter(lambda record: record.msg != "failed to perform initialization")

_TIMING = RaftTiming()

Pack = Callable[[Sequence[Proposal]], bytes]

PROPOSALS = b"P"
_BARRIER = b"B"
_FAILURES_LIMIT = 20
_HANDING_OVER_S = 0.5
_FATAL = (RaftError, CommittedConflict, sqlite3.Error)


class Raft:
    """One member's Raft. `start` opens, `stop` closes; all else may be called from any thread in between.

    me: this member's id. addresses: where the members are, this one among them; who they are counts at the first
    start only, after that the log says it. folder: this member's own. secret: what members share; never empty.
    pack: makes the bytes of one entry, as `machine` takes them, of several proposals. on_role: told of each change, in
    Raft's thread, so it must return at once; so is on_failure, if this member cannot go on (`failure` says why).
    bind_host: where to listen; by default this member's own host. cluster: which one this is a member of, if it is
    known already; learnt here otherwise. wait_for_room: asked in Raft's thread, where the disk is full, whether to
    write again; it may wait. start_id: drawn at random for this start of the member, and shown on its connections: it
    tells a restart from a second process with the same name (`claim`). `members`: who is one by the log, as it is here.
    `turns`: how often the thread has come round; it stands still while its disk does not answer. `outlook`: what is
    waited for while there is no cluster; None once this member is of one.
    """

    def __init__(
        self,
        me: str,
        addresses: Mapping[str, tuple[str, int]],
        folder: Path,
        secret: str,
        machine: StateMachinePort,
        pack: Pack,
        on_role: Callable[[RaftRole], None] = lambda _role: None,
        timing: RaftTiming = _TIMING,
        bind_host: str | None = None,
        on_failure: Callable[[Exception], None] = lambda _error: None,
        cluster: ClusterId | None = None,
        wait_for_room: Callable[[Exception], bool] = lambda _error: False,
        start_id: str = "",
    ) -> None:
        if not secret:
            raise ValueError("a Raft port is never open without a secret: set ROTA_SECRET or ROTA_SECRET_FILE")
        if me not in addresses:
            raise ValueError(f"the list of members does not hold {me} itself: {', '.join(sorted(addresses))}")
        self.me = me
        self.role = RaftRole()
        self.members: frozenset[str] = frozenset()
        self.outlook: Outlook = None
        self.failure: Exception | None = None
        self.truncated = 0
        self.lateness = Worst()
        self.turns = 0
        self._turned_s = float("inf")
        self._addresses = dict(addresses)
        self._folder = folder
        self._secret = secret
        self._machine = machine
        self._pack = pack
        self._on_role = on_role
        self._on_failure = on_failure
        self._wait_for_room = wait_for_room
        self._cluster = cluster or ClusterId()
        self._start_id = start_id or secrets.token_hex(8)
        self._timing = timing
        self._bind_host = bind_host or addresses[me][0]
        self._book = Book(self._addresses, Resolver())
        self._lock = threading.Lock()
        self._proposals = Proposals(timing.batch_bytes, timing.waiting_bytes, timing.resend_s, timing.flights)
        self._barriers = Barriers(timing.resend_s)
        self._changes = Changes()
        self._left_out: list[tuple[frozenset[str], Future[str | None]]] = []
        self._consensus: Consensus | None = None
        self._thread: threading.Thread | None = None
        self._woken = False
        self._yielding = False
        self._stopping = False
        self._over = False

    # -- beginning and end

    def start(self) -> None:
        """Open the folder, load what is in it, listen, and begin.

        Raises DamagedData, FolderInUse, OtherCluster, PortInUse.
        """
        members = [self._book.text(member) for member in self._addresses]
        folder = open_folder(self._folder, self.me, members, self._cluster.known)
        self._cluster.known = folder.cluster_id
        folder.journal.on_truncate = self._truncated
        folder.journal.wait_for_room = lambda error: not self._stopping and self._wait_for_room(error)
        bind = f"{self._bind_host}:{self._addresses[self.me][1]}"
        conf = configuration(self._timing, self._secret, bind, folder.journal)
        machine = self._machine
        try:
            self._consensus = Consensus(
                self.me,
                folder,
                self._book,
                self._timing,
                conf,
                self._cluster,
                self._apply,
                machine.capture,
                machine.restore,
                self._new_term,
                self._start_id,
            )
        except SyncObjException as error:
            folder.journal.close()
            raise PortInUse(f"cannot listen on {bind}: is another node running there, or the port taken?") from error
        except BaseException:
            folder.journal.close()
            raise
        self._thread = threading.Thread(target=self._run, args=(self._consensus,), name=f"raft {self.me}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it: hand over the lead if it is here, close everything. What waits gets Stopped, or OutcomeUnknown."""
        with self._lock:
            self._stopping = True
        self._wake()
        if self._thread is not None:
            self._thread.join()

    # -- what others ask

    def propose(self, proposal: Proposal, timeout_s: float) -> "Future[Result]":
        """Have an entry committed and applied here; the future gets its result.

        It is sent again under its id while it is unanswered. The future may raise NoQuorum, OutcomeUnknown or
        Stopped; this call raises EntryTooLarge and Overloaded. Callbacks of the future run in Raft's thread.
        """
        packed = self._pack([proposal])
        if len(packed) > self._timing.entry_bytes:
            raise EntryTooLarge(f"{len(packed)} bytes in one proposal: at most {self._timing.entry_bytes}; split it")
        waiting = WaitingProposal(proposal, packed, monotonic() + timeout_s)
        waiting.future.set_running_or_notify_cancel()
        with self._lock:
            if self._closed(waiting.future):
                return waiting.future
            self._proposals.add(waiting)
        self._wake()
        return waiting.future

    def barrier(self, timeout_s: float) -> "Future[None]":
        """Wait for a commit of one's own: after it, what was committed before the call is applied here."""
        with self._lock:
            future = self._barriers.add(monotonic() + timeout_s)
            if self._closed(future):
                self._barriers.give_up()
                return future
        self._wake()
        return future

    def add_member(self, member: str, address: tuple[str, int], timeout_s: float = 10.0) -> "Future[None]":
        """Make somebody a member. The future may raise ChangeRefused, NoQuorum, OutcomeUnknown or Stopped."""
        self._book.put(member, address)
        return self._change(MembershipChange("add", member, self._book.text(member), monotonic() + timeout_s))

    def remove_member(self, member: str, timeout_s: float = 10.0) -> "Future[None]":
        """Make somebody no member; a leader hands over first. Nobody removes itself: it would not learn of it."""
        change = MembershipChange("rem", member, member, monotonic() + timeout_s)
        if member == self.me:
            change.future.set_exception(ChangeRefused("a member cannot remove itself: ask another one"))
            return change.future
        return self._change(change)

    def leave_out(self, members: frozenset[str]) -> "Future[str | None]":
        """Have a cluster founded without these. The result is why not; None: it is so, once the others accept it.

        The future may raise Stopped.
        """
        future: Future[str | None] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if not self._closed(future):
                self._left_out.append((members, future))
        self._wake()
        return future

    def hand_over(self) -> None:
        """Let another member lead, if this one does. Any thread."""
        self._yielding = True
        self._wake()

    def relocate(self, member: str, address: tuple[str, int]) -> None:
        """A member is reached at another address from now on."""
        self._book.put(member, address)

    def _change(self, change: MembershipChange) -> "Future[None]":
        change.future.set_running_or_notify_cancel()
        with self._lock:
            if not self._closed(change.future):
                self._changes.add(change)
        self._wake()
        return change.future

    def _closed(self, future: "Future[Any]") -> bool:
        if self._over or self._stopping or self._consensus is None:
            future.set_exception(RaftStopped("Raft does not run on this member: nothing was proposed"))
            return True
        return False

    def _wake(self) -> None:
        with self._lock:
            if self._woken or self._over or self._consensus is None:
                return
            self._woken = True
            self._consensus.wake()

    # -- Raft's thread

    def _run(self, consensus: Consensus) -> None:
        failures = 0
        try:
            while not self._stopping:
                try:
                    self._step(consensus)
                    failures = 0
                except _FATAL:
                    raise
                except Exception as error:
                    failures += 1
                    logger.exception("an error in Raft's thread")
                    if failures >= _FAILURES_LIMIT:
                        raise Broken("the same step failed again and again") from error
            self._hand_over(consensus)
        except Exception as error:
            self.failure = error
            # What the disk or the others say needs no traceback: the node ends over it, and tells what to do.
            traceback = None if isinstance(error, OSError | sqlite3.Error | MajorityLost) else error
            if not isinstance(error, NameTaken):  # whoever is told of the failure says it
                logger.critical("Raft has stopped on this member: %s", error, exc_info=traceback)
        finally:
            self._close(consensus)

    def _step(self, consensus: Consensus) -> None:
        self.turns += 1
        now = monotonic()
        self.lateness.note(now - self._turned_s - self._timing.tick_s, now)
        self._turned_s = now
        self._send(consensus, now)
        with self._lock:
            left_out, self._left_out = self._left_out, []
        for members, future in left_out:
            future.set_result(consensus.inquiry.leave_out(members))
        consensus.tick(self._timing.tick_s)
        consensus.belong_to(self._machine.cluster_id)
        now = monotonic()
        self._look(consensus, now)
        with self._lock:
            over: list[tuple[Future[Any], Exception]] = [(w.future, e) for w, e in self._proposals.expire(now)]
            over += self._barriers.expire(now)
            self._proposals.send_again(now, all_of_them=False)
            self._barriers.send_again(now, all_of_them=False)
        for late, error in over:
            late.set_exception(error)
        self._changes.step(consensus, now)
        if self._yielding:
            self._yielding = False
            if consensus.is_leader and len(consensus.members()) > 1:
                consensus.transferLeadership()

    def _send(self, consensus: Consensus, now: float) -> None:
        """Send what waits, if there is a leader who may have it committed."""
        self._woken = False
        if not self.role.has_quorum or consensus.leader_node() is None:
            return
        with self._lock:
            mark = self._barriers.take(now)
            batches = []
            while batch := self._proposals.take(now):
                batches.append(batch)
        if mark is not None:
            consensus.put(_BARRIER + mark)
        for batch in batches:
            packed = batch[0].packed if len(batch) == 1 else self._pack([each.proposal for each in batch])
            consensus.put(PROPOSALS + packed)

    def _apply(self, data: bytes) -> None:
        if data[:1] == _BARRIER:
            with self._lock:
                reached = self._barriers.applied(data[1:])
            for future in reached:
                future.set_result(None)
            return
        try:
            results = self._machine.apply(data[1:])
        except Exception as error:
            raise Broken("a committed entry could not be applied") from error
        with self._lock:
            answered = self._proposals.applied(results)
        for waiting, result in answered:
            waiting.future.set_result(result)

    def _look(self, consensus: Consensus, now: float) -> None:
        """See what the role is now; on another leader or term, what is under way is sent again."""
        self.members = frozenset(consensus.members())
        self.outlook = consensus.inquiry.outlook
        role = _role(consensus, now, self._timing.quorum_s, self.role.ready)
        if role == self.role:
            return
        before, self.role = self.role, role
        if role.leader is not None and (role.leader, role.term) != (before.leader, before.term):
            with self._lock:
                self._proposals.send_again(now, all_of_them=True)
                self._barriers.send_again(now, all_of_them=True)
        self._on_role(role)

    def _new_term(self, term: int) -> None:
        """The term that was is left, and its leader with it. Told before a vote or anything else is sent in the new."""
        self.role = RaftRole(term, None, False, False, self.role.ready)
        self._on_role(self.role)

    def _hand_over(self, consensus: Consensus) -> None:
        if not consensus.is_leader or len(consensus.members()) == 1:
            return
        consensus.transferLeadership()
        until = monotonic() + _HANDING_OVER_S
        while consensus.is_leader and monotonic() < until:
            consensus.tick(self._timing.tick_s)

    def _close(self, consensus: Consensus) -> None:
        with self._lock:
            self._over = True
            waiting = self._proposals.give_up()
            futures: list[Future[Any]] = [*self._barriers.give_up(), *self._changes.give_up()]
            futures += [future for _, future in self._left_out]
        for each in waiting:
            unknown = OutcomeUnknown("proposed, and this member stopped before it was seen committed")
            each.future.set_exception(
                unknown if each.sent else RaftStopped("this member stopped: nothing was proposed")
            )
        for future in futures:
            future.set_exception(RaftStopped("this member stopped"))
        try:
            consensus.close()
        except (OSError, sqlite3.Error) as error:
            logger.error("Raft's files could not be closed in good order: %s", error)  # noqa: TRY400 - it says it all
        self.role = RaftRole(term=self.role.term)
        self._on_role(self.role)
        if self.failure is not None:
            self._on_failure(self.failure)

    def _truncated(self, entries: Sequence[Any]) -> None:
        self.truncated += len(entries)
        logger.info("%d entries from %d on were not the leader's: taken back", len(entries), entries[0][1])


def _role(consensus: Consensus, now: float, quorum_s: float, ready: bool) -> RaftRole:
    members = consensus.members()
    if consensus.is_leader:
        heard = consensus.transport.heard
        near = sum(
            1 for member in members if member == consensus.me or now - heard.get(member, now - quorum_s) < quorum_s
        )
        leader: str | None = consensus.me
        has_quorum = 2 * near > len(members)
    else:
        node = consensus.leader_node()
        has_quorum = node is not None and now - consensus.intake.leader_heard_s < quorum_s
        leader = node.id if node is not None and has_quorum else None
    ready = ready or (has_quorum and consensus.applied_in_term)
    return RaftRole(consensus.raftCurrentTerm, leader, consensus.is_leader, has_quorum, ready)
