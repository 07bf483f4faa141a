"""Each rule that Rota's promise rests on, switched off: what the simulation must notice.

A mutation takes the place of a class or a function of the product while a history is told; the product knows nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final
from unittest import mock

from node.app.core import Core
from node.control import leader_watch
from node.duty import decide
from node.duty.flight import Flight
from node.duty.step import LeaseView
from node.execution.attempt_life import Act, AttemptLife
from node.liveness import timeouts
from node.liveness.detector import Detector, _Watch
from node.liveness.lease import Lease, LeaseNow
from node.liveness.message import Beat, HeartbeatAnswer
from node.liveness.view import View
from node.raft.founding.founding import Founding
from node.raft.founding.statement import Binding, KnownCluster
from node.state import attempts, claims, deadlines, digest, facts, members, telling, windows
from node.state.attempts import Checkpoint, Finish
from node.state.claims import Claim
from node.state.digest import MakeDigest
from node.state.draft import Draft
from node.state.entries import ProposalId
from node.state.members import AddMember, Join, MarkDown
from node.state.outbox import Permission
from node.state.telling import Told
from node.state.value import Member, Result, Run, State
from tasks.definition import policy
from tasks.definition.spec import CatchUp, Failover, Overlap, Retry
from tests.simulation.backfill_mutations import BACKFILL_MUTANTS, BACKFILLS_SHOWN_BY
from tests.simulation.calendar_mutations import CALENDAR_MUTANTS, CALENDARS_SHOWN_BY
from tests.simulation.deadline_mutations import JudgesOnce, KnowsOnlyChanges, always_undecided, only_judged
from tests.simulation.disk import Disk
from tests.simulation.each_mutations import EACH_MUTANTS, EACH_SHOWN_BY
from tests.simulation.join_mutations import JOIN_MUTANTS, JOINS_SHOWN_BY
from tests.simulation.offer_mutations import OFFER_MUTANTS, OFFERS_SHOWN_BY
from tests.simulation.pool_mutations import POOL_MUTANTS, POOLS_SHOWN_BY
from tests.simulation.rules import Rules, handler, instead
from tests.simulation.template_mutations import TEMPLATE_MUTANTS, TEMPLATES_SHOWN_BY

# -- leases and verdicts (docs/explanation/leases-and-claims.md)


class ByArrival(Detector):
    """A heartbeat's arrival, not its echo, is the evidence of a majority."""

    def _evidence_s(self, beat: Beat, now_s: float) -> float | None:
        return now_s


class WithoutElectionWait(Detector):
    """A new leader counts a member's silence from its election, as if the one before it had granted nothing since."""

    def _silent_at_s(self, watch: _Watch, now_s: float) -> float:
        return watch.heard_s + self._timeouts.to_judge(now_s).silence_s


class WithoutMajority(Detector):
    """A leader grants leases whether or not a majority is with it."""

    def has_majority(self, now_s: float) -> bool:
        return True


class OwnLease(Detector):
    """A leader takes its own lease for granted."""

    def beat(self, beat: Beat, now_s: float) -> HeartbeatAnswer | None:
        answer = super().beat(beat, now_s)
        if answer is None or beat.member != answer.leader:
            return answer
        return replace(answer, lease_s=self._timeouts.to_grant(now_s).lease_s)


class WithoutLead(Detector):
    """A new leader grants and judges before its own lead entry is applied."""

    def _lead_applied(self, view: View) -> bool:
        return True


class GrantsToTheDoomed(Detector):
    """A lease is granted though a mark_down of the member is under way."""

    def _may_hold(self, beat: Beat, view: View) -> bool:
        peer = view.peers[beat.member]
        return beat.incarnation == peer.incarnation > 0 and peer.status != "down" and self._lead_applied(view)


class FromArrival(Lease):
    """A lease counts from when its answer came."""

    def answered(self, answer: HeartbeatAnswer, now_s: float) -> LeaseNow | None:
        return super().answered(replace(answer, sent_s=now_s), now_s)


def never_freezes(life: AttemptLife, now_s: float) -> tuple[AttemptLife, list[Act]]:
    """The supervisor leaves the deadline to its node."""
    return REAL_STEP(replace(life, deadline_s=float("inf")), now_s)


