"""Who is told, in a history: receivers that are slow or refuse, or whose answers get lost; and the judge of that.

What is worth telling is worked out anew here, from the committed states alone. Each notice must be heard, none that did
not come to pass, and none twice but where its sender was lost meanwhile, or the receiver's answer was.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from immutables import Map

from node.duty.telling import Send
from node.notify.teller import NotSent
from node.state.apply import Applied
from node.state.channel import EVENTS, Channel
from node.state.digest import MakeDigest
from node.state.entries import Proposal
from node.state.outbox import Notice
from node.state.value import EndedRun, Member, State
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.process import Process

_BY_NAME: Final = ("run_succeeded", "backfill_ended")
CHANNELS: Final[dict[str, Channel]] = {
    "all": Channel.model_validate(
        {
            "kind": "webhook",
            "url": "http://all/",
            "events": [event for event in EVENTS if event not in _BY_NAME],
            "group_s": 0.3,
        }
    ),
    "bad": Channel(kind="webhook", url="http://bad/", min_severity="error", group_s=2),
    "quiet": Channel.model_validate(
        {
            "kind": "webhook",
            "url": "http://quiet/",
            "events": ["run_failed", "majority_at_risk"],
            "quiet": {"from": "07:30", "to": "08:01"},
        }
    ),
}
"""The wall clocks of a history begin at 08:00 (`tests.simulation.world.BEGUN_US`)."""

ASKED_FOR: Final[dict[str, Channel]] = {
    "good": Channel(kind="webhook", url="http://good/", events=("run_failed", *_BY_NAME), group_s=0.3),
}
"""Channels of what is told only where it is asked for, in some histories (`plan.asked_for`)."""

DAILY: Final = {f"daily-{number}": 4.0 * number + 2.0 for number in range(9)}
"""Channels that have nothing but a digest, and when they are made: they are due at once, at 08:00 of the first day."""

DAILY_CHANNEL: Final = Channel.model_validate(
    {"kind": "webhook", "url": "http://daily/", "digest": {"at": "08:00", "only": True}}
)

PATIENCE_S: Final = 2.0
REFUSED, UNANSWERED, SLOW = 0.08, 0.14, 0.22
"""The shares of messages that are refused, heard without an answer, and slow; each with those before it."""

DEADLINE_SEVERITY: Final = {"breached": "error", "met": "info", "dropped": "info"}
BAD: Final = ("failed", "timed_out", "abandoned", "upstream_late")

_Fact = tuple[int, str, str]
"""The index of the entry by which it came to pass, the event, and the run, member or deadline."""


@dataclass(frozen=True, slots=True)
class _Heard:
    """By whom a notice was sent, and whether its answer got lost."""

    member: str
    incarnation: int
    unanswered: bool


class Receivers:
    """All receivers of one world, and what they should hear."""

    def __init__(self, world: World) -> None:
        self.counts: Counter[str] = Counter()
        self._world = world
        self._rng = Random(str(world.rng.getstate()))  # nothing is drawn from the world's
        self._facts: dict[str, set[_Fact]] = {name: set() for name in (*CHANNELS, *ASKED_FOR, *DAILY)}
        self._heard: dict[tuple[str, _Fact], list[_Heard]] = {}
        self._digests: dict[str, list[MakeDigest]] = {}
        self._failing: dict[tuple[str, int, str], bool] = {}
        """Whether a task fails; if it runs on each member: on which."""
        self._over: set[tuple[str, int]] = set()
        """The members' incarnations that are over by the committed state."""

    # -- what they should hear

    def watch(self, before: State, proposal: Proposal, applied: Applied) -> None:
        """One proposal has been applied."""
        after = applied.state
        entry = proposal.entry
        # What is proposed twice has the result that it had first.
        if isinstance(entry, MakeDigest) and before.channels is not after.channels:
            self._digest(entry, before, after)
        for task in applied.touched:
            if (each := after.each.get(task)) is not None:
                members = {part.member for part in each.parts}
                for key in [key for key in self._failing if key[0] == task and key[2] not in members]:
                    del self._failing[key]
        facts = [fact for one in applied.ended for fact in self._of_run(after, one)]
        facts += _of_backfills(before, after)
        if before.members is not after.members:
            for name, member in before.members.items():
                later = after.members.get(name)
                if later is None or later.status == "down" or later.incarnation != member.incarnation:
                    self._over.add((name, member.incarnation))
            facts += _of_members(before.members, after.members)
        facts += [
            (f"deadline_{one.change}", DEADLINE_SEVERITY[one.change], f"{one.task} ({one.breach.deadline})")
            for one in applied.deadlines
        ]
        for event, severity, subject in facts:
            for channel in after.channels:
                if _wants(channel, event, severity):
                    self._facts[channel].add((after.index, event, subject))

    def _digest(self, entry: MakeDigest, before: State, after: State) -> None:
        """A digest is made for each time once, and begins where the one before it ended."""
        self._facts[entry.channel].add((after.index, "digest", ""))
        self.counts["digests"] += 1
        made = self._digests.setdefault(entry.channel, [])
        if any(entry.nominal_us == one.nominal_us for one in made):
            self._world.wrong(f"{entry.channel} has two digests of {entry.nominal_us}")
        if made and before.channels[entry.channel].digest_index != made[-1].through:
            self._world.wrong(f"{entry.channel} has a digest that does not begin where the one before it ended")
        made.append(entry)

    def _of_run(self, after: State, ended: EndedRun) -> list[tuple[str, str, str]]:
        task, state = ended.run.task, ended.state
        row = after.tasks.get(task)
        if row is None or ended.run.backfill or ended.run.cancelling == "deleted" or state not in (*BAD, "succeeded"):
            return []
        key = task, row.order, ended.run.member
        failed, known = state in BAD, self._failing.get(key, False)
        self._failing[key] = failed
        if failed:
            return [("run_failed", "error", ended.run.run_id)]
        recovered = [("run_recovered", "info", ended.run.run_id)] if known else []
        return [*recovered, ("run_succeeded", "info", ended.run.run_id)]

    # -- what they hear

    async def send(self, process: "Process", message: Send) -> str:
        """A process sends a message."""
        world, rng, loop = self._world, self._rng, process.loop
        boot = world.machines[process.me].boot
        if not process.core.lease_held:
            world.wrong(f"{process.me} sends on {message.channel} without a lease")
        chance, answer = rng.random(), loop.create_future()
        on_way_s = rng.uniform(1.0, 4.0) if UNANSWERED <= chance < SLOW else rng.uniform(0.002, 0.1)

        def arrive() -> None:
            if chance >= REFUSED:
                self._hear(message, unanswered=chance < UNANSWERED)
            # The answer to a process that has died meanwhile does not reach the next one.
            if (chance < REFUSED or chance >= UNANSWERED) and world.machines[process.me].boot == boot:
                world.within(process.me, "loop", rng.uniform(0.001, 0.05), answered)

        def answered() -> None:
            if not answer.done():
                answer.set_result(chance >= REFUSED)

        world.at(world.now_s + on_way_s, arrive)
        try:
            async with asyncio.timeout(PATIENCE_S + on_way_s):
                accepted = await answer
        except TimeoutError:
            # To a process that stood still the answer may have come meanwhile: it takes it for lost all the same.
            self._doubt(message)
            raise NotSent("no answer") from None
        if not accepted:
            self.counts["refused messages"] += 1
            raise NotSent("it refused the message")
        return "200"

    def _hear(self, message: Send, *, unanswered: bool) -> None:
        by = message.permission
        self.counts["messages"] += 1
        for notice in message.notices:
            fact = (int(notice.key.partition(".")[0]), notice.event, _subject(notice))
            if fact not in self._facts[message.channel]:
                self._world.wrong(f"{message.channel} is told what did not come to pass: {notice}")
            before = self._heard.setdefault((message.channel, fact), [])
            if before:
                self.counts["heard twice"] += 1
            here = _Heard(by.member, by.incarnation, unanswered)
            if before and not any(self._excused(one) for one in (*before, here)):
                self._world.wrong(f"{message.channel} is told twice by {by.member}: {notice}; before: {before[-1]}")
            before.append(here)

    def _excused(self, heard: _Heard) -> bool:
        return heard.unanswered or (heard.member, heard.incarnation) in self._over

    def _doubt(self, message: Send) -> None:
        by = message.permission
        for heard in self._heard.values():
            for place, one in enumerate(heard):
                if (one.member, one.incarnation) == (by.member, by.incarnation):
                    heard[place] = _Heard(one.member, one.incarnation, unanswered=True)

    # -- at the end

    def waiting(self, state: State) -> list[str]:
        """The channels that still have something to tell."""
        return [name for name, row in state.channels.items() if row.notices]

    def judge(self, state: State) -> None:
        """All that came to pass has been heard, and each channel that has a digest has had one."""
        for channel in DAILY:
            if channel in state.channels and channel not in self._digests:
                self._world.wrong(f"{channel} has had no digest")
        for channel, facts in self._facts.items():
            for fact in sorted(facts):
                self.counts["notices"] += 1
                if (channel, fact) not in self._heard:
                    self._world.wrong(f"{channel} was never told of {fact}")


