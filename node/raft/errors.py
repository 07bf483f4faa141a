"""The errors of Raft. Each message tells the reader what to do."""


class RaftError(Exception):
    """Any error of this module."""


class NoQuorum(RaftError):
    """Nothing was proposed: there was no leader with a majority until the deadline. It is safe to try again."""


class OutcomeUnknown(RaftError):
    """The entry was proposed, and may still be committed. To try again is safe under the same proposal id only."""


class EntryTooLarge(RaftError):
    """The proposal is larger than one Raft entry may be (`RaftTiming.entry_bytes`). Split it."""


class Overloaded(RaftError):
    """Nothing was proposed: too many proposals wait. Try again later."""


class RaftStopped(RaftError):
    """Raft was stopped, or has failed, on this member."""


class ChangeRefused(RaftError):
    """The change of membership was not made: another one is under way, or the leader cannot make it now."""


class DamagedData(RaftError):
    """The data folder is damaged. `what` names the file, and what is wrong with it."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. There is no other member to catch up from: put back a copy of the data folder, or move it away "
            "and start with an empty one (docs/how-to/recover.md)"
        )
        self.what = what


class CannotOpen(RaftError):
    """The data folder cannot be used now; it is not damaged."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: check the room on its disk, and its permissions")


class UnreadableChange(RaftError):
    """A change of membership in the log has a form that this version does not know."""


class ForeignData(RaftError):
    """The data folder belongs to another member."""


class MajorityLost(RaftError):
    """Too many members have lost their logs: the others cannot tell what was committed."""


class PortInUse(RaftError):
    """The Raft port cannot be bound."""


class OtherCluster(RaftError):
    """The data folder belongs to a member of another cluster than the one to join."""


class NameTaken(RaftError):
    """Another process runs as this member, and was there first."""


class Broken(RaftError):
    """This member cannot go on; the cause says why. After it, nothing may be acknowledged or applied here."""


class LogStoreInUse(RaftError):
    """Another process has the data folder open."""
