"""What members say of themselves when they are asked."""

from typing_extensions import TypedDict


class DiskView(TypedDict):
    """The file system of a member's data folder."""

    total_bytes: int
    free_bytes: int


class VitalsView(TypedDict):
    """A member, as it answered a few seconds ago at most.

    `away` says why it does not answer; the fields after it are null then, and of a member of an earlier version. A
    member that is down is not asked. `behind` is how many log entries it lacks of those that the answering node has
    applied. `clock_off_s` is how far its machine's wall clock is ahead of the time that the members agree on; null:
    they have not agreed yet. `unoffered` says why it does not offer a kind, `not_kept` what tasks on
    it are not kept from, for want of a newer kernel or by a setting.
    """

    node: str
    away: str | None
    behind: int | None
    answered_s: float | None
    version: str | None
    lease_held: bool | None
    disk: DiskView | None
    clock_off_s: float | None
    unoffered: dict[str, str] | None
    not_kept: list[str] | None


class VitalsPage(TypedDict):
    """Members, by slot."""

    items: list[VitalsView]
