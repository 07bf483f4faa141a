"""Why a task has no owner: no member has its labels, none of those offers its kind, or none of these is up. Pure."""

from collections.abc import Mapping

from node.duty.advice import has_labels, lacking_labels, may_run
from node.state.value import Member, State, TaskRow


def why_unowned(state: State, row: TaskRow, unoffered: Mapping[str, str]) -> tuple[str, str]:
    """A code (no_label, no_kind, members_down, members_draining or no_owner) and a sentence.

    `unoffered` says why members do not offer the kind, as far as they have told. A lack of room is not among the
    reasons: where all members are full, the least loaded of them owns the task (`hashing.placement`).
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
    """Members whose labels and kinds are not known yet."""
    new = [member.id for member in members if not member.incarnation]
    return f"; not joined yet: {', '.join(new)}" if new else ""


def _status(member: Member) -> str:
    why_not = member.aside or member.reason or ""
    return f"{member.id} is {member.status}" + (f" ({why_not})" if why_not else "")
