"""The verdict on the cluster: all is well, or findings, which say what is wrong, since when, and where to look. Pure.

It follows from the replicated state, and from facts that only the answering node knows (`NodeSight`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from node.duty.conditions import Mark
from node.duty.overdue import Overdue
from node.http.api.cluster import MismatchView
from node.http.api.tasks import late_view
from node.raft.ports import RaftRole
from node.runtime.durations import duration
from node.runtime.plain_text import plain_line
from node.state.channel import channel_of
from node.state.majority import at_risk, down_of, joined
from node.state.outbox import ChannelRow
from node.state.times import rfc3339
from node.state.value import DownReason, Member, State
from node.web.board import Picture
from node.web.words import count

Level = Literal["well", "watch", "wrong"]
"""`watch`: somebody should know it, but all work is done. `wrong`: some work is not done."""

FindingCode = (
    Mark
    | Literal[
        "no-cluster",
        "mismatch",
        "no-quorum",
        "not-ready",
        "no-lease",
        "no-spare",
        "down",
        "aside",
        "leaving",
        "drained",
    ]
    | Literal["untold", "gave-up", "blackout"]
)
"""Identifies a finding: for tasks by their mark; for the node, members and channels by a code of its own."""

Action = Literal["undrain", "run"]
"""The action of the button beside a finding, on the finding's subject."""

LATE_S: Final = 60.0
"""A task that is overdue for less time is no fault yet: a failover, or the start of a node, takes some seconds."""

SOON_US: Final = 86_400_000_000
"""How long before its beginning a blackout is told."""

TRIES_MIN: Final = 3
"""Fewer failures in a row are no fault yet: the next try, often by another member, may well succeed."""

_DOWN: Final[dict[DownReason, tuple[Level, str]]] = {
    "silent": ("wrong", "is down: it fell silent. Others have taken its tasks over"),
    "gone": ("wrong", "is down: its process ended without a word. Others have taken its tasks over"),
    "stopped": ("watch", "is stopped. Others have taken its tasks over"),
    "new": ("watch", "was added and has not joined yet: start it"),
}


_HEADLINES: Final[dict[FindingCode, str]] = {
    "mismatch": "A node does not fit to the others",
    "no-quorum": "There is no quorum",
    "no-lease": "This node holds no lease",
    "down": "A member is down",
    "aside": "A member takes on nothing new",
    "unowned": "No member may run some tasks",
    "late": "A deadline is breached",
    "overdue": "Work is overdue",
    "failing": "The last run of a task failed",
    "degraded": "A task succeeded in part",
    "untold": "Notices cannot be sent",
}


@dataclass(frozen=True, slots=True)
class NodeSight:
    """The facts that only the answering node knows, in addition to the state."""

    #: The node's id.
    node: str
    #: Its role in Raft, and what it knows of the leader.
    role: RaftRole
    #: Whether it holds a lease.
    lease_held: bool
    #: What it waits for while it has no cluster; None: it has one.
    outlook: str | None
    #: The tasks that are overdue.
    overdue: Overdue = field(default_factory=Overdue)
    #: When its lease ended, in microseconds since the epoch; None: it holds a lease, or never held one.
    lapsed_us: int | None = None
    #: The nodes recently in contact that are incompatible with it: of another build, secret or cluster.
    mismatches: Sequence[MismatchView] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault, or one fact that somebody should know."""

    #: The finding, as a code.
    code: FindingCode
    #: How bad it is.
    level: Level
    #: The finding, as a sentence.
    text: str
    #: Since when, in microseconds since the epoch; None: not known.
    since_us: int | None = None
    #: The path of the view that shows more; None: no view does.
    look: str | None = None
    #: The label of the link to `look`.
    look_at: str = ""
    #: The action of the finding's button; None: no button.
    action: Action | None = None
    #: The member or task that the finding and its `action` are about; "": no single one.
    subject: str = ""


@dataclass(frozen=True, slots=True)
class ClusterVerdict:
    """The verdict: its findings, the worst first, and the worst level of them."""

    level: Level
    headline: str
    findings: tuple[Finding, ...]


def verdict(state: State, sight: NodeSight, picture: Picture) -> ClusterVerdict:
    """Return the verdict on `state`, as the node of `sight` sees it."""
    if sight.outlook is not None:
        found = [_no_cluster(sight, sight.outlook), *_of_mismatches(state, sight)]
        return ClusterVerdict("wrong", "There is no cluster yet", tuple(found))
    found = [
        *_of_mismatches(state, sight),
        *_of_consensus(state, sight),
        *_of_members(state),
        *_of_tasks(state, sight, picture),
        *_of_channels(state),
        *_of_blackouts(state, picture.now_us),
    ]
    found.sort(key=lambda finding: finding.level != "wrong")
    wrong = sum(finding.level == "wrong" for finding in found)
    if wrong:
        headline = _HEADLINES[found[0].code] if wrong == 1 else f"{wrong} things need attention"
        return ClusterVerdict("wrong", headline, tuple(found))
    if found:
        return ClusterVerdict("watch", "Nothing is wrong, and there is something to know", tuple(found))
    return ClusterVerdict("well", "All is well", ())


def standing_of(state: State, sight: NodeSight) -> list[Finding]:
    """Return the reasons why this node's data may be stale, or why it does nothing; [] if there are none."""
    if sight.outlook is not None:
        return [_no_cluster(sight, sight.outlook)]
    return [found for found in _of_consensus(state, sight) if found.code in ("no-quorum", "not-ready", "no-lease")]


