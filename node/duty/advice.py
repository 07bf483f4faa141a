"""Finds which members may run a task: warnings about a valid definition, and why a task has no owner. Pure.

A definition that no present member can run is accepted, because a suitable member may join later or get the labels, and
one node may allow a task that another refuses.
"""

from collections.abc import Collection, Iterable, Mapping

from node.state.calendar import Calendars, days_of
from node.state.times import rfc3339
from node.state.value import Member, State, TaskRow
from tasks.definition.cron import at_us_of
from tasks.definition.schedule import left_out_days, next_due_us
from tasks.definition.spec import At, timing


def warnings(kind: str, group: Mapping[str, str], pin: str | None, members: Iterable[Member]) -> list[str]:
    """Return a sentence for each reason why the task would wait. Members that are down count, as they may come back."""
    present = list(members)
    found: list[str] = []
    if pin is not None and pin not in {member.id for member in present}:
        found.append(f"pin: {pin} is not a member (members: {_names(present)}); the task runs elsewhere until it is")
    able = [member for member in present if has_labels(group, member)]
    if group and not able:
        found.append(f"group: {lacking_labels(group, present)}; the task waits until a member has it")
    elif able and not any(kind in member.kinds for member in able):
        found.append(f"group: no member with {_labels(group)} ({_names(able)}) offers the kind {kind}; the task waits")
    return found


def passed_time(calendars: Calendars, name: str, packed: bytes, now_us: int) -> list[str]:
    """Return a warning if a task's only time is none, so that it never runs by itself: it has passed, or falls out."""
    found = timing(packed)
    schedule, days = found.schedule, days_of(calendars, found)
    if not isinstance(schedule, At) or next_due_us(schedule, days, 0, now_us) is not None:
        return []
    if out := list(left_out_days(schedule, days, now_us, at_us_of(schedule.at))):
        return [f"schedule: {out[0]}; the task does not run by itself: give it another time, or rota run {name}"]
    at = rfc3339(at_us_of(schedule.at))
    return [f"schedule: {at} has passed; the task does not run by itself: give it another time, or rota run {name}"]


def may_run(kind: str, group: Mapping[str, str], member: Member | None) -> bool:
    """Whether a member may run a task of that kind and group."""
    return member is not None and kind in member.kinds and has_labels(group, member)


def has_labels(group: Mapping[str, str], member: Member) -> bool:
    """Whether a member has all labels of `group`."""
    return set(group.items()) <= set(member.labels)


def lacking_labels(group: Mapping[str, str], members: Collection[Member]) -> str:
    """Return a sentence on the labels of `group` that no member has, and on the values that members have instead."""
    present = {label for member in members for label in member.labels}
    absent = [(name, value) for name, value in sorted(group.items()) if (name, value) not in present]
    if not absent:
        return f"no member has all of the labels {_labels(group)}"
    described = []
    for name, value in absent:
        others = sorted({one for label, one in present if label == name})
        described.append(f"{name}={value}" + (f" (members have {name}={' or '.join(others)})" if others else ""))
    return f"no member has the label {', '.join(described)}"


def _labels(group: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(group.items()))


def _names(members: list[Member]) -> str:
    return ", ".join(sorted(member.id for member in members))


def why_unowned(state: State, row: TaskRow, unoffered: Mapping[str, str]) -> tuple[str, str]:
    """Say why a task has no owner: a code (no_label, no_kind, members_down, members_draining, no_owner), a sentence.

    `unoffered` says why members do not offer the kind, if they have reported it. A lack of room is not a reason: if all
    members are full, the least loaded of them owns the task (`hashing.placement`).
    """
    members = sorted(state.members.values(), key=lambda member: member.slot)
    group, kind = dict(row.placing.group), row.placing.kind
    able = [member for member in members if may_run(kind, group, member)]
    if any(member.status == "up" for member in able):
        return "no_owner", "no member owns it yet: the placement is being computed"
    if able:
        code = "members_down" if any(member.status == "down" for member in able) else "members_draining"
        return code, f"no member that may run it is up: {'; '.join(map(_status, able))}"
    labelled = [member for member in members if has_labels(group, member)]
    if not labelled:
        return "no_label", lacking_labels(group, members) + _not_joined(members)
    each = "; ".join(f"{member.id}: {unoffered.get(member.id) or 'it does not say why'}" for member in labelled)
    lack = f"no member{' with its labels' if group else ''} offers the kind {kind}"
    return "no_kind", f"{lack} ({each})" + _not_joined(members)


def _not_joined(members: list[Member]) -> str:
    """Return a phrase that names the members whose labels and kinds are not known yet; "" if there are none."""
    new = [member.id for member in members if not member.incarnation]
    return f"; not joined yet: {', '.join(new)}" if new else ""


def _status(member: Member) -> str:
    why_not = member.aside or member.reason or ""
    return f"{member.id} is {member.status}" + (f" ({why_not})" if why_not else "")
