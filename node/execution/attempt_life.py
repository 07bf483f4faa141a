"""A supervisor's decisions: when to freeze, thaw, stop and kill an attempt, and how the attempt has ended. Pure.

Times (`*_s`) are in seconds on CLOCK_BOOTTIME. An `AttemptLife` is immutable: the function for each event returns a new
one, and `step` returns the acts that are due now.
"""

import signal
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, Literal

from node.execution.frames import DoneFrame, EndedFrame, FailedFrame
from node.execution.order import AttemptLimits

StopReason = Literal["cancelled", "timed_out", "handed_over", "fenced", "killed", "failed"]

_WEIGHT: Final[dict[StopReason | None, int]] = {
    None: 0,
    "handed_over": 1,
    "timed_out": 2,
    "cancelled": 3,
    "fenced": 4,
    "killed": 5,
    "failed": 6,
}
"""The weight of each reason to stop. A reason is replaced only by a reason of greater weight."""

CHECK_S: Final = 1.0
"""The pause between two checks for processes of a frozen or killed attempt that still run."""


class Act(Enum):
    """An act on the attempt's processes. `ASK`: ask the worker to stop."""

    FREEZE = auto()
    THAW = auto()
    ASK = auto()
    KILL = auto()


@dataclass(frozen=True, slots=True)
class AttemptLife:
    """The state of an attempt. Times are in seconds on CLOCK_BOOTTIME."""

    #: The end of the lease.
    deadline_s: float
    #: When the task's timeout ends the attempt; None: it has no timeout.
    timeout_at_s: float | None
    #: The member's limits of every attempt.
    limits: AttemptLimits
    #: Whether the processes are stopped because the lease has lapsed.
    frozen: bool = False
    #: Why the attempt must stop; None: it may continue.
    why: StopReason | None = None
    #: The reason with which the worker was last asked to stop; None: it was not asked.
    asked: StopReason | None = None
    #: When the attempt is killed if it has not stopped by then; None: it was not asked to stop.
    kill_at_s: float | None = None
    #: Whether the processes were sent SIGKILL.
    killed: bool = False
    #: When the processes of a frozen or killed attempt are checked again.
    check_at_s: float = 0.0
    #: The error with which the node fails the attempt; None: the node does not fail it.
    error: str | None = None


def renewed(life: AttemptLife, deadline_s: float) -> AttemptLife:
    """Note that the lease was renewed until `deadline_s`. An older renewal that arrives late changes nothing."""
    return replace(life, deadline_s=max(life.deadline_s, deadline_s))


def told_to_stop(life: AttemptLife, why: StopReason, now_s: float) -> AttemptLife:
    """Note that the attempt should stop for the reason `why`, and set the time at which it is killed otherwise.

    `killed` and `failed` give it no time to stop, `handed_over` gives it `hand_over_s`, every other reason `stop_s`.
    """
    if _WEIGHT[why] <= _WEIGHT[life.why]:
        return life
    patience_s = {"killed": 0.0, "failed": 0.0, "handed_over": life.limits.hand_over_s}.get(why, life.limits.stop_s)
    kill_at_s = now_s + patience_s
    return replace(life, why=why, kill_at_s=kill_at_s if life.kill_at_s is None else min(kill_at_s, life.kill_at_s))


def failed_by_node(life: AttemptLife, error: str, now_s: float) -> AttemptLife:
    """Note that the node fails the attempt with `error`. Of several errors, the first is kept."""
    return told_to_stop(life if life.error else replace(life, error=error), "failed", now_s)


def killing(life: AttemptLife, now_s: float) -> AttemptLife:
    """Note that the attempt is killed now. Its processes are checked again until none is left."""
    return replace(life, killed=True, check_at_s=now_s + CHECK_S / 10)


def step(life: AttemptLife, now_s: float) -> tuple[AttemptLife, list[Act]]:
    """Return the life as of `now_s`, and the acts to carry out now."""
    acts: list[Act] = []
    if life.killed:
        return (replace(life, check_at_s=now_s + CHECK_S), [Act.KILL]) if now_s >= life.check_at_s else (life, acts)
    if life.timeout_at_s is not None and now_s >= life.timeout_at_s:
        life = told_to_stop(replace(life, timeout_at_s=None), "timed_out", now_s)
    if life.kill_at_s is not None and now_s >= life.kill_at_s:
        return killing(life, now_s), [Act.KILL]
    if now_s >= life.deadline_s:
        if not life.frozen or now_s >= life.check_at_s:
            acts.append(Act.FREEZE)
            # The first check comes soon: a process may have been started while the others were being stopped.
            wait_s = CHECK_S if life.frozen else CHECK_S / 10
            life = replace(life, frozen=True, check_at_s=now_s + wait_s)
    elif life.frozen:
        acts.append(Act.THAW)
        life = replace(life, frozen=False)
    if life.why is not None and life.asked != life.why:
        acts.append(Act.ASK)
        life = replace(life, asked=life.why)
    return life, acts


def wake_s(life: AttemptLife) -> float:
    """Return the time at which to call `step` again, unless an event comes before."""
    if life.killed:
        return life.check_at_s
    times = [life.check_at_s if life.frozen else life.deadline_s, life.timeout_at_s, life.kill_at_s]
    return min(time for time in times if time is not None)


def conclude(
    life: AttemptLife, report: DoneFrame | FailedFrame | None, status: int | None, timeout_s: float | None
) -> EndedFrame:
    """Decide how the attempt ended, from the last report of its worker, if any, and the worker's exit status.

    Work that was complete before its kind saw a request to stop counts as succeeded, unless it had timed out.
    """
    if report is not None and life.why in {None, "fenced", "cancelled", "handed_over"}:
        if not report.saw_stop or life.why in {None, "fenced"}:
            return _as_reported(report)
    elif report is None and life.why in {None, "fenced"}:
        return EndedFrame("failed", None, death(status), True, None)
    error = report.error if isinstance(report, FailedFrame) else None
    match life.why:
        case "timed_out":
            return EndedFrame("timed_out", None, f"timed out after {timeout_s or 0:g} s" + _late(life), True, None)
        case "cancelled":
            return EndedFrame("cancelled", None, error or _late(life, "cancelled; ") or None, True, None)
        case "handed_over":
            # Work that was asked to stop has not failed, however it ended. The attempt's log shows how.
            return EndedFrame("handed_over", None, _late(life, "handed over; ") or None, True, None)
        case "failed":
            return EndedFrame("failed", None, life.error, True, None)
    return EndedFrame("handed_over", None, "killed by its node", True, None)


def _as_reported(report: DoneFrame | FailedFrame) -> EndedFrame:
    match report:
        case DoneFrame(result=result):
            return EndedFrame("succeeded", result, None, True, None)
        case FailedFrame(error=error, retry=retry, away=away):
            return EndedFrame("away" if away else "failed", None, error, retry, None)


def _late(life: AttemptLife, what: str = ", ") -> str:
    if not life.killed:
        return ""
    patience_s = life.limits.hand_over_s if life.why == "handed_over" else life.limits.stop_s
    return f"{what}it did not stop within {patience_s:g} s and was killed"


def death(status: int | None) -> str:
    """Describe the end of a worker without a report. `status` is its exit code; negative: a signal; None: unknown."""
    if status is None:
        return "the worker ended, and its exit status is unknown"
    if status >= 0:
        return f"the worker ended with exit code {status} before its kind returned"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = " (out of memory, or killed by hand)" if name == "SIGKILL" else ""
    return f"killed by {name}{hint}"