def _subject(notice: Notice) -> str:
    if notice.event.startswith("deadline"):
        # The text may name a blackout after that.
        return f"{notice.task} ({notice.text.rpartition('(')[2].partition(')')[0]})"
    if notice.event.startswith("backfill"):
        return notice.text.split()[1]
    return notice.run_id or notice.member


def _wants(channel: str, event: str, severity: str) -> bool:
    if channel == "quiet":
        return event in ("run_failed", "majority_at_risk")
    if channel == "good":
        return event in ("run_failed", *_BY_NAME)
    if channel in DAILY:
        return False
    return (channel == "all" and event not in _BY_NAME) or severity in ("error", "critical")


def _of_backfills(before: State, after: State) -> list[tuple[str, str, str]]:
    facts = []
    for number, row in after.backfills.items() if after.backfills is not before.backfills else ():
        was = before.backfills.get(number)
        if was is None or was.ended_us is not None:
            continue
        if row.ended_us is not None:
            facts.append(("backfill_ended", "warning" if row.failed else "info", f"{number}"))
        elif row.paused and row.why and not was.paused and row.task in after.tasks:
            facts.append(("backfill_paused", "error", f"{number}"))
    return facts


def _of_members(before: Map[str, Member], after: Map[str, Member]) -> list[tuple[str, str, str]]:
    facts = []
    for name in set(before) & set(after):
        then, now = before[name], after[name]
        if (then.status == "down") != (now.status == "down"):
            if now.status == "down":
                facts.append(("member_down", "info" if now.reason == "stopped" else "warning", name))
            elif then.reason != "new":
                facts.append(("member_up", "info", name))
        elif bool(then.aside) != bool(now.aside) and (now.aside or then.incarnation == now.incarnation):
            facts.append(("member_impaired", "error", name) if now.aside else ("member_fit", "info", name))
    then_tight, now_tight = _tight(before), _tight(after)
    if then_tight and not now_tight:
        facts.append(("majority_safe", "info", ""))
    if now_tight and not then_tight:
        orderly = all(one.reason in ("stopped", "new") for one in after.values() if one.status == "down")
        facts.append(("majority_at_risk", "warning" if orderly else "critical", ""))
    return facts


def _tight(members: Map[str, Member]) -> bool:
    old = [one for one in members.values() if one.reason != "new"]
    well = sum(one.status != "down" for one in old)
    return well < len(old) and 2 * (well - 1) <= len(old)
