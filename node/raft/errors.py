"""The errors of Raft. Each message tells the reader what to do."""


class RaftError(Exception):
    """The base class of Raft's errors."""


class NoQuorum(RaftError):
    """The entry was not proposed, because no leader with a majority was found in time. It is safe to try again."""


class OutcomeUnknown(RaftError):
    """The entry was proposed, and may still be committed. It is safe to try again only under the same proposal id."""


class EntryTooLarge(RaftError):
    """The proposal is larger than one Raft entry may be (`RaftTiming.entry_bytes`). Split it."""


class Overloaded(RaftError):
    """The entry was not proposed, because too many proposals wait on this member. Try again later."""


class RaftStopped(RaftError):
    """Raft was stopped, or has failed, on this member."""


class ChangeRefused(RaftError):
    """The change of membership was not made: another one is under way, or the leader cannot make it now."""


class DamagedData(RaftError):
    """The data folder is damaged. `what` names the file and its damage."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. There is no other member to catch up from: put back a copy of the data folder, or move it away "
            "and start with an empty one (docs/how-to/recover.md)"
        )
        self.what = what


class CannotOpen(RaftError):
    """The data folder cannot be used now, but is not damaged."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: check the room on its disk, and its permissions")


class UnreadableChange(RaftError):
    """A change of membership in the log has a form that this version does not know."""


class ForeignData(RaftError):
    """The data folder belongs to another member."""


class MajorityLost(RaftError):
    """Too many members have lost their logs: the others cannot tell which entries were committed."""


class PortInUse(RaftError):
    """The Raft port cannot be bound."""


class OtherCluster(RaftError):
    """The data folder belongs to a member of another cluster than the cluster to join."""


class NameTaken(RaftError):
    """Another process already runs as this member, and keeps the name."""


class Broken(RaftError):
    """This member cannot go on, for the reason in the cause. It must not acknowledge or apply an entry any more."""


class LogStoreInUse(RaftError):
    """Another process has the data folder open."""
