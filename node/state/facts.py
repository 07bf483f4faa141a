"""Makes notices of the facts that people want to know: failed or succeeded runs, backfills, deadlines, members.

It finds them by comparing the state before and after an entry. `node.state.outbox` decides which channels send them.
"""

from collections.abc import Iterator
from typing import Any, Final

from immutables import Map

from node.state.backfill import BackfillRow
from node.state.channel import channel_of
from node.state.copying import replace
from node.state.deadlines import late_members
from node.state.draft import Draft
from node.state.majority import at_risk, down_of
from node.state.outbox import Fact
from node.state.times import rfc3339
from node.state.value import DeadlineEvent, EndedRun, Member, Run, State, TaskRow
from tasks.definition.deadlines import DeadlineName
from tasks.definition.run import HELD, RunState
from tasks.definition.spec import labels_of

SINCE_RULES: Final = 2
"""The first rules (`Lead.rules`) by which facts are noted: members of earlier versions do not note them."""

SINCE_RULES_OF: Final[dict[str, int]] = {
    "deadline_dropped": 3,
    "run_degraded": 6,
    "run_unusual": 7,
    "run_succeeded": 10,
    "backfill_ended": 10,
    "backfill_paused": 10,
}
"""For events that were added later, the first rules by which they are noted."""

RULES_HELD_UP: Final = 10
"""From these rules on, a notice of a breached deadline names the blackout that held the task up."""

_FAILED: Final[dict[RunState, str]] = {
    "failed": "failed",
    "timed_out": "timed out",
    "abandoned": "was abandoned",
    "upstream_late": "did not run",
}
_BREACHED: Final[dict[DeadlineName, str]] = {
    "start_within": "what was due at {} has not begun in time",
    "finish_within": "what was due at {} has not succeeded in time",
    "success_every": "nothing has succeeded since {}",
}
_OTHERS_SHOWN: Final = 5
_TOLD_CHARS_MAX: Final = 500


def note_facts(draft: Draft, before: State, at_us: int) -> None:
    """Put the facts of a change into the outbox of each channel that wants them.

    `before` is the state before the entry, which is stamped `at_us`.
    """
    if draft.lead.rules < SINCE_RULES:
        return
    for ended in draft.ended:
        if ended.run.backfill:
            continue  # its backfill counts how its runs end, and is told of once it is paused
        _note_ended(draft, ended)
        _note_succeeded(draft, ended)
        _note_degraded(draft, ended)
        _note_unusual(draft, ended)
    for event in draft.deadlines if draft.channels else ():
        _note_deadline(draft, event, before.tasks.get(event.task))
    if draft.backfills is not before.backfills and draft.channels:
        for number in sorted(draft.backfills):  # 40 at most
            _note_paused(draft, before.backfills.get(number), draft.backfills[number], at_us)
            _note_backfill_end(draft, before.backfills.get(number), draft.backfills[number], at_us)
    if draft.members is not before.members and draft.channels:
        for fact in _of_members(before.members, draft.members, at_us):
            draft.note(fact)


def _note_ended(draft: Draft, ended: EndedRun) -> None:
    run, state = ended.run, ended.state
    row = draft.tasks.get(run.task)
    if row is None or run.action or run.cancelling == "deleted" or not (state in _FAILED or state == "succeeded"):
        return
    failed = state in _FAILED
    part = draft.part(run)
    if run.member and part is None:  # the member takes part no more
        if not failed:
            return
    elif (part or row).failing != failed:
        if part is None:
            draft.tasks = draft.tasks.set(run.task, replace(row, failing=failed))
            each = draft.each.get(run.task)
            for one in each.parts if each is not None else ():  # it has not run on any of its members
                draft.put_part(run.task, replace(one, failing=failed))
        else:
            draft.put_part(run.task, replace(part, failing=failed))
    elif not failed:
        return
    if not draft.channels:
        return
    if failed:
        why = f": {' '.join(ended.error.split())}" if ended.error else ""
        after = f", after {_attempts(run.attempts[-1].attempt if run.attempts else 0)}"
        text = f"{_named(run)} {_FAILED[state]}{'' if state == 'upstream_late' else after}{why}"
        text += _consequence(draft, run.task)
    else:
        text = f"{_named(run)} succeeded again"
    labels = tuple(sorted(row.spec.labels.items()))
    event, severity = ("run_failed", "error") if failed else ("run_recovered", "info")
    draft.note(Fact(event, severity, ended.finished_at_us, text, run.task, run_id=run.run_id, labels=labels))  # type: ignore[arg-type]