# -- the state


def any_leadership(draft: Draft, entry: MarkDown) -> Result:
    """A member that has led before may mark down."""
    return members.mark_down(draft, replace(entry, term=draft.lead.term))


def any_incarnation(draft: Draft, entry: MarkDown) -> Result:
    """A verdict on an incarnation is one on any."""
    member = draft.members.get(entry.member)
    return members.mark_down(draft, replace(entry, incarnation=member.incarnation if member else 0))


def any_join(draft: Draft, entry: Join) -> Result:
    """A join that was under way for long supersedes whatever has joined since."""
    member = draft.members.get(entry.member)
    return members.join(draft, replace(entry, after=member.incarnation if member else 0))


def claim_of_any(draft: Draft, entry: Claim) -> Result:
    """A claim of an incarnation that is over is taken."""
    member = draft.members.get(entry.member)
    if member is None or member.incarnation == entry.incarnation:
        return claims.claim(draft, entry)
    with mock.patch.object(claims, "_not_fit", lambda _draft, _entry: None):
        return claims.claim(draft, entry)


def claim_of_the_absent(draft: Draft, entry: Claim) -> Result:
    """A claim of a member that is draining is taken."""
    with mock.patch.object(claims, "_not_fit", lambda _draft, _entry: None):
        return claims.claim(draft, entry)


def claim_again(draft: Draft, entry: Claim) -> Result:
    """An occurrence that has been claimed is claimed again, and a run that is held is given to another."""
    row, run = draft.tasks.get(entry.task), draft.runs.get(entry.run_id or "")
    if run is not None and run.state in ("claimed", "running"):
        draft.runs = draft.runs.set(run.run_id, replace(run, state="waiting", due_us=0))
    if row is not None and entry.run_id is None and entry.fire_at_us <= row.through_us:
        draft.tasks = draft.tasks.set(entry.task, replace(row, through_us=entry.fire_at_us - 1))
    return claims.claim(draft, entry)


def checkpoint_of_any(draft: Draft, entry: Checkpoint) -> Result:
    """Whatever token a checkpoint bears, it is kept."""
    run = draft.runs.get(entry.run_id)
    return attempts.checkpoint(draft, replace(entry, token=run.token if run else 0))


def finish_of_any(draft: Draft, entry: Finish) -> Result:
    """Whatever token a finish bears, the run has ended."""
    run = draft.runs.get(entry.run_id)
    return attempts.finish(draft, replace(entry, token=run.token if run else 0))


def nothing_is_lost(draft: Draft, member: str, at_us: int) -> None:
    """A member that is marked down keeps its runs."""


def beside_the_vacant(draft: Draft, entry: AddMember) -> Result:
    """A new member takes a new slot, though one is vacant."""
    slot = len(draft.slots)
    draft.slots = (*draft.slots, entry.seed.id)
    draft.put_member(Member(entry.seed.id, slot, entry.seed.host, 1, 2, since_us=entry.at_us))
    draft.placing_changed = True
    return Result("ok", {"slot": slot})


def closing_ranks(draft: Draft, member: Member, _at_us: int) -> None:
    """When a member goes, those in later slots move up."""
    draft.members = draft.members.delete(member.id)
    draft.slots = tuple(one for one in draft.slots if one != member.id)
    draft.placing_changed = True


def known_to_nobody(_windows: Any, _proposal: ProposalId) -> Result | None:
    """A proposal that comes a second time is one more."""
    return None


def every_occurrence(overlap: Overlap, _catch_up: CatchUp, *of_it: Any, **known: Any) -> policy.DuePlan:
    """Whatever `catch_up` says, each occurrence is run, however late."""
    return policy.settle(overlap, "all", *of_it, **known)


def the_latest(overlap: Overlap, _catch_up: CatchUp, *of_it: Any, **known: Any) -> policy.DuePlan:
    """Whatever `catch_up` says, the latest occurrence is run, and no other."""
    return policy.settle(overlap, "latest", *of_it, **known)


def nothing_skipped(overlap: Overlap, catch_up: CatchUp, *of_it: Any, **known: Any) -> policy.DuePlan:
    """What finds another run active waits for it, whatever `overlap` says."""
    return policy.settle("queue" if overlap == "skip" else overlap, catch_up, *of_it, **known)


