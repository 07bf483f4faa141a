"""The replicated state as the API shows it: members, tasks, owners and runs as values for JSON. Pure."""

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import msgpack

from node.duty.ownership import Ownership
from node.duty.standing import TaskStanding, standing
from node.duty.why_values import Why
from node.http.bootstrap_views import catching_up
from node.http.responses.cluster import MemberView, MismatchView, SettingsView, WatchdogSettingView
from node.http.responses.placement import OwnerView, RunningOn, StandingView
from node.http.responses.runs import AttemptView, ProgressView, RunView
from node.http.responses.tasks import BreachView, HeldView, LastView, LateView, RegisteredView, TaskView
from node.http.responses.why import WhyView
from node.identity.mismatches import Mismatch
from node.peer.bootstrap import Bootstrap
from node.peer.protocol import RunProgress, url_of
from node.state.times import rfc3339, rfc3339_or_none
from node.state.took import took_us
from node.state.value import Attempt, Breach, EndedRun, Member, Outcome, Run, Settings, State, TaskRow
from tasks.definition.deadlines import DeadlineName, Deadlines, deadlines_of
from tasks.definition.run import HELD
from tasks.definition.schedule import next_due_us
from tasks.version import version

_LATE: Final[dict[DeadlineName, str]] = {
    "start_within": "not begun within {:g} s of its due time",
    "finish_within": "not succeeded within {:g} s of its due time",
    "success_every": "no run has succeeded for {:g} s",
}


def settings_view(settings: Settings) -> SettingsView:
    """The settings."""
    milli = settings.balance_slack_milli
    return {
        "balance_slack": None if milli is None else milli / 1000,
        "lease_s": settings.lease_s,
        "window_s": settings.window_s,
        "margin_s": settings.margin_s,
        "refusal_is_death": settings.refusal_is_death,
        "history_days": settings.history_days,
        "watchdog": None if settings.watchdog is None else cast(WatchdogSettingView, settings.watchdog.plain()),
    }


def held_by_member(runs: Iterable[Run]) -> dict[str, int]:
    """The number of attempts that each member holds."""
    held: dict[str, int] = {}
    for run in runs:
        if run.state in HELD and run.node is not None:
            held[run.node] = held.get(run.node, 0) + 1
    return held


def member_view(
    member: Member, load: Mapping[str, int], held: Mapping[str, int], bootstraps: Mapping[str, Bootstrap]
) -> MemberView:
    """A member. `bootstraps` are those that are known, by member."""
    return {
        "id": member.id,
        "slot": member.slot,
        "status": member.status,
        "reason": member.reason,
        "aside": member.aside or None,
        "incarnation": member.incarnation,
        "labels": dict(member.labels),
        "capacity": member.capacity,
        "kinds": sorted(member.kinds),
        "url": url_of(member.host, member.http_port),
        "since": rfc3339_or_none(member.since_us or None),
        "load": load.get(member.id, 0),
        "running": held.get(member.id, 0),
        "bootstrap": catching_up(member.id, bootstraps),
    }


def members_view(state: State, ownership: Ownership, bootstraps: Mapping[str, Bootstrap]) -> list[MemberView]:
    """All members, by slot."""
    load, held = ownership.load(), held_by_member(state.runs.values())
    return [member_view(state.members[member], load, held, bootstraps) for member in state.slots if member is not None]


def mismatch_view(mismatch: Mismatch, me: str) -> MismatchView:
    """A node that does not fit to the node `me`."""
    return {
        "member": mismatch.member or None,
        "address": mismatch.address,
        "code": mismatch.code,
        "claimed": mismatch.claimed,
        "version": mismatch.version or None,
        "detail": mismatch.sentence(me, version()),
    }


def next_fire_us(row: TaskRow, now_us: int) -> int | None:
    """When the task is due next; in the past if it is overdue and has no further time."""
    spec = row.spec
    if row.paused or not spec.enabled or spec.schedule is None:
        return None
    coming = next_due_us(spec.schedule, row.since_us, max(row.through_us, now_us))
    return coming if coming is not None else next_due_us(spec.schedule, row.since_us, row.through_us)


def task_view(row: TaskRow, owner: str | None, now_us: int) -> TaskView:
    """A task, with its definition and its owner."""
    return {**registered_view(row, now_us), "owner": owner}


def registered_view(row: TaskRow, now_us: int) -> RegisteredView:
    """A task, with its definition."""
    view: dict[str, Any] = row.spec.model_dump(mode="json")
    view.update(
        version=row.version,
        paused=row.paused,
        registered_at=rfc3339(row.registered_at_us),
        next_fire_at=rfc3339_or_none(next_fire_us(row, now_us)),
        skipped=row.skipped,
        missed=row.missed,
        last=last_view(row.last),
        late=late_view(row),
    )
    return view  # type: ignore[return-value]  # the spec's fields, which pydantic dumps as a dict of Any


def last_view(last: Outcome | None) -> LastView | None:
    """How a task's last run ended."""
    if last is None:
        return None
    return {
        "run_id": last.run_id,
        "state": last.state,
        "fire_at": rfc3339(last.fire_at_us),
        "finished_at": rfc3339(last.finished_at_us),
        "error": last.error,
    }


def late_view(row: TaskRow | None) -> list[LateView]:
    """A task's deadlines that are breached, in the order in which they were; None: it was deleted meanwhile."""
    limits = (row and deadlines_of(row.spec_packed)) or Deadlines()
    breaches = () if row is None else row.breaches
    return [
        {**breach_view(one), "limit_s": limit_s, "detail": _LATE[one.deadline].format(limit_s)}
        for one in breaches
        for limit_s in [(limits.limit_us(one.deadline) or 0) / 1e6]
    ]


