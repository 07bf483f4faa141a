"""The decisions of a supervisor: when to freeze, thaw, ask and kill, and how an attempt has ended. Pure.

Times are CLOCK_BOOTTIME seconds (`*_s`). A `AttemptLife` is a value: what happens to it gives a new one, and `step`
says what is to be done about it now.
"""

import signal
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, Literal

from node.execution.frames import Done, Ending, FailedFrame
from node.execution.order import AttemptLimits

Why = Literal["cancelled", "timed_out", "handed_over", "fenced", "killed", "failed"]

_WEIGHT: Final[dict[Why | None, int]] = {
    None: 0,
    "handed_over": 1,
    "timed_out": 2,
    "cancelled": 3,
    "fenced": 4,
    "killed": 5,
    "failed": 6,
}
"""A reason to stop gives way to a weightier one only."""

LOOK_S: Final = 1.0
"""How often a frozen or killed attempt's processes are looked through for one that lives on all the same."""


class Act(Enum):
    """What is to be done to the attempt's processes."""

    FREEZE = auto()
    THAW = auto()
    ASK = auto()
    KILL = auto()


@dataclass(frozen=True, slots=True)
class AttemptLife:
    """Where an attempt stands.

    `deadline_s` is the lease's; `kill_at_s` is when patience ends with an attempt that was asked to stop;
    `why` is the reason it was; `asked` and `killed` say what has been done; `look_at_s` is when a frozen
    or killed attempt is looked through again; `error` is what the node has it fail of.
    """

    deadline_s: float
    timeout_at_s: float | None
    limits: AttemptLimits
    frozen: bool = False
    why: Why | None = None
    asked: Why | None = None
    kill_at_s: float | None = None
    killed: bool = False
    look_at_s: float = 0.0
    error: str | None = None


def renewed(life: AttemptLife, deadline_s: float) -> AttemptLife:
    """The lease lasts until `deadline_s`. An older renewal that comes late takes nothing away."""
    return replace(life, deadline_s=max(life.deadline_s, deadline_s))


def told_to_stop(life: AttemptLife, why: Why, now_s: float) -> AttemptLife:
    """The attempt should end, for `why`. `killed` and `failed` leave it no time; `handed_over` more than the others."""
    if _WEIGHT[why] <= _WEIGHT[life.why]:
        return life
    patience_s = {"killed": 0.0, "failed": 0.0, "handed_over": life.limits.hand_over_s}.get(why, life.limits.stop_s)
    kill_at_s = now_s + patience_s
    return replace(life, why=why, kill_at_s=kill_at_s if life.kill_at_s is None else min(kill_at_s, life.kill_at_s))


def failing(life: AttemptLife, error: str, now_s: float) -> AttemptLife:
    """The attempt is to end now, as a failure: it has taken what is not its own. The first such word counts."""
    return told_to_stop(life if life.error else replace(life, error=error), "failed", now_s)


def killing(life: AttemptLife, now_s: float) -> AttemptLife:
    """The life of an attempt that is killed now. It is looked through again until nothing is left of it."""
    return replace(life, killed=True, look_at_s=now_s + LOOK_S / 10)


def step(life: AttemptLife, now_s: float) -> tuple[AttemptLife, list[Act]]:
    """What is due at `now_s`, and the life after it has been done."""
    acts: list[Act] = []
    if life.killed:
        return (replace(life, look_at_s=now_s + LOOK_S), [Act.KILL]) if now_s >= life.look_at_s else (life, acts)
    if life.timeout_at_s is not None and now_s >= life.timeout_at_s:
        life = told_to_stop(replace(life, timeout_at_s=None), "timed_out", now_s)
    if life.kill_at_s is not None and now_s >= life.kill_at_s:
        return killing(life, now_s), [Act.KILL]
    if now_s >= life.deadline_s:
        if not life.frozen or now_s >= life.look_at_s:
            acts.append(Act.FREEZE)
            # The first look comes soon: a process may have been born while the others were being stopped.
            wait_s = LOOK_S if life.frozen else LOOK_S / 10
            life = replace(life, frozen=True, look_at_s=now_s + wait_s)
    elif life.frozen:
        acts.append(Act.THAW)
        life = replace(life, frozen=False)
    if life.why is not None and life.asked != life.why:
        acts.append(Act.ASK)
        life = replace(life, asked=life.why)
    return life, acts


def wake_s(life: AttemptLife) -> float:
    """When `step` has something to do next if nothing happens before."""
    if life.killed:
        return life.look_at_s
    times = [life.look_at_s if life.frozen else life.deadline_s, life.timeout_at_s, life.kill_at_s]
    return min(time for time in times if time is not None)


def conclude(
    life: AttemptLife, report: Done | FailedFrame | None, status: int | None, timeout_s: float | None
) -> Ending:
    """How the attempt ended: from what its worker said last, if anything, and its wait status.

    Work that was complete before its kind looked at a request to stop has succeeded, unless its time was over.
    """
    if report is not None and life.why in {None, "fenced", "cancelled", "handed_over"}:
        if not report.saw_stop or life.why in {None, "fenced"}:
            return _as_reported(report)
    elif report is None and life.why in {None, "fenced"}:
        return Ending("failed", None, _death(status), True, None)
    error = report.error if isinstance(report, FailedFrame) else None
    match life.why:
        case "timed_out":
            return Ending("timed_out", None, f"timed out after {timeout_s or 0:g} s" + _late(life), True, None)
        case "cancelled":
            return Ending("cancelled", None, error or _late(life, "cancelled; ") or None, True, None)
        case "handed_over":
            return Ending("handed_over", None, error or _late(life, "handed over; ") or None, True, None)
        case "failed":
            return Ending("failed", None, life.error, True, None)
    return Ending("handed_over", None, "killed by its node", True, None)


def _as_reported(report: Done | FailedFrame) -> Ending:
    match report:
        case Done(result=result):
            return Ending("succeeded", result, None, True, None)
        case FailedFrame(error=error, retry=retry):
            return Ending("failed", None, error, retry, None)


def _late(life: AttemptLife, what: str = ", ") -> str:
    if not life.killed:
        return ""
    patience_s = life.limits.hand_over_s if life.why == "handed_over" else life.limits.stop_s
    return f"{what}it did not stop within {patience_s:g} s and was killed"


def _death(status: int | None) -> str:
    if status is None:
        return "the worker is gone without a word"
    if status >= 0:
        return f"the worker ended with exit code {status} before its kind returned"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = " (out of memory, or by hand)" if name == "SIGKILL" else ""
    return f"killed by {name}{hint}"