def taken_over_for_ever(_failover: Failover, _orphanings: int) -> str:
    """Nothing is ever abandoned."""
    return "orphaned"


def tried_for_ever(retry: Retry, _failures: int) -> float:
    """Nothing ever fails for good."""
    return retry.backoff_s


def not_tried_again(_retry: Retry, _failures: int) -> None:
    """What fails once has failed."""


def tried_at_once(_retry: Retry, _aways: int) -> float:
    """What does not answer is asked again without a pause."""
    return 0.0


def told_by_anybody(_state: Any, _permission: Permission) -> bool:
    """A permission to send keeps nobody else from getting one."""
    return False


def permitted_for_ever(_state: Any, _permission: Permission) -> bool:
    """A permission to send outlives the incarnation that got it."""
    return True


def any_digest(draft: Draft, entry: MakeDigest) -> Result:
    """A digest is made, whether or not another member has made it."""
    row = draft.channels.get(entry.channel)
    if row is not None and row.digest_us:
        draft.channels = draft.channels.set(row.name, replace(row, digest_us=1))
    return digest.make_digest(draft, replace(entry, since_us=1))


def all_is_told(draft: Draft, entry: Told) -> Result:
    """With a message, what has come to pass since it was sent counts as told, too."""
    result = telling.told(draft, entry)
    if result.ok and entry.end == "accepted":
        row = draft.channels[entry.channel]
        draft.channels = draft.channels.set(row.name, row.without(row.notices))
    return result


def lease_of_before(core: Core) -> LeaseView | None:
    """A lease that has lapsed is good enough to send by."""
    standing = core.standing()
    return None if standing is None else LeaseView(standing, 0)


def epoch_stays(draft: Draft, windows_now: Any) -> State:
    """A change of the members is no change of the placement."""
    before = draft.epoch
    return replace(REAL_STATE(draft, windows_now), epoch=before or 1)


def any_period(_flight: Flight, run: Run) -> "Always":
    """A claim from before a lapse is started after it."""
    return Always()


def enough_is_a_majority(founding: Founding, now_s: float) -> KnownCluster | Binding | None:
    """A majority that has nothing founds a cluster."""
    if founding.known is None and founding.news is not None:
        return founding.news
    near = [one for one in founding.statements.values() if one.free and one.roll == founding.roll]
    enough = 2 * len({founding.me, *(one.member for one in near)}) > len(founding.listed)
    return Binding(founding.roll, founding.listed, founding.without) if founding.free and enough else None


@contextmanager
def founded_by_majority() -> Iterator[None]:
    """The members of a founding need not all have nothing, nor all be bound to it."""
    with (
        mock.patch.object(Founding, "promise", enough_is_a_majority),
        mock.patch.object(Founding, "complete", property(lambda founding: founding.bound is not None)),
    ):
        yield


def keeps_its_list(_disk: Disk, _members: tuple[str, ...]) -> None:
    """A member that begins with an empty log takes its own list for the members with which the cluster's log begins."""


