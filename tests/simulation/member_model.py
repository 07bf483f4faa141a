"""One member: the real Lease, Detector and Evidence, wired as the edge wires them, around modelled work.

Three threads: Raft's, the heartbeat's and the duty's, which may stand still together or alone. The supervisor is a
process of its own: it freezes the work at the deadline whatever the node does, and kills it when the node is gone.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from node.liveness.detector import Detector
from node.liveness.evidence import Evidence
from node.liveness.lease import Lease, LeaseNow
from node.liveness.message import BEAT_S, Answer, Beat
from node.liveness.view import Peer, View
from node.state.value import Settings
from tests.simulation.raft_model import Disk, Entry, RaftModel
from tests.simulation.state_model import RunModel, StateModel
from tests.simulation.work_model import Bench
from tests.simulation.world import World

LATE_SHARE = 0.1
RETRY_S = 4.0
"""A proposal that was not answered is made again, under the same id, after this long."""


@dataclass(frozen=True)
class Rules:
    """The rules of section 7 that a mutation takes out."""

    detector: Callable[[Evidence], Detector] = Detector
    check_lead: bool = True
    check_period: bool = True
    check_join: bool = True


@dataclass
class Cluster:
    """What the members share: the world, the rules, and each other."""

    world: World
    rules: Rules
    bench: Bench
    names: list[str]
    runs: list[str]
    members: dict[str, "MemberModel"] = field(default_factory=dict)
    links: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))


class MemberModel:
    """One process of one member, from its start to its death."""

    def __init__(self, cluster: Cluster, me: str, disk: Disk) -> None:
        self.me, self.disk, self.link = me, disk, next(cluster.links)
        self._cluster, self._world, self._bench = cluster, cluster.world, cluster.bench
        self._settings = Settings()
        self._incarnation = 0
        self._waiting: dict[tuple[str, int], tuple[Entry, Callable[[object], None]]] = {}
        self._sequence = itertools.count()
        self._busy: set[str] = set()
        self._joining = False
        self.state = StateModel(
            cluster.rules.check_lead,
            cluster.rules.check_join,
            members=dict.fromkeys(cluster.names, (0, "down")),
            runs={run: RunModel() for run in cluster.runs},
        )
        self.evidence = Evidence()
        self.lease = Lease()
        self.detector = cluster.rules.detector(self.evidence)
        self._view: View | None = None
        cluster.members[me] = self
        self.raft = RaftModel(
            me, cluster.names, disk, self._world, lambda name: cluster.members[name].raft, self._applied, self._look
        )
        self.raft.start()
        self._beat()
        self._duty()

    # Raft's thread

    def _applied(self, entry: Entry) -> None:
        self.state.apply(entry)
        self._look()
        if entry[0] == "proposal":
            identity = entry[1]
            if self.raft.leading:
                self._reply(identity)
            if entry[2] in ("mark_down", "join", "claim", "finish"):
                self._drop_stale_work()

    def _reply(self, identity: tuple[str, int]) -> None:
        proposer, result = identity[0], self.state.done[identity]
        late_s = self._late_s() if proposer != self.me else 0.0
        members = self._cluster.members
        self._world.send(
            self.me, proposer, "duty", lambda: members[proposer].answered_proposal(identity, result), late_s
        )

    def _late_s(self) -> float:
        """Forwarded proposals and their answers are late more often than other messages; the proposer asks again."""
        rng = self._world.rng
        return rng.uniform(1.0, 8.0) if rng.random() < LATE_SHARE else 0.0

    def _look(self) -> None:
        """Runs in Raft's thread, before a vote leaves it, as View asks."""
        peers = {name: Peer(inc, status, name, 1) for name, (inc, status) in self.state.members.items()}
        term, applied = self.disk.term, self.state.lead == (self.disk.term, self.me)
        view = View(self.me, self._incarnation, term, self.raft.leader, applied, peers, self._settings)
        if view == self._view:
            return
        self._view = view
        now_s = self._world.clock_s(self.me)
        dropped = self.lease.look(view, now_s)
        self.detector.look(view, now_s)
        if dropped:
            self._leased(dropped)

    # The heartbeat's thread

    def _beat(self) -> None:
        now_s = self._world.clock_s(self.me)
        self._send_beat(now_s)
        self._judge(now_s)
        self._world.within(self.me, "beat", BEAT_S / 2, self._judge_between, last=True)
        self._world.within(self.me, "beat", BEAT_S, self._beat, last=True)

    def _judge_between(self) -> None:
        self._judge(self._world.clock_s(self.me))

    def _send_beat(self, now_s: float) -> None:
        beat = self.lease.beat(now_s)
        if beat is None or self.raft.leader is None:
            return
        leader = self.raft.leader
        if leader == self.me:
            answer = self.detector.beat(beat, now_s)
            if answer:
                self._take(answer, now_s)
            return
        link = self.link
        self._world.send(self.me, leader, "beat", lambda: self._cluster.members[leader].heard_beat(beat, link))

    def heard_beat(self, beat: Beat, link: int) -> None:
        """A member's heartbeat has come."""
        now_s = self._world.clock_s(self.me)
        self.evidence.heard(beat.member, beat.incarnation, link, now_s)
        answer = self.detector.beat(beat, now_s)
        if answer:
            mine = self.link
            to = self._cluster.members
            self._world.send(self.me, beat.member, "beat", lambda: to[beat.member].heard_answer(answer, mine))

    def heard_answer(self, answer: Answer, link: int) -> None:
        """The leader's answer has come."""
        now_s = self._world.clock_s(self.me)
        self.evidence.heard(answer.leader, answer.leader_incarnation, link, now_s)
        first = not self.lease.echoed
        self._take(answer, now_s)
        if first and self.lease.echoed:
            self._send_beat(now_s)

    def _take(self, answer: Answer, now_s: float) -> None:
        lease = self.lease.answered(answer, now_s)
        if lease:
            self._leased(lease)

    def _leased(self, lease: LeaseNow) -> None:
        self._bench.renewed(self.me, lease.deadline_s, self.state.current)

    def _judge(self, now_s: float) -> None:
        if self._view is None:
            return
        for name in self.evidence.to_knock(self._view.peers, now_s):
            self._knock(name, self._view.peers[name].incarnation)
        for verdict in self.detector.tick(now_s):
            self._bench.verdicts += 1
            self._bench.gone += verdict.reason == "gone"
            self._mark_down(("mark_down", verdict.member, verdict.incarnation, verdict.term))

    def _mark_down(self, what: Entry) -> None:
        self._world.within(self.me, "duty", 0.0, lambda: self._propose(what, lambda _: None))

    def _knock(self, name: str, incarnation: int) -> None:
        world = self._world
        away = world.is_cut(self.me, name)
        refused = not away and not world.machines[name].running
        after_s = 1.0 if away else world.rng.uniform(0.001, 0.02)
        world.within(
            self.me,
            "beat",
            after_s,
            lambda: self.evidence.knocked(name, incarnation, refused, world.clock_s(self.me)),
        )

    # The duty's thread

    def _duty(self) -> None:
        own_incarnation, status = self.state.members[self.me]
        if self._incarnation != own_incarnation or status == "down":
            self._rejoin()
        elif self.lease.now.live(self._world.clock_s(self.me)):
            for run, model in self.state.runs.items():
                if not model.held and run not in self._busy and self.state.owner(run) == self.me:
                    self._claim(run)
        self._world.within(self.me, "duty", 0.15, self._duty, last=True)

    def _claim(self, run: str) -> None:
        self._busy.add(run)
        period = self.lease.now.period

        def answered(token: object) -> None:
            self._busy.discard(run)
            if not isinstance(token, int) or not token:
                return
            live = self.lease.now.live(self._world.clock_s(self.me))
            if live and (period == self.lease.now.period or not self._cluster.rules.check_period):
                self._bench.start(self.me, run, token, self.lease.now.deadline_s, lambda: self._finish(run, token))
            else:
                self._bench.given_back += 1
                self._finish(run, token)

        self._propose(("claim", run, self.me, self._incarnation), answered)

    def _finish(self, run: str, token: int) -> None:
        self._world.within(self.me, "duty", 0.0, lambda: self._propose(("finish", run, token), lambda _: None))

    def _drop_stale_work(self) -> None:
        """What another has claimed, or a mark_down orphaned, must stop."""
        for run, token in self._bench.holds(self.me):
            if not self.state.current(run, token):
                self._bench.kill(self.me, run, token)

    def _rejoin(self) -> None:
        """In a new incarnation, once nothing is left of the workers of the last one."""
        if self._joining or self._bench.holds(self.me):
            for run, token in self._bench.holds(self.me):
                self._bench.kill(self.me, run, token)
            return
        if self.state.members[self.me] == (0, "down") and not self.state.lead[0]:
            return
        self._joining = True

        def joined(incarnation: object) -> None:
            self._joining = False
            self._busy.clear()
            assert isinstance(incarnation, int)
            if incarnation:
                self._incarnation = incarnation
                self._look()

        self._propose(("join", self.me, self.state.members[self.me][0]), joined)

    # Proposals

    def _propose(self, what: Entry, answered: Callable[[object], None]) -> None:
        identity = (self.me, (self.link << 20) + next(self._sequence))
        entry: Entry = ("proposal", identity, *what)
        self._waiting[identity] = (entry, answered)
        self._forward(entry)

    def _forward(self, entry: Entry) -> None:
        if entry[1] not in self._waiting:
            return
        self._world.within(self.me, "duty", RETRY_S, lambda: self._forward(entry))
        leader = self.raft.leader
        if leader == self.me:
            self._world.within(self.me, "raft", 0.0, lambda: self.asked(entry))
        elif leader is not None:
            late_s = self._late_s()
            self._world.send(self.me, leader, "raft", lambda: self._cluster.members[leader].asked(entry), late_s)

    def asked(self, entry: Entry) -> None:
        """A proposal has come to whom its proposer takes for the leader."""
        if entry[1] in self.state.done:
            self._reply(entry[1])
        elif not any(known[1] == entry for known in self.disk.log[-50:]):
            self.raft.propose(entry)

    def answered_proposal(self, identity: tuple[str, int], result: object) -> None:
        """What became of a proposal."""
        if identity in self._waiting:
            _, answered = self._waiting.pop(identity)
            answered(result)
