"""What can go wrong, by name. Each message tells the reader what to do."""


class RaftError(Exception):
    """Any of the below."""


class NoQuorum(RaftError):
    """Nothing was proposed: no leader with a majority was there until the deadline. It is safe to try again."""


class OutcomeUnknown(RaftError):
    """It was proposed, and may be committed yet. To try again is safe under the same proposal id only."""


class EntryTooLarge(RaftError):
    """The proposal is larger than one Raft entry may be (`Timing.entry_bytes`). Split it."""


class Overloaded(RaftError):
    """Nothing was proposed: too many proposals wait already. Try again later."""


class RaftStopped(RaftError):
    """Raft was stopped, or has failed, on this member."""


class ChangeRefused(RaftError):
    """The change of membership was not made: another one is under way, or the leader cannot make it now."""


class DamagedData(RaftError):
    """What is in the data folder cannot be trusted. `what` names the file, and what is wrong with it."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. There is no other member to catch up from: put back a copy of the data folder, or move it away "
            "and begin anew (RECOVERY.md)"
        )
        self.what = what


class CannotOpen(RaftError):
    """The data folder cannot be used now, and nothing is wrong with what is in it."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: see to the room on its disk, and to its permissions")


class UnreadableChange(RaftError):
    """A change of membership in the log is of no form that this version knows."""


class ForeignData(RaftError):
    """The data folder is another member's."""


class MajorityLost(RaftError):
    """Too many members have lost their logs: the others cannot tell what was committed."""


class PortInUse(RaftError):
    """The Raft port cannot be bound."""


class OtherCluster(RaftError):
    """The data folder is that of a member of another cluster than this one is to join."""


class NameTaken(RaftError):
    """Another process runs as this member, and was there first."""


class Broken(RaftError):
    """This member cannot go on: its cause says why. After it, nothing may be acknowledged or applied here."""


class LogStoreInUse(RaftError):
    """Another process has the data folder open."""
