"""Recovery from a lost majority: the surviving member becomes a new cluster of one (docs/how-to/recover.md).

All entries of its log count as committed. Entries that the majority had committed without this member are lost. This
member's entries that may not have been committed are kept, as a new leader would keep them. The new cluster has a new
id, so that members of the old cluster that return are refused (`node.identity.cluster_id`).

The history is truncated to the end of the log. It may reach further if the log was lost and not yet fully replicated
again; the new cluster uses those later indexes for its own entries.
"""

import secrets
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from node.app.data_dir import DataDir, node_of
from node.history.file import DamagedHistory
from node.history.store import HISTORY, HistoryStore
from node.raft.log.log_store import JOURNAL
from node.raft.recovery.offline import OfflineLog
from node.replication.state_machine import StateMachine
from node.state.codec import pack_batch
from node.state.entries import Proposal, ProposalId
from node.state.members import Refound
from node.state.value import State


class NotRecoverable(Exception):
    """The folder cannot become a cluster. The message says why."""


@dataclass(frozen=True, slots=True)
class Survivor:
    """The state and the log of a stopped member."""

    #: The member's id.
    node: str
    #: The state after all entries of its log.
    state: State
    #: The Raft term of its log.
    term: int
    #: The index of the last entry of its log.
    last_index: int
    #: Whether its log has all committed entries: false if the member lost its folder and has not caught up since.
    caught_up: bool

    @property
    def others(self) -> tuple[str, ...]:
        """The other members, which the new cluster will not have, by slot."""
        return tuple(name for name in self.state.slots if name is not None and name != self.node)


def inspect(data: Path, now_us: int) -> Survivor:
    """Return the state and the log of the member with the data folder `data`. Changes nothing.

    Raises `NotRecoverable`, and the errors of `DataDir` and `OfflineLog`.
    """
    return _open_survivor(data, now_us, None)


def recover(data: Path, now_us: int) -> tuple[Survivor, str]:
    """Make the member with the data folder `data` the only one of a new cluster.

    Returns its state and log, and the new cluster's id.

    Raises as `inspect` does.
    """
    cluster_id = secrets.token_hex(8)
    return _open_survivor(data, now_us, cluster_id), cluster_id


def _open_survivor(data: Path, now_us: int, cluster_id: str | None) -> Survivor:
    node = node_of(data)
    if node is None or not (data / "raft" / JOURNAL).exists():
        raise NotRecoverable(f"{data} is not the data folder of a node that has been a member")
    with closing(DataDir(data, node, now_us)) as folder, closing(OfflineLog(folder.path / "raft", node)) as log:
        machine = StateMachine(lambda _change: None)
        log.replay(machine)
        state = machine.state
        if not state.cluster_id:
            raise NotRecoverable(f"{node} has never belonged to a founded cluster: there is nothing to recover")
        if node not in state.members or node not in log.members:
            raise NotRecoverable(f"{node} has been removed from its cluster: use the folder of another member")
        survivor = Survivor(node, state, log.term, log.last_index, log.caught_up)
        if cluster_id is not None:
            _cut_history(folder.path / HISTORY, state.index)
            entry = Refound(now_us, cluster_id, node)
            log.end_with(pack_batch([Proposal(ProposalId(node, folder.session, 1), entry)]), cluster_id)
            agreed = folder.agreed()
            folder.keep_agreed({name: at for name, at in agreed.items() if name == node})
        return survivor


def _cut_history(path: Path, index: int) -> None:
    if not path.exists():
        return
    try:
        with closing(HistoryStore(path)) as history:
            history.truncate_after(index)
    except DamagedHistory as error:
        raise NotRecoverable(str(error)) from error
    except sqlite3.Error as error:
        raise NotRecoverable(
            f"{path} cannot be truncated to the end of the log ({error}): move it away, with the finished runs in it, "
            "and run the same command again"
        ) from error
