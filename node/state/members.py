"""Entries about members: who they are, their slots, the leader, and whether each member is up, down or draining."""

import re
from dataclasses import dataclass
from typing import Final

from node.state.attempts import lose_runs
from node.state.copying import replace
from node.state.draft import DONE, Draft, refused
from node.state.each import forget_member
from node.state.entries import Entry, Seed, applies
from node.state.places import NO_PLACES
from node.state.value import DownReason, Labels, Lead, Member, Result
from tasks.definition.spec import NAME_PATTERN

MEMBERS_MAX: Final = 1024
CAPACITY_MAX: Final = 1_000_000
TOKENS_UNSEEN: Final = 1_000_000_000
"""A number surely greater than that of the tokens that lost members gave without the remaining member's knowledge."""

_TEXT_MAX: Final = 255
_PORT_MAX: Final = 65_535
_MANY_MAX: Final = 1000
_NAME: Final = re.compile(NAME_PATTERN)


@dataclass(frozen=True, slots=True)
class FoundCluster(Entry):
    """The first entry of a cluster: its id, and its members by slot. Refused if the cluster is founded already."""

    cluster_id: str
    members: tuple[Seed, ...]


@applies(FoundCluster, code=1)
def found_cluster(draft: Draft, entry: FoundCluster) -> Result:
    """Found the cluster. Result: `{"cluster_id"}`."""
    if draft.cluster_id:
        return refused("founded", f"this is cluster {draft.cluster_id} already")
    if not 0 < len(entry.cluster_id) <= _TEXT_MAX:
        return refused("invalid", f"a cluster id has 1 to {_TEXT_MAX} characters")
    ids = [seed.id for seed in entry.members]
    if not ids or len(ids) > MEMBERS_MAX or len(set(ids)) < len(ids):
        return refused("invalid", f"a cluster has 1 to {MEMBERS_MAX} members, each named once")
    for slot, seed in enumerate(entry.members):
        if (fault := _seed_fault(seed)) is not None:
            return refused("invalid", fault)
        draft.put_member(_new_member(seed, slot, entry.at_us))
    draft.cluster_id = entry.cluster_id
    draft.slots = tuple(ids)
    draft.placing_changed = True
    return Result("ok", {"cluster_id": entry.cluster_id})


@dataclass(frozen=True, slots=True)
class Refound(Entry):
    """The cluster has lost its majority for good: `member` continues alone, as cluster `cluster_id`.

    `rota cluster recover` writes it into the log of that member; it is never proposed. All other members are removed,
    and their runs orphaned.
    """

    cluster_id: str
    member: str


@applies(Refound, code=20)
def refound(draft: Draft, entry: Refound) -> Result:
    """Continue with one member as a new cluster, and vacate the slots of the others. Result: `{"cluster_id"}`."""
    if entry.member not in draft.members:
        return _no_such_member(entry.member)
    if not 0 < len(entry.cluster_id) <= _TEXT_MAX or entry.cluster_id == draft.cluster_id:
        return refused("invalid", f"a new cluster has a new id, of 1 to {_TEXT_MAX} characters")
    for member in sorted(draft.members.values(), key=lambda member: member.slot):
        if member.id != entry.member:
            lose_runs(draft, member.id, entry.at_us)
            _vacate(draft, member, entry.at_us)
    draft.cluster_id = entry.cluster_id
    draft.token += TOKENS_UNSEEN
    return Result("ok", {"cluster_id": entry.cluster_id})


@dataclass(frozen=True, slots=True)
class TakeLead(Entry):
    """`member` leads since `term`. Proposed on election; refused if a `TakeLead` of a later term was applied.

    `rules` is the newest number of rules that the member's version knows (`node.state.value.Lead`).
    """

    member: str
    term: int
    rules: int = 0


@applies(TakeLead, code=2)
def take_lead(draft: Draft, entry: TakeLead) -> Result:
    """Note that a member leads since a term. Refused if another member led in that term, or in a later one."""
    if entry.member not in draft.members:
        return _no_such_member(entry.member)
    lead = Lead(entry.term, entry.member, max(entry.rules, draft.lead.rules))
    if lead == draft.lead:
        return DONE
    if entry.term <= draft.lead.term:
        return refused("leadership", f"{draft.lead.member} leads since term {draft.lead.term}")
    draft.lead = lead
    if entry.rules:
        draft.count_all()
    return DONE


@dataclass(frozen=True, slots=True)
class Join(Entry):
    """A member starts, or comes back after it was marked down. It gets a new incarnation; its active runs are orphaned.

    Result: `{"incarnation": n}`.
    """

    #: The member's id.
    member: str
    #: The host at which others reach it.
    host: str
    #: Its port for Raft.
    raft_port: int
    #: Its port for the API.
    http_port: int
    #: Its port for heartbeats.
    heartbeat_port: int
    #: Its labels as sorted pairs.
    labels: Labels
    #: Its capacity, from 1 to 1,000,000.
    capacity: int
    #: The kinds that it offers.
    kinds: tuple[str, ...]
    #: The last incarnation that the member knew of. If the state has a later one, the entry is refused, so that a
    #: delayed entry cannot supersede the present incarnation.
    after: int


