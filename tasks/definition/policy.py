"""A task's policies: whether to retry, and which due occurrences to run, to queue or to skip.

Pure: each function decides from due times, counts and the current time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from tasks.definition.spec import CatchUp, Overlap

if TYPE_CHECKING:
    from tasks.definition.run import RunState
    from tasks.definition.spec import Failover, Retry

KEPT: Final = 100
"""The maximum number of runs of one task that wait because of `overlap: queue` or `catch_up: all`."""

LATENESS_S: Final = 10.0
"""`catch_up: skip` runs an occurrence if it is late by at most this time; with long leases, by more (`lateness_s`).

A failover takes at most 6 s with the default leases (docs/explanation/execution.md). So a task misses its time after an
outage of the whole cluster, but not after the loss of one member.
"""

_BEYOND_LEASES_S: Final = 6.5

AWAY_FIRST_S: Final = 5.0
"""The first pause of a run that waits for an outside service that is unreachable."""

AWAY_MAX_S: Final = 900.0
"""The longest pause of such a run."""

AWAY_ANEW_S: Final = 300.0
"""If an attempt worked for longer than this, the service was reachable, so the next pause is the first one again."""

_DOUBLINGS: Final = 8


def lateness_s(lapse_s: float) -> float:
    """Return the lateness in seconds that `catch_up: skip` allows, if a silent member's leases lapse after `lapse_s`.

    >>> lateness_s(3.5), lateness_s(60.0)
    (10.0, 66.5)
    """
    return max(LATENESS_S, lapse_s + _BEYOND_LEASES_S)


def retry_after_s(retry: "Retry", failures: int) -> float | None:
    """Return the pause in seconds after the `failures`-th failed attempt of a run; None: no retry, the run has failed.

    >>> from tasks.definition.spec import Retry
    >>> [retry_after_s(Retry(attempts=4, backoff_s=10, factor=5, max_s=60), n) for n in (1, 2, 3, 4)]
    [10.0, 50.0, 60.0, None]
    """
    if failures >= retry.attempts:
        return None
    if retry.backoff_s == 0:
        return 0.0  # otherwise a large factor would make this 0 * infinity
    try:
        growing_s = retry.backoff_s * retry.factor ** (failures - 1)
    except OverflowError:
        growing_s = retry.max_s
    return float(min(growing_s, retry.max_s))


def away_after_s(retry: "Retry", aways: int) -> float | None:
    """Return the pause in seconds after `aways` attempts in a row found a service unreachable; None: the run fails.

    The pause doubles from `AWAY_FIRST_S` to `AWAY_MAX_S`; all pauses together take `retry.away_s`.

    >>> from tasks.definition.spec import Retry
    >>> [away_after_s(Retry(), n) for n in (1, 2, 3, 8, 9, 200)]
    [5.0, 10.0, 20.0, 640.0, 900.0, None]
    >>> [away_after_s(Retry(away_s=12), n) for n in (1, 2, 3)]
    [5.0, 7.0, None]
    """
    before = aways - 1
    grown = min(before, _DOUBLINGS)
    waited_s = AWAY_FIRST_S * (2**grown - 1) + AWAY_MAX_S * (before - grown)
    left_s = retry.away_s - waited_s
    return min(AWAY_FIRST_S * 2**grown, AWAY_MAX_S, left_s) if left_s > 0 else None


def after_orphaning(failover: "Failover", orphanings: int) -> Literal["orphaned", "abandoned"]:
    """Return the state of a run after it was orphaned for the `orphanings`-th time.

    The run is abandoned after `failover.max` orphaned attempts; with a `max` of 0 or 1 it is never taken over.
    """
    if failover.resume == "abandon" or orphanings >= failover.max:
        return "abandoned"
    return "orphaned"


def rest_s(retry: "Retry", last: "RunState | None") -> float:
    """Return the pause in seconds before the next run of a continuous task, whose last run ended in the state `last`.

    After a failure it is the pause before a first retry. Without it, a task that fails at once would restart endlessly.
    """
    return retry.backoff_s if last in ("failed", "timed_out", "abandoned") else 0.0


def room_for_another(overlap: Overlap, active: int) -> bool:
    """Whether a run may begin while `active` other runs of its task are held or orphaned."""
    return overlap == "allow" or active == 0


@dataclass(frozen=True, slots=True)
class DuePlan:
    """The plan for a task's due occurrences, each in microseconds since the epoch.

    The oldest are missed or skipped. Of the later ones, several are queued, or one is claimed: at most one of `enqueue`
    and `claim` is given.
    """

    #: Occurrences to record as missed, oldest first.
    missed: tuple[int, ...] = ()
    #: Occurrences to record as skipped, oldest first.
    skipped: tuple[int, ...] = ()
    #: Occurrences to queue, oldest first.
    enqueue: tuple[int, ...] = ()
    #: The occurrence to claim; None: no occurrence.
    claim: int | None = None
    #: Whether the active run must be cancelled first. `claim` is claimed when that run has ended.
    replace: bool = False


def settle(
    overlap: Overlap,
    catch_up: CatchUp,
    due_us: Sequence[int],
    *,
    more: bool,
    active: int,
    waiting: int,
    late_us: int,
    lost: bool = False,
) -> DuePlan:
    """Decide what to do with the unhandled occurrences `due_us` of a task, all due by now, oldest first.

    `more`: later occurrences are due as well; then `due_us` must have more than `KEPT`. `active` is the number of the
    task's active runs of any kind; `waiting` of them are waiting. An occurrence due before `late_us` is late: the
    cluster stood still, or the occurrence has waited for something other than an active run or a place. `lost`: the
    member of an active run was lost, and no other has taken that run over yet. The plan may leave occurrences out; the
    caller asks again once the plan is carried out.

    - While a run is active, `overlap: skip` skips all occurrences. `replace` skips all but the latest, and cancels the
      active run for the latest, unless that is late and `catch_up` is `skip`. With `overlap: skip` and `catch_up: all`,
      occurrences wait for the active run if they fell due while nothing could run (the first one is late, or the
      active run is lost).
    - With `allow` or `queue`, or if no run is active, `catch_up` chooses: `latest` runs the latest occurrence, and
      those before it are missed; `skip` does the same, but a late occurrence is missed; `all` runs each in order, but
      no more may wait than `KEPT`, including those that wait already. `replace` treats `all` as `latest`.
    """
    if not due_us:
        return DuePlan()
    if active and overlap == "skip" and not (catch_up == "all" and (lost or due_us[0] < late_us)):
        return DuePlan(skipped=tuple(due_us))
    if active and overlap == "replace":
        if catch_up == "skip" and not more and due_us[-1] < late_us:
            return DuePlan(missed=tuple(due_us))
        return DuePlan(skipped=tuple(due_us)) if more else _replace(due_us)
    if catch_up == "all" and overlap != "replace":
        return _each(overlap, due_us, more, active, waiting)
    if more:
        return DuePlan(missed=tuple(due_us))
    *before, latest = due_us
    if catch_up == "skip" and latest < late_us:
        return DuePlan(missed=tuple(due_us))
    if before:
        return DuePlan(missed=tuple(before))
    if active and overlap == "queue":
        return _queue((latest,), waiting)
    return DuePlan(claim=latest)


def _replace(due_us: Sequence[int]) -> DuePlan:
    *before, latest = due_us
    return DuePlan(skipped=tuple(before)) if before else DuePlan(claim=latest, replace=True)


def _each(overlap: Overlap, due_us: Sequence[int], more: bool, active: int, waiting: int) -> DuePlan:
    if more or len(due_us) > KEPT:
        # More occurrences follow, so only the newest `KEPT` of these can be among the newest `KEPT` of all.
        return DuePlan(missed=tuple(due_us[: len(due_us) - KEPT]))
    if len(due_us) == 1 and (active == 0 or overlap == "allow"):
        return DuePlan(claim=due_us[0])
    return _queue(due_us, waiting)


def _queue(due_us: Sequence[int], waiting: int) -> DuePlan:
    """Plan to queue as many of the newest occurrences as there are free places, after the older ones are skipped."""
    places = max(0, KEPT - waiting)
    full = len(due_us) - places
    if full > 0:
        return DuePlan(skipped=tuple(due_us[:full]))
    return DuePlan(enqueue=tuple(due_us))