def _note_succeeded(draft: Draft, ended: EndedRun) -> None:
    """Note a success, if a channel asks for it: most do not."""
    run, row = ended.run, draft.tasks.get(ended.run.task)
    if row is None or run.action or run.cancelling == "deleted" or ended.state != "succeeded":
        return
    if not any("run_succeeded" in channel_of(one.packed).events for one in draft.channels.values()):
        return
    attempt = run.attempts[-1].attempt if run.attempts else 1
    text = f"{_named(run)} succeeded" + (f", after {_attempts(attempt)}" if attempt > 1 else "")
    labels = tuple(sorted(row.spec.labels.items()))
    draft.note(Fact("run_succeeded", "info", ended.finished_at_us, text, run.task, run_id=run.run_id, labels=labels))


def _note_backfill_end(draft: Draft, was: BackfillRow | None, now: BackfillRow, at_us: int) -> None:
    """Note that a backfill has ended: of its runs, nothing is told."""
    if was is None or not was.open or now.open:
        return
    task = draft.tasks.get(now.task)
    # A task that was deleted had these labels when its backfill was asked for.
    labels = tuple(sorted(labels_of(now.spec_packed if task is None else task.spec_packed).items()))
    text = f"backfill {now.number} of {now.task} {_backfill_end(now)}"
    draft.note(Fact("backfill_ended", "warning" if now.failed else "info", at_us, text, now.task, labels=labels))


def _backfill_end(row: BackfillRow) -> str:
    """Say how a backfill ended, and how many of its occurrences.

    >>> from dataclasses import replace
    >>> done = BackfillRow(7, "t", 1, 9, 3, b"", 0, 9, 9, succeeded=2, failed=1, ended_us=9)
    >>> _backfill_end(done), _backfill_end(replace(done, succeeded=3, failed=0))
    ('is done: 2 of 3 occurrences succeeded, 1 failed', 'is done: 3 of 3 occurrences succeeded')
    >>> _backfill_end(replace(done, failed=0, skipped=1, cancelled=True))
    'was cancelled: 2 of 3 occurrences succeeded, 1 did not run'
    """
    how = "was cancelled" if row.cancelled else "is done"
    parts = [f"{row.succeeded} of {row.total} occurrences succeeded"]
    parts += [f"{row.failed} failed"] if row.failed else []
    parts += [f"{row.skipped} did not run"] if row.skipped else []
    return f"{how}: {', '.join(parts)}"


def _named(run: Run) -> str:
    """Name the task of a run; if it has `each`, the member too."""
    return f"{run.task} on {run.member}" if run.member else run.task


def _consequence(draft: Draft, task: str) -> str:
    """Say which tasks do not run because this one has failed: no message of their own tells that."""
    after = draft.children.get(task, ())
    stopped = [one.run.task for one in draft.ended if one.state == "upstream_failed" and one.run.task in after]
    if not stopped:
        return ""
    more = f" and {len(stopped) - _OTHERS_SHOWN} more" if len(stopped) > _OTHERS_SHOWN else ""
    return f"; so what comes after it does not run: {', '.join(stopped[:_OTHERS_SHOWN])}{more}"


def degraded_of(result: dict[str, Any] | None) -> str:
    """Return what a succeeded run left undone, by the field `degraded` of its result; "": nothing.

    >>> degraded_of({"degraded": "s3://far/nightly lacks 1"}), degraded_of({"degraded": None}), degraded_of(None)
    ('s3://far/nightly lacks 1', '', '')
    """
    said = (result or {}).get("degraded")
    return said[:_TOLD_CHARS_MAX] if isinstance(said, str) else ""