@applies(Join, code=3)
def join(draft: Draft, entry: Join) -> Result:
    """Start a new incarnation of a member, and orphan the runs of the earlier one. Result: `{"incarnation"}`."""
    member = draft.members.get(entry.member)
    if member is None:
        return _no_such_member(entry.member)
    fault = _address_fault(entry.host, entry.raft_port, entry.http_port, entry.heartbeat_port) or _offer_fault(entry)
    if fault is not None:
        return refused("invalid", fault)
    if member.leaving:
        return refused("leaving", f"{member.id} is being removed; undrain it if it is to stay")
    if entry.after != member.incarnation:
        return refused("incarnation", f"{member.id} is in incarnation {member.incarnation}, not {entry.after}")
    joined = replace(
        member,
        host=entry.host,
        raft_port=entry.raft_port,
        http_port=entry.http_port,
        heartbeat_port=entry.heartbeat_port,
        status="draining" if member.drained else "up",
        reason=None,
        aside="",
        incarnation=member.incarnation + 1,
        labels=tuple(sorted(entry.labels)),
        capacity=entry.capacity,
        kinds=frozenset(entry.kinds),
        places=NO_PLACES,
    )
    _replace(draft, member, joined, entry.at_us)
    lose_runs(draft, member.id, entry.at_us)
    return Result("ok", {"incarnation": joined.incarnation})


@dataclass(frozen=True, slots=True)
class AddMember(Entry):
    """Add a member in the lowest vacant slot, or in a new slot. It is down, for the reason `new`, until it joins."""

    seed: Seed


@applies(AddMember, code=4)
def assign_slot(draft: Draft, entry: AddMember) -> Result:
    """Give a new member the lowest vacant slot, or a new one. Result: `{"slot"}`."""
    if (fault := _seed_fault(entry.seed)) is not None:
        return refused("invalid", fault)
    if entry.seed.id in draft.members:
        return refused("exists", f"{entry.seed.id} is a member already: remove it first, or choose another id")
    if None in draft.slots:
        slot = draft.slots.index(None)
        draft.slots = (*draft.slots[:slot], entry.seed.id, *draft.slots[slot + 1 :])
    elif len(draft.slots) < MEMBERS_MAX:
        slot = len(draft.slots)
        draft.slots = (*draft.slots, entry.seed.id)
    else:
        return refused("invalid", f"a cluster has {MEMBERS_MAX} members at most")
    draft.put_member(_new_member(entry.seed, slot, entry.at_us))
    draft.placing_changed = True
    return Result("ok", {"slot": slot})


@dataclass(frozen=True, slots=True)
class RemoveMember(Entry):
    """Remove a member for good, and vacate its slot.

    A member that is not down may hold a lease, and its work may run until the lease ends. So it becomes `leaving`: it
    gets no new work, and is removed when it is marked down. Result: `{"gone"}`: whether it was removed at once.
    """

    member: str


@applies(RemoveMember, code=5)
def vacate_slot(draft: Draft, entry: RemoveMember) -> Result:
    """Remove a member for good, at once or when it is down; its slot stays, vacant. Result: `{"gone"}`."""
    member = draft.members.get(entry.member)
    if member is None:
        return _no_such_member(entry.member)
    if len(draft.members) == 1:
        return refused("invalid", f"{entry.member} is the last member, and cannot leave")
    if member.status == "down":
        _vacate(draft, member, entry.at_us)
        return Result("ok", {"gone": True})
    _replace(draft, member, replace(member, status="draining", drained=True, leaving=True), entry.at_us)
    return Result("ok", {"gone": False})


@dataclass(frozen=True, slots=True)
class Drain(Entry):
    """Drain a member (`on`), so that it keeps its running attempts and gets no new ones; or end this (not `on`).

    If `lasting` is False, the draining ends when the member joins again: so a member drains itself before it stops.
    """

    member: str
    on: bool
    lasting: bool = True


@applies(Drain, code=6)
def set_draining(draft: Draft, entry: Drain) -> Result:
    """Give a member no new work from now on, or give it new work again. If the member is down, this is remembered."""
    member = draft.members.get(entry.member)
    if member is None:
        return _no_such_member(entry.member)
    drained = entry.on if entry.lasting else member.drained
    after = replace(member, drained=drained, leaving=member.leaving and entry.on)
    if member.status != "down":
        after = replace(after, status="draining" if entry.on or member.aside else "up")
    _replace(draft, member, after, entry.at_us)
    return DONE


@dataclass(frozen=True, slots=True)
class StandAside(Entry):
    """A member reports why it cannot take on new work (`why`), or that it can again (`why` is "").

    Meanwhile it is `draining`: it keeps its running attempts, and others own its tasks. Refused if it is in another
    incarnation. The report is reset when the member joins again or is marked down.
    """

    member: str
    incarnation: int
    why: str = ""


