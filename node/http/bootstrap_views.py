"""Bootstraps as the API shows them: values for JSON. Pure."""

from collections.abc import Mapping, Sequence

from hashing.view import Slot
from node.history.feeders import feeders, why_feeder
from node.http.responses.bootstraps import BootstrapTaskView, BootstrapView
from node.http.responses.placement import OwnerView, StandingView
from node.peer.bootstrap import Bootstrap, summary, task_of
from node.state.times import rfc3339, rfc3339_or_none
from node.state.value import State


def bootstrap_view(bootstrap: Bootstrap) -> BootstrapView:
    """How far a bootstrap is."""
    return {
        "state": "done" if bootstrap.finished_us is not None else "waiting" if bootstrap.feeder is None else "fetching",
        "feeder": bootstrap.feeder,
        "runs": bootstrap.runs,
        "fed": dict(bootstrap.fed),
        "index": bootstrap.index,
        "progress": {"done": bootstrap.indexes, "total": bootstrap.indexes_total, "unit": "indexes"},
        "runs_per_s": round(bootstrap.runs_per_s, 1),
        "started_at": rfc3339(bootstrap.started_us),
        "finished_at": rfc3339_or_none(bootstrap.finished_us),
        "waiting": bootstrap.waiting,
    }


def catching_up(member: str, known: Mapping[str, Bootstrap]) -> BootstrapView | None:
    """The bootstrap of a member that lacks finished runs; None if it lacks none, as far as is known."""
    bootstrap = known.get(member)
    return None if bootstrap is None or bootstrap.finished_us is not None else bootstrap_view(bootstrap)


def bootstraps_view(state: State, known: Mapping[str, Bootstrap]) -> list[BootstrapTaskView]:
    """The bootstraps of all members, by slot."""
    slots = state.seats()
    return [bootstrap_task_view(slots, member, known.get(member)) for member in state.slots if member is not None]


def bootstrap_task_view(slots: Sequence[Slot], member: str, latest: Bootstrap | None) -> BootstrapTaskView:
    """The bootstrap of one member."""
    order = feeders(slots, member)
    return {
        "task": task_of(member),
        "member": member,
        "owner": order[0] if order else None,
        "preference": order,
        "latest": None if latest is None else bootstrap_view(latest),
    }


def bootstrap_owner_view(state: State, slots: Sequence[Slot], member: str, latest: Bootstrap | None) -> OwnerView:
    """Who feeds a member, as the owner of a task is shown. `slots` may be supposed ones, with members down."""
    order, task = feeders(slots, member), task_of(member)
    feeder = None if latest is None else latest.feeder
    return {
        "task": task,
        "owner": order[0] if order else None,
        "running_on": [] if feeder is None else [{"node": feeder, "run_id": task}],
        "preference": order,
        "standbys": [],
        "epoch": state.epoch,
        "index": state.index,
        "because": [{"node": node, "verdict": verdict} for node, verdict in why_feeder(slots, member)],
        "next_fire_at": None,
        "waiting": None if latest is None else latest.waiting,
        "standing": [_standing(member, latest)],
    }


def _standing(member: str, latest: Bootstrap | None) -> StandingView:
    if latest is None:
        code, detail = "not_due", f"{member} lacks no finished runs, as far as is known here"
    elif latest.finished_us is not None:
        code, detail = "not_due", f"{member} lacks no finished runs; it has fetched {summary(latest)}"
    elif latest.feeder is None:
        code, detail = "due", f"{member} lacks finished runs, and waits: {latest.waiting}"
    else:
        code = "running"
        detail = (
            f"{latest.feeder} sends {member} the finished runs that it lacks: {latest.indexes:,} of "
            f"{latest.indexes_total:,} indexes, {summary(latest)}"
        )
    return {"code": code, "detail": detail, "until": None, "run_id": None}