def breach_view(breach: Breach) -> BreachView:
    """A deadline that is breached, or was."""
    return {
        "deadline": breach.deadline,
        "due_at": None if breach.deadline == "success_every" else rfc3339(breach.due_us),
        "since": rfc3339(breach.since_us),
    }


def running_on(state: State, task: str) -> list[RunningOn]:
    """The members that hold runs of a task."""
    runs = (state.runs[run_id] for run_id in state.runs_of.get(task, ()))
    return [{"node": run.node, "run_id": run.run_id} for run in runs if run.state in HELD and run.node is not None]


def owner_view(state: State, ownership: Ownership, task: str, now_us: int) -> OwnerView:
    """Who owns a task, and why. Raises `KeyError` if the placement does not have the task yet."""
    standings = standing(state, task, ownership.owner(task), ownership.explain(task), now_us)
    return {
        "task": task,
        "owner": ownership.owner(task),
        "running_on": running_on(state, task),
        "preference": list(ownership.preference(task)),
        "standbys": list(ownership.standbys(task)),
        "epoch": ownership.state.epoch,
        "index": state.index,
        "because": [{"node": node, "verdict": verdict} for node, verdict in ownership.explain(task)],
        "next_fire_at": rfc3339_or_none(next_fire_us(state.tasks[task], now_us)),
        "waiting": None,
        "standing": [standing_view(told) for told in standings],
    }


def standing_view(told: TaskStanding) -> StandingView:
    """A statement about a task."""
    until = rfc3339_or_none(told.until_us)
    return {"code": told.code, "detail": told.detail, "until": until, "run_id": told.run_id}


def why_view(task: str, found: Why, late: list[LateView]) -> WhyView:
    """Why a task does not run, and which of its deadlines are breached."""
    return {
        "task": task,
        "code": found.code,
        "sentence": found.sentence(task),
        "detail": found.detail,
        "remedy": found.remedy,
        "until": rfc3339_or_none(found.until_us),
        "run_id": found.run_id,
        "member": found.member,
        "runs": list(found.runs),
        "late": late,
        "steps": [{"place": step.place, "found": step.found, "ends": step.ends} for step in found.steps],
    }


def held_view(found: Why | None) -> HeldView | None:
    """Why a task is held, in a list."""
    if found is None:
        return None
    return {"code": found.code, "detail": found.detail, "until": rfc3339_or_none(found.until_us)}


def progress_view(progress: RunProgress | None) -> ProgressView | None:
    """How far an attempt is; None while it has not said so."""
    if progress is None or progress.done is None:
        return None
    return {"done": progress.done, "total": progress.total, "unit": progress.unit}


def run_view(run: Run, ended: EndedRun | None = None, progress: RunProgress | None = None) -> RunView:
    """A run, with its end (`ended`) if it has one."""
    latest = run.attempts[-1] if run.attempts else None
    series = ended.series if ended else None
    return {
        "run_id": run.run_id,
        "task": run.task,
        "kind": run.spec.kind,
        "trigger": run.trigger,
        "params": run.params,
        "action": run.action or None,
        "args": run.args,
        "fire_at": rfc3339(run.fire_at_us),
        "attempt": latest.attempt if latest else None,
        "token": latest.token if latest else None,
        "node": latest.node if latest else None,
        "state": ended.state if ended else run.state,
        "claimed_at": rfc3339(latest.claimed_at_us) if latest else None,
        "started_at": rfc3339_or_none(latest.started_at_us) if latest else None,
        "finished_at": rfc3339(ended.finished_at_us) if ended else None,
        "took_s": None if ended is None or (time_us := took_us(run, ended.finished_at_us)) is None else time_us / 1e6,
        "progress": progress_view(progress),
        "frozen_since": rfc3339_or_none(progress.frozen_since_us) if progress else None,
        "due_at": rfc3339(run.due_us)
        if ended is None and run.state in ("waiting", "orphaned") and run.due_us
        else None,
        "checkpoint": checkpoint_view(run.checkpoint),
        "result": ended.result if ended else None,
        "error": ended.error if ended else latest.error if latest else None,
        "attempts": [attempt_view(attempt) for attempt in run.attempts],
        "cancelling": run.cancelling,
        "count": series.count if series else 1,
        "last_fire_at": rfc3339(series.last_fire_at_us if series else run.fire_at_us),
        "blocked_by": (series.blocked_by or None) if series else None,
    }


def ended_view(ended: EndedRun) -> RunView:
    """A finished run."""
    return run_view(ended.run, ended)


def attempt_view(attempt: Attempt) -> AttemptView:
    """An attempt of a run."""
    return {
        "attempt": attempt.attempt,
        "node": attempt.node,
        "token": attempt.token,
        "state": attempt.state,
        "started_at": rfc3339_or_none(attempt.started_at_us),
        "finished_at": rfc3339_or_none(attempt.finished_at_us),
        "error": attempt.error,
        "log_truncated": attempt.log_truncated,
    }


def checkpoint_view(packed: bytes | None) -> Any:
    """A checkpoint, as far as JSON can express it: bytes become {"base64": ...}, other values a string."""
    if packed is None:
        return None
    try:
        return _plain(msgpack.unpackb(packed, strict_map_key=False, timestamp=3))
    except (ValueError, msgpack.UnpackException):
        return {"base64": base64.b64encode(packed).decode()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
