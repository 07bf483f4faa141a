"""A backfill: runs of a task for times of its schedule that are past, one row for all of them. Values, without I/O."""

from dataclasses import dataclass
from typing import Final, Literal

from node.state.copying import replace
from tasks.definition.after import ParentEnd

PARALLEL_MAX: Final = 16
"""The most occurrences of one backfill that are under way at once."""

FAILURES_KEPT: Final = 20
"""How many of its failed occurrences a backfill names: the latest ones."""

PAUSED_AFTER: Final = 5
"""A backfill is paused after this many failures in a row: the occurrences that are left would most likely fail, too."""

BackfillStatus = Literal["running", "paused", "cancelling", "done", "cancelled"]


@dataclass(frozen=True, slots=True)
class BackfillRow:
    """A backfill, from its request until it is forgotten some time after its end."""

    #: Its number, which is greater than those of all backfills before it.
    number: int
    #: The name of the task.
    task: str
    #: The first time that may be one of its occurrences, in microseconds since the epoch.
    from_us: int
    #: The first time after its occurrences, in microseconds since the epoch.
    to_us: int
    #: How many occurrences it has, as whoever asked for it counted them.
    total: int
    #: The definition when it was asked for, packed: its schedule gives the times. Runs are of the present definition.
    spec_packed: bytes
    #: A time of that schedule, if it is an interval, from which others are reckoned; in microseconds since the epoch.
    phase_us: int
    #: The time of the latest occurrence that was begun. Before the first one, the end of the range at which it begins.
    position_us: int
    #: When it was asked for, in microseconds since the epoch.
    asked_us: int
    #: How many of its occurrences may be under way at once, from 1 to 16.
    parallel: int = 1
    #: Whether the latest time comes first.
    newest_first: bool = False
    #: Whether the tasks after it run, too, each once those before it have ended.
    downstream: bool = False
    #: Who asked for it; "": not known.
    asked_by: str = ""
    #: The occurrences under way, each as its time in microseconds since the epoch and the number of its rerun.
    in_flight: tuple[tuple[int, int], ...] = ()
    #: Whether all occurrences have been begun.
    exhausted: bool = False
    #: Whether no more are begun until it is resumed.
    paused: bool = False
    #: Why it is paused, or has been cancelled; "": a client asked for that, or it is neither.
    why: str = ""
    #: Whether it was cancelled.
    cancelled: bool = False
    #: When its last occurrence ended, in microseconds since the epoch; None: it has not ended.
    ended_us: int | None = None
    #: How many occurrences succeeded.
    succeeded: int = 0
    #: How many failed: one of their runs did.
    failed: int = 0
    #: How many did not run, because their first run was cancelled.
    skipped: int = 0
    #: How many of the latest occurrences failed, without another one between them.
    failed_in_row: int = 0
    #: The latest failed occurrences, each as its time and the id of the run that failed first; 20 at most.
    failures: tuple[tuple[int, str], ...] = ()
    #: Since when its rate is measured, in microseconds since the epoch: it was asked for or resumed then.
    paced_us: int = 0
    #: How many occurrences had ended by then.
    paced_from: int = 0

    @property
    def ended(self) -> int:
        """How many of its occurrences have ended."""
        return self.succeeded + self.failed + self.skipped

    @property
    def open(self) -> bool:
        """Whether it has not ended."""
        return self.ended_us is None

    @property
    def status(self) -> BackfillStatus:
        """What it does."""
        if not self.open:
            return "cancelled" if self.cancelled else "done"
        if self.cancelled:
            return "cancelling"
        return "paused" if self.paused else "running"

    @property
    def goes_on(self) -> bool:
        """Whether more of its occurrences are to begin, now or once others have ended."""
        return self.open and not (self.cancelled or self.paused or self.exhausted)

    @property
    def begins(self) -> bool:
        """Whether another of its occurrences may begin now."""
        return self.goes_on and len(self.in_flight) < self.parallel

    def names_next(self, nominal_us: int) -> bool:
        """Whether `nominal_us` may be the time of its next occurrence."""
        if self.newest_first:
            return self.from_us <= nominal_us < self.position_us
        return self.position_us < nominal_us < self.to_us


def ended_if_over(row: BackfillRow, at_us: int) -> BackfillRow:
    """Return the row, ended at `at_us` if nothing of it is left."""
    if row.open and not row.in_flight and (row.exhausted or row.cancelled):
        return replace(row, ended_us=at_us)
    return row


def with_end_of(row: BackfillRow, generation: int, end: ParentEnd, failed_run: str, at_us: int) -> BackfillRow:
    """Return the row after all tasks of an occurrence have ended. `PAUSED_AFTER` failures in a row pause it.

    `generation` is the number of its rerun, `end` how it ended, and `failed_run` the run that failed first.
    """
    [nominal_us] = [time_us for time_us, number in row.in_flight if number == generation]
    if end == "failed":
        in_row = row.failed_in_row + 1
        stops = in_row >= PAUSED_AFTER and row.goes_on
        row = replace(
            row,
            failed=row.failed + 1,
            failed_in_row=in_row,
            failures=(*row.failures, (nominal_us, failed_run))[-FAILURES_KEPT:],
            paused=row.paused or stops,
            why=f"{in_row} occurrences in a row failed" if stops else row.why,
        )
    elif end == "succeeded":
        row = replace(row, succeeded=row.succeeded + 1, failed_in_row=0)
    else:
        row = replace(row, skipped=row.skipped + 1)
    in_flight = tuple(one for one in row.in_flight if one[1] != generation)
    return ended_if_over(replace(row, in_flight=in_flight), at_us)
