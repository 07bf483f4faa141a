"""Every due time of a schedule is there once, and was dealt with when it was due, or as soon as the faults let it.

In the manner of Jepsen's checker for Chronos: what was due is worked out here, by hand, from the schedule alone, and
matched to the runs that there are and to the work that was seen. Times of work are CLOCK_BOOTTIME; `Clock` turns the
wall clock's into them. How late is too late is counted in calm time: time in which nothing was done to the cluster
and it was whole.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from bench.chaos.records import Attempt

LATE_S: Final = 15.0
"""What is due is begun within so much calm time; the last occurrence is no older than its interval and this."""

EARLY_S: Final = 0.5
"""Nothing begins so long before it is due. The machine's clock is slewed, and was read once."""

NEAR_S: Final = 5.0
"""What is decided on this long before or after a fault may be so because of it."""


@dataclass(frozen=True)
class Clock:
    """The machine's wall clock and its CLOCK_BOOTTIME, read at one moment."""

    wall: datetime
    boot_s: float

    def boot_of(self, at: datetime) -> float:
        """A time of the wall clock on CLOCK_BOOTTIME."""
        return self.boot_s + (at - self.wall).total_seconds()


Troubles = Sequence[tuple[float, float]]
"""From the strike of each fault until the cluster was whole again, in order; CLOCK_BOOTTIME."""


def calm_s(begin_s: float, end_s: float, troubles: Troubles) -> float:
    """How much of that time nothing was wrong.

    >>> calm_s(0, 10, [(2, 4), (3, 5), (9, 20)])
    6.0
    """
    calm, at_s = 0.0, begin_s
    for from_s, to_s in sorted(troubles):
        calm += max(0.0, min(from_s, end_s) - at_s)
        at_s = max(at_s, to_s)
    return calm + max(0.0, end_s - at_s)


def troubled(begin_s: float, end_s: float, troubles: Troubles) -> bool:
    """Whether there was something wrong near that time."""
    return any(from_s - NEAR_S <= end_s and to_s + NEAR_S >= begin_s for from_s, to_s in troubles)


def occurrences(task: Mapping[str, Any], runs: Iterable[Mapping[str, Any]], until: datetime) -> list[str]:
    """Every due time of a schedule, up to the last, is there once: run, skipped or missed. `until`: it was paused."""
    name, schedule = task["name"], task["schedule"]
    mine = [run for run in runs if run["task"] == name and run["trigger"] == "schedule"]
    times = sorted(datetime.fromisoformat(run["fire_at"]) for run in mine)
    found = [f"{name}: {time} is there {count} times" for time, count in Counter(times).items() if count > 1]
    for state in ("skipped", "missed"):
        there = sum(run["state"] == state for run in mine)
        if there != task[state]:
            found.append(f"{name}: {task[state]} {state} by its count, {there} in history")
    if "continuous" in schedule:
        return found
    since = datetime.fromisoformat(task["registered_at"])
    due = list(_due(schedule, since, max([since, *times])))
    found += [f"{name}: {time} was due, and there is no trace of it" for time in sorted(set(due) - set(times))]
    found += [f"{name}: {time} was not due, and is there" for time in sorted(set(times) - set(due))]
    if max([since, *times]) < until - timedelta(seconds=LATE_S + _interval_s(schedule)):
        found.append(f"{name}: nothing is there after {max([since, *times])}, and it was paused at {until}")
    return found


def _due(schedule: Mapping[str, Any], since: datetime, last: datetime) -> Iterable[datetime]:
    """By hand: `every_s` from the registration on, or each second that seven divides."""
    if "every_s" in schedule:
        step = timedelta(seconds=schedule["every_s"])
        return (since + number * step for number in range(1, int((last - since) / step) + 1))
    whole = since.replace(microsecond=0) + timedelta(seconds=1)
    seconds = (whole + timedelta(seconds=number) for number in range(int((last - whole).total_seconds()) + 1))
    return (second for second in seconds if second.second % 7 == 0)


def _interval_s(schedule: Mapping[str, Any]) -> float:
    return float(schedule.get("every_s", 7))


def in_time(
    task: Mapping[str, Any],
    runs: Iterable[Mapping[str, Any]],
    worked: Mapping[str, Sequence[Attempt]],
    clock: Clock,
    troubles: Troubles,
) -> list[str]:
    """Whether each occurrence was begun when it was due, or passed over with reason. `worked`: attempts by run."""
    name, schedule, overlap = task["name"], task["schedule"], task["overlap"]
    mine = [run for run in runs if run["task"] == name and run["trigger"] == "schedule"]
    found: list[str] = []
    free_s = 0.0
    for run in sorted(mine, key=lambda run: str(run["fire_at"])):
        due_s = clock.boot_of(datetime.fromisoformat(run["fire_at"]))
        said = f"{name}: {run['fire_at']} ({run['run_id']})"
        attempts = worked.get(run["run_id"], ())
        if run["state"] in ("missed", "skipped"):
            found += _passed_over(said, run["state"], overlap, due_s, due_s + _interval_s(schedule), free_s, troubles)
        elif attempts:
            begun_s = attempts[0].begun_s
            # Where runs do not work side by side, each waits for those before it.
            late_s = calm_s(due_s if overlap == "allow" else max(due_s, free_s), begun_s, troubles)
            if begun_s < due_s - EARLY_S:
                found.append(f"{said} was begun {due_s - begun_s:.1f} s before it was due")
            if late_s > LATE_S:
                found.append(f"{said} was begun {late_s:.1f} s of calm time after it was due")
        if run["finished_at"] is not None and run["state"] not in ("missed", "skipped"):
            # An attempt that was lost leaves its last line; its run ends with the one that took over.
            ended_s = max((attempt.last_s for attempt in attempts), default=due_s)
            free_s = max(free_s, ended_s, _finished_s(run, clock, troubles))
    return found


def _finished_s(run: Mapping[str, Any], clock: Clock, troubles: Troubles) -> float:
    """When history says that a run ended: stamped by a member, whose clock may have been moved just then."""
    at_s = clock.boot_of(datetime.fromisoformat(run["finished_at"]))
    return at_s if not troubled(at_s, at_s, troubles) else 0.0


def _passed_over(
    said: str, state: str, overlap: str, due_s: float, next_s: float, free_s: float, troubles: Troubles
) -> list[str]:
    if troubled(due_s, next_s, troubles):
        return []
    if state == "missed":
        return [f"{said} was missed, and nothing was wrong then"]
    if overlap == "allow":
        return [f"{said} was skipped, and it may work beside others"]
    if free_s + NEAR_S < due_s:
        return [f"{said} was skipped, and nothing of its task was at work then"]
    return []
