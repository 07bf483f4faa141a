"""The library's settings, and replacements for its factories of journals, pollers and encryptors."""

import select
from typing import Final

from pysyncobj import SyncObjConf, syncobj
from pysyncobj.journal import Journal
from pysyncobj.monotonic import monotonic
from pysyncobj.poller import POLL_EVENT_TYPE, PollPoller

from node.raft.ports import RaftTiming
from node.raft.wire.encryption import replace_encryptor
from node.raft.wire.messages import COMMAND_BYTES

BATCH_BYTES = COMMAND_BYTES
"""The library pickles an entry larger than this, and splits it wrongly. Rota's entries stay under 1 MiB."""

_NEVER = 1 << 62  # `Consensus.tick` decides when to compact

_FAILED: Final = select.POLLERR | select.POLLHUP

_create_journal = syncobj.createJournal


class TimedPoller(PollPoller):  # type: ignore[misc]  # the library ships no types
    """The library's poller, which also measures its waits. Used in one thread.

    waited_s: how long the last `poll` waited, at most its timeout. `Raft.lateness` subtracts it to measure how late
    Raft's thread is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waited_s = 0.0

    def poll(self, timeout: float) -> None:
        """Wait for events for `timeout` seconds at most, and pass them to their subscribers."""
        begun_s = monotonic()
        events = self._PollPoller__poll.poll(timeout * 1000)
        self.waited_s = min(timeout, monotonic() - begun_s)
        for descriptor, event in events:
            mask = POLL_EVENT_TYPE.READ if event & select.POLLIN else 0
            mask |= POLL_EVENT_TYPE.WRITE if event & select.POLLOUT else 0
            mask |= POLL_EVENT_TYPE.ERROR if event & _FAILED else 0
            self._PollPoller__descrToCallbacks[descriptor](descriptor, mask)


def _use_journal(journal: object) -> object:
    """Allow `SyncObjConf.journalFile` to be a journal, not only a path."""
    return journal if isinstance(journal, Journal) else _create_journal(journal)


syncobj.createJournal = _use_journal
syncobj.createPoller = lambda _kind: TimedPoller()
replace_encryptor()


def configuration(timing: RaftTiming, secret: str, bind: str, journal: Journal) -> SyncObjConf:
    """Return the library's settings. `bind` is "host:port"."""
    return SyncObjConf(
        password=secret,
        autoTick=False,
        bindAddress=bind,
        maxBindRetries=1,
        journalFile=journal,
        raftMinTimeout=timing.election_min_s,
        raftMaxTimeout=timing.election_max_s,
        appendEntriesPeriod=timing.heartbeat_s,
        appendEntriesUseBatch=False,
        appendEntriesBatchSizeBytes=BATCH_BYTES,
        leaderFallbackTimeout=timing.fallback_s,
        connectionTimeout=timing.silent_s,
        connectionRetryTime=timing.redial_s,
        dynamicMembershipChange=True,
        logCompactionMinEntries=_NEVER,
        logCompactionMinTime=_NEVER,
        sendBufferSize=256 << 10,
        recvBufferSize=256 << 10,
    )
