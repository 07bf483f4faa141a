"""Raft's interface to the node: proposals and their results, a role, and a state machine for committed entries.

One thread, Raft's thread, does all the work: it sends waiting requests, lets the library tick, and observes the role. A
call from another thread only adds to `requests`, which wakes Raft's thread.
"""

import logging
import secrets
import sqlite3
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from pysyncobj.syncobj import SyncObjException

from node.identity.cluster_id import ClusterId
from node.identity.mismatches import Mismatches
from node.raft.consensus import Consensus, ConsensusMember
from node.raft.core.changes import MembershipChange
from node.raft.core.requests import Requests
from node.raft.core.role import KnownLeadership, raft_role
from node.raft.environment import Environment
from node.raft.errors import Broken, ChangeRefused, MajorityLost, NameTaken, PortInUse, RaftError
from node.raft.founding.founding import Outlook
from node.raft.log.append_filter import CommittedConflict
from node.raft.log.log_store import open_folder
from node.raft.ports import EntryApplier, RaftOwner, RaftRole, RaftSettings, StateMachinePort
from node.raft.wire.addresses import AddressBook
from node.raft.wire.library_settings import configuration
from node.runtime.dns import Resolver
from node.telemetry.thread_lag import Worst

logger = logging.getLogger(__name__)
# Drop the library's traceback for a port in use, because the message of PortInUse suffices.
logging.getLogger("pysyncobj.syncobj").addFilter(lambda record: record.msg != "failed to perform initialization")

_FAILURES_LIMIT = 20
_HANDING_OVER_S = 0.5
_FATAL = (RaftError, CommittedConflict, sqlite3.Error)