def _no_cluster(sight: NodeSight, outlook: str) -> Finding:
    return Finding("no-cluster", "wrong", f"{sight.node} belongs to no cluster yet: {outlook}")


def _of_consensus(state: State, sight: NodeSight) -> list[Finding]:
    if not sight.role.has_quorum:
        why = "no leader is known" if sight.role.leader is None else "the leader does not answer"
        text = (
            f"{sight.node} sees no quorum ({why}): nothing can be changed and nothing new is claimed; what this page "
            "shows may be old. Start the members that are down, or ask another member"
        )
        return [Finding("no-quorum", "wrong", text, sight.lapsed_us)]
    if not sight.role.ready:
        return [Finding("not-ready", "watch", f"{sight.node} has not caught up with the log: what it shows is old")]
    if not sight.lease_held and _is_up(state, sight.node):
        text = f"{sight.node} holds no lease: its runs are frozen, and it starts none"
        return [Finding("no-lease", "wrong", text, sight.lapsed_us)]
    if at_risk(state.members):
        members = len(joined(state.members))
        up = members - len(down_of(state.members))
        text = f"{up} of {members} members are up: if one more is lost, there is no quorum"
        return [Finding("no-spare", "watch", text)]
    return []


def _of_mismatches(state: State, sight: NodeSight) -> list[Finding]:
    """Return findings on incompatible nodes. A mere claim to be a member is "wrong" only while the member is not up."""
    return [
        Finding(
            "mismatch",
            "watch" if one["code"] == "mixed" or (one["claimed"] and _is_up(state, one["member"] or "")) else "wrong",
            one["detail"],
            subject=one["member"] or "",
        )
        for one in sight.mismatches
    ]


def _is_up(state: State, node: str) -> bool:
    member = state.members.get(node)
    return member is not None and member.status != "down"


def _of_members(state: State) -> list[Finding]:
    return [
        finding for name in state.slots if name is not None and (finding := _of_member(state.members[name])) is not None
    ]


def _of_member(member: Member) -> Finding | None:
    since_us = member.since_us or None
    if member.status == "down":
        level, text = _DOWN[member.reason or "silent"]
        return Finding("down", level, f"{member.id} {text}", since_us, subject=member.id)
    if member.aside:
        text = f"{member.id} takes on nothing new: {member.aside}"
        return Finding("aside", "wrong", text, since_us, subject=member.id)
    if member.status == "draining":
        if not member.drained:
            return Finding("leaving", "watch", f"{member.id} hands its runs over and stops", since_us)
        text = f"{member.id} is drained: it gets no new runs"
        return Finding("drained", "watch", text, since_us, action="undrain", subject=member.id)
    return None


_ALSO: Final[dict[Mark, str]] = {
    "late": "a deadline of it is breached",
    "overdue": "it is overdue",
    "failing": "its last run failed",
    "degraded": "its last success was in part",
}


def _of_tasks(state: State, sight: NodeSight, picture: Picture) -> list[Finding]:
    """Put each task into the finding of its most important mark. A finding of one task also names its other marks."""
    found = []
    if unowned := picture.leading["unowned"]:
        task = _only(picture, "unowned", unowned, picture.unowned)
        who = f"{task or count(unowned, 'task')} {'has' if unowned == 1 else 'have'}"
        text = f"{who} no owner: no member that is up has the labels, the kind and the room"
        text += _also(picture, task, "unowned")
        found.append(
            Finding(code="unowned", level="wrong", text=text, since_us=None, look="tasks?show=unowned", look_at="Show")
        )
    if late := picture.leading["late"]:
        task = _only(picture, "late", late, [one.task for one in picture.late])
        which = ", ".join(view["detail"] for view in late_view(state.tasks.get(task) if task else None))
        text = f"{task or count(late, 'task')} {'is' if late == 1 else 'are'} late" + (f": {which}" if which else "")
        since_us = next((one.at_us for one in picture.late if picture.leads(one.task, "late")), None)
        action = _run_again(picture, task)
        text += _also(picture, task, "late")
        found.append(
            Finding(
                code="late",
                level="wrong",
                text=text,
                since_us=since_us,
                look="tasks?show=late",
                look_at="Show",
                action=action,
                subject=task if action else "",
            )
        )
    found += _overdue(sight, picture)
    if failing := picture.leading["failing"]:
        task = _only(picture, "failing", failing, [one.task for one in picture.failing])
        text = f"The last run of {task} failed" if task else f"The last runs of {count(failing, 'task')} failed"
        since_us = next((one.at_us for one in picture.failing if picture.leads(one.task, "failing")), None)
        action = _run_again(picture, task)
        found.append(
            Finding(
                code="failing",
                level="wrong",
                text=text,
                since_us=since_us,
                look="tasks?show=failing",
                look_at="Show",
                action=action,
                subject=task,
            )
        )
    if degraded := picture.leading["degraded"]:
        task = _only(picture, "degraded", degraded, picture.degraded)
        row = state.tasks.get(task)
        text = f"{task or count(degraded, 'task')} succeeded in part" + (f": {row.degraded}" if row else "")
        found.append(Finding(code="degraded", level="watch", text=text, look="tasks?show=degraded", look_at="Show"))
    return found