def _note_degraded(draft: Draft, ended: EndedRun) -> None:
    """Keep in the task's row what a succeeded run left undone, and note when that begins and when it is made up for."""
    run, row = ended.run, draft.tasks.get(ended.run.task)
    if row is None or run.action or run.cancelling == "deleted" or ended.state != "succeeded":
        return
    now = degraded_of(ended.result)
    part = draft.part(run)
    if run.member and part is None:
        return
    was = (part or row).degraded
    if draft.lead.rules < SINCE_RULES_OF["run_degraded"] or was == now:
        return
    if part is None:
        draft.tasks = draft.tasks.set(run.task, replace(row, degraded=now))
    else:
        draft.put_part(run.task, replace(part, degraded=now))
    if not draft.channels or (was and now):
        return
    text = f"succeeded in part: {now}" if now else "has made up for what it had left undone"
    text = f"{_named(run)} {text}"
    event, severity = ("run_degraded", "warning") if now else ("run_recovered", "info")
    labels = tuple(sorted(row.spec.labels.items()))
    draft.note(Fact(event, severity, ended.finished_at_us, text, run.task, run_id=run.run_id, labels=labels))  # type: ignore[arg-type]


def unusual_of(result: dict[str, Any] | None) -> str:
    """Return what is unusual of a succeeded run, by the field `unusual` of its result, a list; "": nothing.

    >>> unusual_of({"unusual": ["no rows in a", "it took 900 s"]}), unusual_of({"unusual": []}), unusual_of(None)
    ('no rows in a; it took 900 s', '', '')
    """
    said = (result or {}).get("unusual")
    return "; ".join(map(str, said))[:_TOLD_CHARS_MAX] if isinstance(said, list) else ""


def _note_unusual(draft: Draft, ended: EndedRun) -> None:
    """Note what is unusual of a succeeded run. It is told of each such run, because each is compared anew."""
    run, row = ended.run, draft.tasks.get(ended.run.task)
    if row is None or run.action or run.cancelling == "deleted" or ended.state != "succeeded" or not draft.channels:
        return
    said = unusual_of(ended.result)
    if not said or draft.lead.rules < SINCE_RULES_OF["run_unusual"]:
        return
    text = f"{_named(run)} succeeded, but something is unusual: {said}"
    labels = tuple(sorted(row.spec.labels.items()))
    draft.note(Fact("run_unusual", "warning", ended.finished_at_us, text, run.task, run_id=run.run_id, labels=labels))


def _note_paused(draft: Draft, was: BackfillRow | None, now: BackfillRow, at_us: int) -> None:
    """Note that a backfill was paused by itself, which has a reason; whoever pauses one by hand gives none."""
    row = draft.tasks.get(now.task)
    if was is None or was.paused or not (now.paused and now.why) or row is None:
        return
    if draft.lead.rules < SINCE_RULES_OF["backfill_paused"]:
        return
    _, run_id = now.failures[-1] if now.failed_in_row else (0, "")
    latest = f", the latest {run_id}" if run_id else ""
    text = (
        f"backfill {now.number} of {now.task} is paused, after {now.ended} of {now.total} times: {now.why}{latest}; "
        f"once that is mended, it goes on by: rota backfill resume {now.number}"
    )
    labels = tuple(sorted(row.spec.labels.items()))
    draft.note(Fact("backfill_paused", "error", at_us, text, now.task, run_id=run_id, labels=labels))


def _note_deadline(draft: Draft, event: DeadlineEvent, was: TaskRow | None) -> None:
    """Note that a deadline was breached, or is no longer breached. `was`: the task's row before the entry."""
    row, deadline = draft.tasks.get(event.task), event.breach.deadline
    known = row if row is not None else was
    if known is None or (event.change == "dropped" and draft.lead.rules < SINCE_RULES_OF["deadline_dropped"]):
        return
    labels = tuple(sorted(known.spec.labels.items()))
    if event.change == "breached":
        how = _BREACHED[deadline].format(rfc3339(event.breach.due_us))
        where = f" on {', '.join(members)}" if (members := late_members(draft, event.task, event.breach)) else ""
        text = f"{event.task} is late{where}: {how} ({deadline}){_held_up(draft, event, known)}"
        draft.note(Fact("deadline_breached", "error", event.at_us, text, event.task, labels=labels))
    elif event.change == "dropped":
        text = f"{event.task} is not late any more, without having made up for it: {_why_dropped(event, row, was)}"
        text += f" ({deadline})"
        draft.note(Fact("deadline_dropped", "info", event.at_us, text, event.task, labels=labels))
    else:
        text = f"{event.task} is not late any more ({deadline})"
        draft.note(Fact("deadline_met", "info", event.at_us, text, event.task, labels=labels))


