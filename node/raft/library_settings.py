"""The library's settings, and its factories that are replaced: of journals, of pollers and of encryptors."""

from pysyncobj import SyncObjConf, syncobj
from pysyncobj.journal import Journal

from node.raft.encryption import replace_encryptor
from node.raft.messages import COMMAND_BYTES
from node.raft.poller import TimedPoller
from node.raft.ports import RaftTiming

BATCH_BYTES = COMMAND_BYTES
"""The library pickles entries beyond this, and cuts them wrongly; ours stay under 1 MiB."""

_NEVER = 1 << 62  # `Consensus.tick` says when

_create_journal = syncobj.createJournal


def _use_journal(journal: object) -> object:
    """Lets `SyncObjConf.journalFile` be a journal."""
    return journal if isinstance(journal, Journal) else _create_journal(journal)


syncobj.createJournal = _use_journal
syncobj.createPoller = lambda _kind: TimedPoller()
replace_encryptor()


def configuration(timing: RaftTiming, secret: str, bind: str, journal: Journal) -> SyncObjConf:
    """The library's settings. `bind` is "host:port"."""
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