class Always:
    """Equal to anything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


REAL_STEP = Rules().steps
REAL_STATE = Draft.state


@contextmanager
def _no_margin() -> Iterator[None]:
    with (
        mock.patch.object(timeouts.Times, "silence_s", property(lambda times: times.lease_s)),
        mock.patch.object(timeouts.Times, "whole_s", property(lambda times: times.window_s + times.lease_s)),
    ):
        yield


MUTANTS: Final[dict[str, Rules]] = {
    "margin": Rules(without=_no_margin),
    "election-wait": Rules(detector=WithoutElectionWait),
    "majority": Rules(detector=WithoutMajority),
    "echo": Rules(detector=ByArrival),
    "sent": Rules(lease=FromArrival),
    "own-lease": Rules(detector=OwnLease),
    "lead-before-grant": Rules(detector=WithoutLead),
    "mark-down-under-way": Rules(detector=GrantsToTheDoomed),
    "leadership-named": handler(MarkDown, any_leadership),
    "incarnation-of-verdict": handler(MarkDown, any_incarnation),
    "incarnation-of-claim": handler(Claim, claim_of_any),
    "incarnation-of-join": handler(Join, any_join),
    "claim-while-draining": handler(Claim, claim_of_the_absent),
    "claim-unique": handler(Claim, claim_again),
    "claim-before-lapse": instead(Flight, "period_of", any_period),
    "supervisor-deadline": Rules(steps=never_freezes),
    "token-of-checkpoint": handler(Checkpoint, checkpoint_of_any),
    "token-of-finish": handler(Finish, finish_of_any),
    "founding-by-all": Rules(without=founded_by_majority),
    "list-of-the-leader": instead(Disk, "begin_with", keeps_its_list),
    "proposal-id": instead(windows, "recall", known_to_nobody),
    "vacant-slot": handler(AddMember, beside_the_vacant),
    "slots-kept": instead(members, "_vacate", closing_ranks),
    "orphaning": instead(members, "lose_runs", nothing_is_lost),
    "epoch": instead(Draft, "state", epoch_stays),
    "catch-up-latest": instead(decide, "settle", every_occurrence),
    "catch-up-all": instead(decide, "settle", the_latest),
    "overlap": instead(decide, "settle", nothing_skipped),
    "failover-max": instead(attempts, "after_orphaning", taken_over_for_ever),
    "retry-max": instead(attempts, "retry_after_s", tried_for_ever),
    "retry": instead(attempts, "retry_after_s", not_tried_again),
    "away": instead(attempts, "away_after_s", tried_at_once),
    "permission-to-send": instead(telling, "holds", told_by_anybody),
    "incarnation-of-permission": instead(telling, "holds", permitted_for_ever),
    "keys-of-told": handler(Told, all_is_told),
    "digest-once": handler(MakeDigest, any_digest),
    "lease-to-send": instead(Core, "lease_now", lease_of_before),
    "facts-of-the-lost": instead(facts, "_FAILED", {"failed": "failed", "timed_out": "timed out"}),
    "deadline-over": instead(deadlines, "follow", only_judged),
    "deadline-checked": instead(deadlines, "_undecided", always_undecided),
    "deadline-anew": instead(leader_watch, "DeadlineJudge", KnowsOnlyChanges),
    "deadline-again": instead(leader_watch, "DeadlineJudge", JudgesOnce),
    **JOIN_MUTANTS,
    **POOL_MUTANTS,
    **EACH_MUTANTS,
    **CALENDAR_MUTANTS,
    **BACKFILL_MUTANTS,
    **TEMPLATE_MUTANTS,
    **OFFER_MUTANTS,
}
"""By name."""

SHOWN_BY: Final[dict[str, int]] = {
    "margin": 30,
    "election-wait": 13,
    "majority": 13,
    "echo": 113,
    "sent": 44,
    "own-lease": 113,
    "lead-before-grant": 9,
    "mark-down-under-way": 127,
    "leadership-named": 10,
    "incarnation-of-verdict": 0,
    "incarnation-of-claim": 604,
    "incarnation-of-join": 15,
    "claim-while-draining": 27,
    "claim-unique": 5,
    "claim-before-lapse": 2,
    "supervisor-deadline": 7,
    "token-of-checkpoint": 33,
    "token-of-finish": 5,
    "founding-by-all": 14,
    "list-of-the-leader": 285,
    "proposal-id": 0,
    "vacant-slot": 5,
    "slots-kept": 4,
    "orphaning": 2,
    "epoch": 0,
    "catch-up-latest": 0,
    "catch-up-all": 0,
    "overlap": 0,
    "failover-max": 0,
    "retry-max": 1,
    "retry": 4,
    "away": 7,
    "permission-to-send": 171,
    "incarnation-of-permission": 18,
    "keys-of-told": 0,
    "lease-to-send": 0,
    "digest-once": 714,
    "facts-of-the-lost": 0,
    "deadline-over": 0,
    "deadline-checked": 0,
    "deadline-anew": 14,
    "deadline-again": 44,
    **JOINS_SHOWN_BY,
    **POOLS_SHOWN_BY,
    **EACH_SHOWN_BY,
    **CALENDARS_SHOWN_BY,
    **BACKFILLS_SHOWN_BY,
    **TEMPLATES_SHOWN_BY,
    **OFFERS_SHOWN_BY,
}
"""A seed whose history shows it. Once the simulation has changed, another may be searched for: the test names it."""