def _overdue(sight: NodeSight, picture: Picture) -> list[Finding]:
    # The node's own list of overdue tasks may be newer than the picture.
    seen = [
        task for task in sight.overdue.names if not picture.leads(task, "unowned") and not picture.leads(task, "late")
    ]
    overdue = max(picture.leading["overdue"], len(seen))
    if not overdue:
        return []
    of_it = [one for one in picture.overdue if picture.leads(one.task, "overdue")]
    task = _only(picture, "overdue", overdue, [one.task for one in of_it] or seen)
    since_us = of_it[0].at_us if of_it else None
    oldest_s = 0.0 if since_us is None else (picture.now_us - since_us) / 1e6
    if len(seen) == sight.overdue.tasks:
        oldest_s = max(oldest_s, sight.overdue.oldest_s)
    text = f"{task or count(overdue, 'task')} {'is' if overdue == 1 else 'are'} overdue, by up to {duration(oldest_s)}"
    level: Level = "wrong" if oldest_s >= LATE_S else "watch"
    text += _also(picture, task, "overdue")
    return [
        Finding(code="overdue", level=level, text=text, since_us=since_us, look="tasks?show=overdue", look_at="Show")
    ]


def _only(picture: Picture, mark: Mark, number: int, listed: Iterable[str]) -> str:
    """Return the task that a finding is about; "" if it is about several, or if the task is not among `listed`."""
    return next((task for task in listed if picture.leads(task, mark)), "") if number == 1 else ""


def _also(picture: Picture, task: str, mark: Mark) -> str:
    """Return the other marks of a finding's only task, as the rest of a sentence."""
    others = [words for other, words in _ALSO.items() if other != mark and picture.has(task, other)]
    return "".join(f"; {words}" for words in others)


def _run_again(picture: Picture, task: str) -> Action | None:
    return "run" if picture.has(task, "failing") else None


def _of_channels(state: State) -> list[Finding]:
    rows = (row for _, row in sorted(state.channels.items()))
    failing = [row for row in rows if row.tries >= TRIES_MIN and channel_of(row.packed).enabled]
    found = [_gave_up(row) for row in failing if not row.notices]
    stuck = [row for row in failing if row.notices]
    if not stuck:
        return found
    since_us = min(row.notices[0].at_us for row in stuck)
    first, waiting = stuck[0], sum(len(row.notices) for row in stuck)
    why = plain_line((first.last.error if first.last is not None else None) or "")
    where = f"channel {first.name}" if len(stuck) == 1 else f"{count(len(stuck), 'channel')}, {first.name} among them"
    text = f"{count(waiting, 'notice')} cannot be sent on {where}: {why}. Try it with: rota notify test {first.name}"
    return [Finding("untold", "wrong", text, since_us), *found]


def _of_blackouts(state: State, now_us: int) -> list[Finding]:
    """Return the blackouts that hold tasks now, those that begin within a day, and when they end."""
    found = []
    for one in sorted(state.blackouts.values(), key=lambda one: (one.from_us, one.name)):
        if now_us >= one.until_us or one.from_us > now_us + SOON_US:
            continue
        which = (
            f"tasks with {', '.join(f'{name}={value}' for name, value in one.labels)}" if one.labels else "all tasks"
        )
        active = one.from_us <= now_us
        text = f"The blackout {one.name} {'holds' if active else 'is to hold'} {which}"
        when = f"until {rfc3339(one.until_us)}" if active else f"from {rfc3339(one.from_us)} to {rfc3339(one.until_us)}"
        end = (
            f"Nothing new of these begins, but failovers and continuous work. End it with: rota blackout end {one.name}"
        )
        found.append(Finding("blackout", "watch", f"{text} {when}. {end}", one.from_us if active else None))
    return found


def _gave_up(row: ChannelRow) -> Finding:
    """Return the finding that the channel's waiting notices were given up, and that nothing was sent on it since."""
    text = f"Channel {row.name} gave up on {count(row.given_up, 'notice')}, and has sent nothing since"
    return Finding("gave-up", "watch", f"{text}. Try it with: rota notify test {row.name}", row.given_up_us)