@applies(StandAside, code=22)
def stand_aside(draft: Draft, entry: StandAside) -> Result:
    """Start or end a member's own draining. A member that a client has drained stays `draining`."""
    member = draft.members.get(entry.member)
    if member is None:
        return _no_such_member(entry.member)
    if entry.incarnation != member.incarnation:
        return refused("incarnation", f"{member.id} is in incarnation {member.incarnation}, not {entry.incarnation}")
    if member.status == "down":
        return refused("not-up", f"{member.id} is down")
    after = replace(member, aside=entry.why[:_TEXT_MAX])
    draining = bool(after.aside) or member.drained or member.leaving
    _replace(draft, member, replace(after, status="draining" if draining else "up"), entry.at_us)
    return DONE


@dataclass(frozen=True, slots=True)
class MarkDown(Entry):
    """Mark a member down. Refused if `incarnation` is not its present one, or `term` is not the present leader's.

    A member that stops proposes this for itself, with reason `stopped` and term 0.
    """

    #: The member's id.
    member: str
    #: The incarnation that is down.
    incarnation: int
    #: Why the member is down.
    reason: DownReason
    #: The term of the leader that gives the verdict; 0: the member itself, which stops.
    term: int


@applies(MarkDown, code=7)
def mark_down(draft: Draft, entry: MarkDown) -> Result:
    """Mark a member down, and orphan its runs. Refused unless the present leader, or the member itself, proposes it."""
    member = draft.members.get(entry.member)
    if member is None:
        return _no_such_member(entry.member)
    if entry.reason == "new":
        return refused("invalid", "a member is marked down as silent, gone or stopped")
    if entry.incarnation != member.incarnation:
        return refused("incarnation", f"{member.id} is in incarnation {member.incarnation}, not {entry.incarnation}")
    if entry.reason != "stopped" and entry.term != draft.lead.term:
        return refused("leadership", f"{draft.lead.member} leads since term {draft.lead.term}, not {entry.term}")
    if member.status == "down":
        return refused("not-up", f"{member.id} is down already")
    down = replace(member, status="down", reason=entry.reason, aside="")
    _replace(draft, member, down, entry.at_us)
    lose_runs(draft, member.id, entry.at_us)
    if member.leaving and len(draft.members) > 1:
        _vacate(draft, down, entry.at_us)
    return DONE


def _vacate(draft: Draft, member: Member, at_us: int) -> None:
    """Remove a member, and vacate its slot."""
    draft.members = draft.members.delete(member.id)
    draft.slots = (*draft.slots[: member.slot], None, *draft.slots[member.slot + 1 :])
    draft.placing_changed = True
    forget_member(draft, member.id, at_us)


def _replace(draft: Draft, before: Member, after: Member, at_us: int) -> None:
    """Replace a member in the draft; bump the epoch if placement depends on the change."""
    # A new incarnation also sets `since_us`: the member restarted before it was marked down, and is up since then.
    if (after.status, after.incarnation) != (before.status, before.incarnation):
        after = replace(after, since_us=at_us)
    draft.put_member(after)
    if after.status != before.status:
        draft.touched.update(draft.each)  # what waits for a pool on a member does so while that is up
    if (after.status, after.labels, after.capacity, after.kinds) != (
        before.status,
        before.labels,
        before.capacity,
        before.kinds,
    ):
        draft.placing_changed = True


def _new_member(seed: Seed, slot: int, at_us: int) -> Member:
    return Member(seed.id, slot, seed.host, seed.raft_port, seed.http_port, since_us=at_us)


def _no_such_member(member: str) -> Result:
    return refused("no-such-member", f"there is no member {member!r}")


def _seed_fault(seed: Seed) -> str | None:
    if _NAME.fullmatch(seed.id) is None:
        return f"{seed.id!r} is no member id: letters, digits, '.', '_' and '-', 128 at most, a letter or digit first"
    return _address_fault(seed.host, seed.raft_port, seed.http_port)


def _address_fault(host: str, *ports: int) -> str | None:
    if not 0 < len(host) <= _TEXT_MAX:
        return f"a host has 1 to {_TEXT_MAX} characters"
    if max(ports) > _PORT_MAX:
        return f"{max(ports)} is no port: they go up to {_PORT_MAX}"
    return None


def _offer_fault(entry: Join) -> str | None:
    if not 1 <= entry.capacity <= CAPACITY_MAX:
        return f"a capacity is a whole number from 1 to {CAPACITY_MAX}"
    if max(len(entry.labels), len(entry.kinds)) > _MANY_MAX:
        return f"a member has {_MANY_MAX} labels and {_MANY_MAX} kinds at most"
    return _labels_fault(entry.labels)


def _labels_fault(labels: Labels) -> str | None:
    if len(dict(labels)) < len(labels):
        return "a label is given once"
    if any(len(name) > _TEXT_MAX or len(value) > _TEXT_MAX for name, value in labels):
        return f"a label's name and value have {_TEXT_MAX} characters at most"
    return None