def _held_up(draft: Draft, event: DeadlineEvent, row: TaskRow) -> str:
    """Name the blackouts that hold up what is late: it was due in them, or nothing of it may begin now."""
    if draft.lead.rules < RULES_HELD_UP or not draft.blackouts:
        return ""
    due_us = event.breach.due_us
    at_work = any(run.state in HELD for run in draft.overlapping(event.task))
    labels = set(row.spec.labels.items())
    found = [
        one
        for one in sorted(draft.blackouts.values(), key=lambda one: (one.from_us, one.name))
        if set(one.labels) <= labels
        and (
            (event.breach.deadline != "success_every" and one.from_us <= due_us < one.until_us)
            or (one.from_us <= event.at_us < one.until_us and not at_work)
        )
    ]
    if row.timing.continuous or not found:
        return ""
    said = [f"{one.name} from {rfc3339(one.from_us)} to {rfc3339(one.until_us)}" for one in found[:_OTHERS_SHOWN]]
    more = f" and {len(found) - _OTHERS_SHOWN} more" if len(found) > _OTHERS_SHOWN else ""
    return f"; held up by the blackout{'s' if len(found) > 1 else ''} {', '.join(said)}{more}"


def _why_dropped(event: DeadlineEvent, row: TaskRow | None, was: TaskRow | None) -> str:
    if row is None:
        return "it was deleted"
    if row.paused:
        return "it was paused"
    if was is not None and row.spec_packed != was.spec_packed:
        return "its definition was changed"
    return f"what was due at {rfc3339(event.breach.due_us)} was skipped, missed or cancelled"


def _attempts(count: int) -> str:
    return "1 attempt" if count == 1 else f"{count} attempts"


def _of_members(before: Map[str, Member], after: Map[str, Member], at_us: int) -> Iterator[Fact]:
    for name in sorted(after):
        known = before.get(name)
        if known is not None and known is not after[name]:
            yield from _of_member(known, after[name], at_us)
    was, now = at_risk(before), at_risk(after)
    if now and not was:
        down = down_of(after)
        orderly = all(member.reason == "stopped" for member in down)
        shown = ", ".join(member.id for member in down[:_OTHERS_SHOWN])
        more = f" and {len(down) - _OTHERS_SHOWN} more" if len(down) > _OTHERS_SHOWN else ""
        text = f"the loss of one more member would end the quorum: {len(down)} of {len(after)} are down ({shown}{more})"
        yield Fact("majority_at_risk", "warning" if orderly else "critical", at_us, text)
    if was and not now:
        yield Fact("majority_safe", "info", at_us, "the quorum survives the loss of one more member again")


def _of_member(before: Member, after: Member, at_us: int) -> Iterator[Fact]:
    name = after.id
    if after.status == "down" != before.status:
        if after.reason == "stopped":
            yield Fact("member_down", "info", at_us, f"{name} stopped in good order", member=name)
        else:
            how = "its process is gone" if after.reason == "gone" else "it is silent"
            yield Fact("member_down", "warning", at_us, f"{name} is down: {how}", member=name)
    elif before.status == "down" != after.status and before.reason != "new":
        yield Fact("member_up", "info", at_us, f"{name} is back", member=name)
    elif after.aside and not before.aside:
        yield Fact("member_impaired", "error", at_us, f"{name} takes on nothing new: {after.aside}", member=name)
    elif before.aside and not after.aside and after.incarnation == before.incarnation:
        yield Fact("member_fit", "info", at_us, f"{name} takes on work again", member=name)
