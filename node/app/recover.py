"""The way out of a lost majority: the one member that is left goes on alone, as a new cluster (docs/how-to/recover.md).

Its log is the truth from then on, all of it: what the lost majority had committed without it is gone with them, and
what it has and they may not have committed counts, as it would under any leader. The new cluster has an id of its
own, so that a member of the old one that comes back after all is refused (`node.identity.cluster_id`).

The history is cut where the log ends. It may reach further, where the log was lost and had not been sent again in full.
What it holds of later entries did not happen in the new cluster, whose own entries have those indexes.
"""

import secrets
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from node.app.data_dir import DataDir, whose
from node.history.file import DamagedHistory
from node.history.store import HISTORY, HistoryStore
from node.raft.log_store import JOURNAL
from node.raft.offline import OfflineLog
from node.replication.state_machine import StateMachine
from node.state.codec import pack_batch
from node.state.entries import Proposal, ProposalId, Refound
from node.state.value import State


class NotRecoverable(Exception):
    """What is in the folder cannot be made a cluster. The message says why."""


@dataclass(frozen=True, slots=True)
class Survivor:
    """What a stopped member has. `state` is that after all of its log; `others` are to be lost, by slot."""

    node: str
    state: State
    term: int
    last_index: int
    caught_up: bool

    @property
    def others(self) -> tuple[str, ...]:
        """The other members, by slot."""
        return tuple(name for name in self.state.slots if name is not None and name != self.node)


def look(data: Path, now_us: int) -> Survivor:
    """What the member in folder `data` has; nothing is changed.

    Raises `NotRecoverable`, and what `DataDir` and `open_folder` raise.
    """
    return _with(data, now_us, None)


def recover(data: Path, now_us: int) -> tuple[Survivor, str]:
    """Make that member the only one of a new cluster: what it had, and the cluster's id. Raises as `look` does."""
    cluster_id = secrets.token_hex(8)
    return _with(data, now_us, cluster_id), cluster_id


def _with(data: Path, now_us: int, cluster_id: str | None) -> Survivor:
    node = whose(data)
    if node is None or not (data / "raft" / JOURNAL).exists():
        raise NotRecoverable(f"{data} is not the data folder of a node that has been a member")
    with closing(DataDir(data, node, now_us)) as folder, closing(OfflineLog(folder.path / "raft", node)) as log:
        machine = StateMachine(lambda _change: None)
        log.replay(machine)
        state = machine.state
        if not state.cluster_id:
            raise NotRecoverable(f"{node} was never told of a cluster that had been founded: there is nothing to save")
        if node not in state.members or node not in log.members:
            raise NotRecoverable(f"{node} has been removed from its cluster: take another one's folder")
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
            history.cut(index)
    except DamagedHistory as error:
        raise NotRecoverable(str(error)) from error
    except sqlite3.Error as error:
        raise NotRecoverable(
            f"{path} cannot be cut where the log ends ({error}): move it away, with the finished runs that are in it, "
            "and give the same command again"
        ) from error