class Raft:
    """One member's Raft. `start` opens it, `stop` closes it; other methods may be called from any thread in between.

    machine: applies the committed entries. owner: the node. cluster: this member's cluster; its `known` is set here
    once the cluster is known.

    propose, barrier, leave_out: the methods of `Requests`. role: the present role. members: the ids of all members, by
    this member's log. outlook: the reason why there is no cluster yet; None once this member belongs to one. failure:
    the error that stopped this member's Raft, if any. truncated: the number of entries that were removed from this log
    because the leader had others. turns: the number of steps of Raft's thread, which does not grow while the disk does
    not answer. mismatches: the incompatible nodes that this one has encountered.
    """

    def __init__(
        self, settings: RaftSettings, machine: StateMachinePort, owner: RaftOwner, cluster: ClusterId | None = None
    ) -> None:
        if not settings.secret:
            raise ValueError("a Raft port is never open without a secret: set ROTA_SECRET or ROTA_SECRET_FILE")
        if settings.me not in settings.addresses:
            members = ", ".join(sorted(settings.addresses))
            raise ValueError(f"the list of members does not hold {settings.me} itself: {members}")
        self.me = settings.me
        self.role = RaftRole()
        self.members: frozenset[str] = frozenset()
        self.outlook: Outlook = None
        self.failure: Exception | None = None
        self.truncated = 0
        self.lateness = Worst()
        self.turns = 0
        self._turned_s = float("inf")
        self._settings, self._timing = settings, settings.timing
        self._machine, self._owner = machine, owner
        self._cluster = cluster or ClusterId()
        self.mismatches = Mismatches(settings.me, settings.version)
        self._environment = Environment()
        self._clock = self._environment.clock
        self._book = AddressBook(dict(settings.addresses), Resolver())
        self._requests = Requests(settings.timing, machine, self._clock, self._wake)
        self.propose, self.barrier = self._requests.propose, self._requests.barrier
        self.leave_out = self._requests.leave_out
        self._applier = EntryApplier(self._requests.apply, machine.capture, machine.restore, self._term_began)
        self._lock = threading.Lock()
        self._consensus: Consensus | None = None
        self._thread: threading.Thread | None = None
        self._woken = False
        self._yielding = False
        self._stopping = False
        self._over = False

    # -- start and stop

    def start(self) -> None:
        """Open the folder, load the log and the snapshot, listen on the port, and start Raft's thread.

        Raises DamagedData, LogStoreInUse, OtherCluster, PortInUse.
        """
        me, settings = self.me, self._settings
        members = [self._book.text(member) for member in settings.addresses]
        store = open_folder(settings.folder, me, members, self._cluster.known)
        self._cluster.known = store.cluster_id
        store.journal.on_truncate = self._truncated
        store.journal.wait_for_room = lambda error: not self._stopping and self._owner.wait_for_room(error)
        host, port = settings.addresses[me]
        bind = f"{settings.bind_host or host}:{port}"
        conf = configuration(self._timing, settings.secret, bind, store.journal)
        start_id = settings.start_id or secrets.token_hex(8)
        member = ConsensusMember(
            me=me,
            book=self._book,
            timing=self._timing,
            cluster=self._cluster,
            start_id=start_id,
            mismatches=self.mismatches,
        )
        try:
            self._consensus = Consensus(member, store, conf, self._applier, self._environment)
        except SyncObjException as error:
            store.journal.close()
            raise PortInUse(f"cannot listen on {bind}: is another node running there, or the port taken?") from error
        except BaseException:
            store.journal.close()
            raise
        self._requests.open()
        self._thread = threading.Thread(target=self._run, args=(self._consensus,), name=f"raft {me}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Hand over the leadership if this member has it, and close everything.

        Open requests raise RaftStopped or OutcomeUnknown.
        """
        self._stopping = True
        self._requests.refuse()
        self._wake()
        if self._thread is not None:
            self._thread.join()

    # -- calls from other threads

    def add_member(self, member: str, address: tuple[str, int], timeout_s: float = 10.0) -> "Future[None]":
        """Add a member. The future may raise ChangeRefused, NoQuorum, OutcomeUnknown or RaftStopped."""
        self._book.put(member, address)
        change = MembershipChange("add", member, self._book.text(member), self._clock() + timeout_s)
        return self._requests.change(change)

    def remove_member(self, member: str, timeout_s: float = 10.0) -> "Future[None]":
        """Remove another member. If that member leads, it hands over first.

        A member cannot remove itself, because the result would not reach it.
        """
        change = MembershipChange("rem", member, member, self._clock() + timeout_s)
        if member == self.me:
            change.future.set_exception(ChangeRefused("a member cannot remove itself: ask another one"))
            return change.future
        return self._requests.change(change)

    def hand_over(self) -> None:
        """Transfer the leadership to another member, if this one leads. May be called in any thread."""
        self._yielding = True
        self._wake()

    def relocate(self, member: str, address: tuple[str, int]) -> None:
        """Use another address for a member from now on."""
        self._book.put(member, address)

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
                    logger.exception("a step of the Raft thread failed; trying again")
                    if failures >= _FAILURES_LIMIT:
                        raise Broken(f"{failures} steps in a row failed") from error
            self._hand_over(consensus)
        except Exception as error:
            self.failure = error
            # An error of the disk or of other members needs no traceback: its message says what to do.
            traceback = None if isinstance(error, OSError | sqlite3.Error | MajorityLost) else error
            if not isinstance(error, NameTaken):  # the owner logs it
                logger.critical("Raft has stopped on this member: %s", error, exc_info=traceback)
        finally:
            self._close(consensus)

    def _step(self, consensus: Consensus) -> None:
        self.turns += 1
        now_s = self._clock()
        self.lateness.note(now_s - self._turned_s - max(self._timing.tick_s, consensus.waited_s), now_s)
        self._turned_s = now_s
        self._woken = False
        if self.role.has_quorum and consensus.leader_node() is not None:
            self._requests.send(consensus, now_s)
        self._requests.found_without(consensus)
        consensus.tick(self._timing.tick_s if self._requests.under_way else self._timing.quiet_s)
        consensus.join_cluster(self._machine.cluster_id)
        now_s = self._clock()
        self._observe(consensus, now_s)
        self._requests.step(consensus, now_s)
        if self._yielding:
            self._yielding = False
            if consensus.is_leader and len(consensus.members()) > 1:
                consensus.transferLeadership()

    def _observe(self, consensus: Consensus, now_s: float) -> None:
        """Publish the members, the outlook and the role. If the leader or term is new, send open requests again."""
        self.members = frozenset(consensus.members())
        self.outlook = consensus.inquiry.outlook
        leader = consensus.leader_node()
        seen = KnownLeadership(
            term=consensus.raftCurrentTerm,
            members=self.members,
            is_leader=consensus.is_leader,
            leader=leader.id if leader is not None else None,
            leader_heard_s=consensus.inbound.leader_heard_s,
            heard_s=consensus.transport.heard,
            applied_in_term=consensus.applied_in_term,
        )
        role = raft_role(self.me, seen, now_s, self._timing.quorum_s, was_ready=self.role.ready)
        if role == self.role:
            return
        before, self.role = self.role, role
        if role.leader is not None and (role.leader, role.term) != (before.leader, before.term):
            self._requests.leader_changed(now_s)
        self._owner.role_changed(role)

    def _term_began(self, term: int) -> None:
        """Publish a role without a leader for the new term, before any message is sent in this term."""
        self.role = RaftRole(term, None, False, False, self.role.ready)
        self._owner.role_changed(self.role)

    def _hand_over(self, consensus: Consensus) -> None:
        if not consensus.is_leader or len(consensus.members()) == 1:
            return
        consensus.transferLeadership()
        until_s = self._clock() + _HANDING_OVER_S
        while consensus.is_leader and self._clock() < until_s:
            consensus.tick(self._timing.tick_s)

    def _close(self, consensus: Consensus) -> None:
        with self._lock:
            self._over = True
        self._requests.give_up()
        try:
            consensus.close()
        except (OSError, sqlite3.Error) as error:
            logger.error("Raft's files could not be closed in good order: %s", error)  # noqa: TRY400 - no traceback
        self.role = RaftRole(term=self.role.term)
        self._owner.role_changed(self.role)
        if self.failure is not None:
            self._owner.failed(self.failure)

    def _truncated(self, entries: Sequence[Any]) -> None:
        self.truncated += len(entries)
        logger.info("truncated %d entries from %d on, which the leader does not have", len(entries), entries[0][1])
