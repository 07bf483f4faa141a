"""The work in a history, each attempt under its supervisor, whose decisions are the real `node.execution.attempt_life`.

A supervisor is a process of its own: it freezes the work at the deadline whatever its node does, and kills it when the
node is gone. The judge of invariant 4 sits here: whatever works bears the present token of its run.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import msgpack

from node.execution import attempt_events, attempt_life
from node.execution.attempt_events import Event
from node.execution.attempt_life import Act, AttemptLife
from node.execution.frames import DoneFrame, EndedFrame, FailedFrame
from node.execution.order import AttemptLimits, Order
from node.state.value import State
from tasks.definition.run import HELD
from tests.simulation.holders import overused
from tests.simulation.loop import Loop
from tests.simulation.world import World

LIMITS = AttemptLimits(stop_s=2.0, hand_over_s=3.0)
LAG_S = 0.2
"""How late a supervisor may act under load; and how long a killed process may take to be gone."""

LATE_SHARE = 0.15
LENGTHS_S = (0.3, 1.0, 2.5, 6.0, 15.0)
BRIEF_S = (0.2, 0.4, 1.0, 3.0)
CONTINUOUS_S = (8.0, 20.0, 60.0)

Steps = Callable[[AttemptLife, float], tuple[AttemptLife, list[Act]]]


class Bench:
    """All attempts in the world. `state` answers with the newest committed state."""

    def __init__(self, world: World, state: Callable[[], State], steps: Steps) -> None:
        self.world, self.state, self.steps = world, state, steps
        self.counts: Counter[str] = Counter()
        self.attempts: dict[tuple[str, str, int], Supervisor] = {}
        self.hurry = False

    def works(self, attempt: "Supervisor") -> None:
        """An attempt begins to work, or goes on."""
        run_id, token = attempt.order.run_id, attempt.order.token
        for other in self.attempts.values():
            if other.order.run_id == run_id and other is not attempt and other.at_work:
                who = f"{attempt.member} (token {token}) and {other.member} (token {other.order.token})"
                self.world.wrong(f"invariant 4: run {run_id} works twice: {who}")
        run = self.state().runs.get(run_id)
        if run is None or run.state not in HELD or run.token != token:
            self.world.wrong(f"invariant 4: {run_id} goes on at {attempt.member} under token {token}, which is over")
        working = [one.order.run_id for one in self.attempts.values() if one.at_work or one is attempt]
        if "{{" in str(attempt.order.params):
            self.world.wrong(f"{run_id} works by params that depend on its occurrence: {attempt.order.params}")
        if (why := overused(self.state(), working)) is not None:
            self.world.wrong(why)

    def taken(self, run_id: str, token: int) -> None:
        """A token is not its run's present one any more: nothing may work under it."""
        for attempt in self.attempts.values():
            if attempt.order.run_id == run_id and attempt.order.token == token and attempt.at_work:
                self.world.wrong(
                    f"invariant 4: {run_id} is taken from {attempt.member}, where it works (token {token})"
                )

    def sweep(self, member: str) -> None:
        """A node starts: it first kills what the one before it left."""
        for key in [key for key in self.attempts if key[0] == member]:
            self.attempts.pop(key).gone()

    def orphan(self, member: str) -> None:
        """The node has died: its supervisors see the end of their pipes."""
        for key, attempt in list(self.attempts.items()):
            if key[0] == member:
                attempt.orphan()


class Runner:
    """A node's attempts: what `node.control` and `node.membership` ask of `node.execution.runner`."""

    def __init__(self, me: str, bench: Bench, loop: Loop, on_event: Callable[[Event], None]) -> None:
        self.me = me
        self._bench, self._loop, self._on_event = bench, loop, on_event
        self._mine: dict[tuple[str, int], Supervisor] = {}

    def expect(self) -> None:
        """Hear that something is due soon: here, an attempt takes no time to begin."""

    def prepare(self, name: str, start: int, keep: int) -> None:
        """No kind here has a preparation."""
        raise NotImplementedError

    def lead_s(self, name: str) -> float:
        """No kind here has a preparation."""
        raise NotImplementedError

    def launch(self, what: Order) -> None:
        """Make an attempt."""
        key = (self.me, what.run_id, what.token)
        if key in self._bench.attempts:
            raise ValueError(f"an attempt at run {what.run_id} with token {what.token} runs already")
        self._bench.counts["launches"] += 1
        self._bench.attempts[key] = self._mine[what.run_id, what.token] = Supervisor(self.me, what, self._bench, self)

    def cancel(self, run_id: str, token: int) -> None:
        """Ask it to stop."""
        self._stop(run_id, token, "cancelled")

    def hand_over(self, run_id: str, token: int) -> None:
        """Ask it to stop where another member can go on."""
        self._stop(run_id, token, "handed_over")

    def kill(self, run_id: str, token: int) -> None:
        """End it now."""
        self._stop(run_id, token, "killed")

    def fail(self, run_id: str, token: int, error: str) -> None:
        """End it now, as a failure. No disk fills up here."""
        raise NotImplementedError

    def _stop(self, run_id: str, token: int, why: attempt_life.StopReason) -> None:
        attempt = self._mine.get((run_id, token))
        if attempt is not None:
            attempt.stop(why)

    def checkpoint_done(self, run_id: str, token: int, sequence: int, code: str) -> None:
        """Answer a checkpoint."""
        attempt = self._mine.get((run_id, token))
        if attempt is not None:
            attempt.checkpoint_done(code)

    def renew(self, deadline_s: float) -> None:
        """The lease lasts until then. From any thread."""
        for attempt in self._mine.values():
            attempt.renew(deadline_s)

    async def kill_all(self) -> None:
        """Kill every attempt and wait until nothing of them is left."""
        for run_id, token in list(self._mine):
            self.kill(run_id, token)
        while self._mine:
            gone = asyncio.Event()
            next(iter(self._mine.values())).when_gone.append(gone.set)
            await gone.wait()

    def say(self, event: Event) -> None:
        """A supervisor says something; it is heard on the loop."""
        if isinstance(event, attempt_events.AttemptEnded):
            self._mine.pop((event.run_id, event.token), None)
        self._loop.call_soon_threadsafe(self._on_event, event)


class Supervisor:
    """One attempt: its supervisor, and its worker. `left_s` of work are left; it works while it is not frozen."""

    def __init__(self, member: str, what: Order, bench: Bench, node: Runner) -> None:
        self.member, self.order = member, what
        self.when_gone: list[Callable[[], object]] = []
        self._bench, self._world, self._node = bench, bench.world, node
        self._life = AttemptLife(what.deadline_s, None, LIMITS)
        self._begun = self._dead = self._orphaned = self._asking = False
        self._turn_at_s = float("inf")
        self._resumed_s: float | None = None
        self._spell = 0
        self._sequence = 0
        self._plan()
        self._world.at(self._world.now_s + self._world.rng.uniform(0.005, 0.05), self._begin)

    def _plan(self) -> None:
        """What its work will be like; it takes less where it goes on from a checkpoint."""
        rng, params = self._world.rng, self.order.params
        lengths_s = CONTINUOUS_S if params.get("continuous") else BRIEF_S if params.get("brief") else LENGTHS_S
        self.left_s = rng.choice(lengths_s)
        if self.order.checkpoint is not None:
            self.left_s = max(0.1, self.left_s - msgpack.unpackb(self.order.checkpoint))
        self._every_s = rng.choice((1.2, 3.0, 30.0))
        self._done_s = 0.0
        chance = rng.random()
        self._report: DoneFrame | FailedFrame | None = DoneFrame(None, False)
        if chance > 0.85:
            away = chance < 0.87  # what it needs does not answer
            self._report = FailedFrame("it failed", chance < 0.97, False, away) if chance < 0.98 else None
        self._stubborn = rng.random() < 0.1

    @property
    def at_work(self) -> bool:
        """Whether its processes run."""
        return self._begun and not self._dead and not self._life.frozen

    # -- what the node says

    def renew(self, deadline_s: float) -> None:
        """The lease lasts until then."""
        if deadline_s > self._life.deadline_s:
            self._life = attempt_life.renewed(self._life, deadline_s)
        if self._life.frozen:
            self._wake(0.0)

    def stop(self, why: attempt_life.StopReason) -> None:
        """It should end."""
        self._life = attempt_life.told_to_stop(self._life, why, self._now_s())
        self._wake(0.0)

    def checkpoint_done(self, code: str) -> None:
        """The worker may go on, or is fenced off."""
        self._asking = False
        if code == "fenced":
            self.stop("fenced")
        elif self.at_work:
            self._resume()

    def orphan(self) -> None:
        """The node has died."""
        self._orphaned = True
        self._world.at(self._world.now_s + self._late_s(), self._kill)

    # -- its loop

    def _now_s(self) -> float:
        return self._world.clock_s(self.member)

    def _late_s(self) -> float:
        rng = self._world.rng
        return rng.uniform(0.0, LAG_S) if rng.random() < LATE_SHARE else 0.001 + 0.01 * rng.random()

    def _begin(self) -> None:
        if self._dead:
            return
        why = self._life.why
        if why == "cancelled":
            self._end(EndedFrame("cancelled", None, None, True, None))
        elif self._orphaned or why is not None or self._now_s() >= self._life.deadline_s:
            # A claim from before a lapse is not started after it.
            self._end(EndedFrame("not_started", None, "the lease or the claim was over", True, None))
        else:
            self._begun = True
            if self.order.timeout_s is not None:
                self._life = replace(self._life, timeout_at_s=self._now_s() + self.order.timeout_s)
            self._bench.works(self)
            self._say(attempt_events.AttemptStarted(self.order.run_id, self.order.token))
            self._resume()
            self._arm()

    def _wake(self, after_s: float) -> None:
        """Turn in a while, as soon as the machine lets it."""
        if not self._begun:
            return
        at_s = self._world.now_s + after_s + self._late_s()
        if at_s < self._turn_at_s:
            self._turn_at_s = at_s
            self._world.at(at_s, lambda: self._turn(at_s))

    def _arm(self) -> None:
        self._wake(max(0.0, self._world.when_s(self.member, attempt_life.wake_s(self._life)) - self._world.now_s))

    def _turn(self, at_s: float) -> None:
        if self._dead or at_s != self._turn_at_s:
            return
        self._turn_at_s = float("inf")
        self._life, acts = self._bench.steps(self._life, self._now_s())
        for act in acts:
            match act:
                case Act.FREEZE:
                    if self._resumed_s is not None:
                        self._bench.counts["freezes"] += 1
                    self._pause()
                case Act.THAW:
                    self._bench.counts["thaws"] += 1
                    self._bench.works(self)
                    self._resume()
                case Act.ASK:
                    self._asked()
                case Act.KILL:
                    self._world.at(self._world.now_s + self._late_s(), self._killed)
        self._arm()

    def _kill(self) -> None:
        if not self._dead:
            self._life = attempt_life.killing(self._life, self._now_s())
            self._world.at(self._world.now_s + self._late_s(), self._killed)

    def _killed(self) -> None:
        if self._dead:
            return
        ending = attempt_life.conclude(self._life, None, -9, self.order.timeout_s)
        if self._life.why == "killed" and not self._begun:
            ending = replace(ending, end="not_started")
        self._end(ending)

    # -- its work

    def _resume(self) -> None:
        if self._asking or self._resumed_s is not None:
            return
        self._spell += 1
        self._resumed_s, spell = self._world.now_s, self._spell
        if self._bench.hurry:
            self.left_s = min(self.left_s, 0.1)
        step_s = min(self.left_s, self._every_s)
        self._world.at(self._world.now_s + step_s, lambda: self._reached(spell, step_s))

    def _pause(self) -> None:
        if self._resumed_s is not None:
            self.left_s -= min(self.left_s, self._world.now_s - self._resumed_s)
            self._resumed_s = None
        self._spell += 1

    def _reached(self, spell: int, step_s: float) -> None:
        if spell != self._spell or self._dead:
            return
        self._resumed_s = None
        self.left_s -= step_s
        self._done_s += step_s
        if self.left_s <= 1e-6:
            self._reported(self._report)
            return
        self._asking = True
        self._sequence += 1
        data = bytes(msgpack.packb(round(self._done_s, 3)))
        self._say(attempt_events.CheckpointAsked(self.order.run_id, self.order.token, self._sequence, data))

    def _asked(self) -> None:
        """The worker is asked to stop, and mostly does."""
        if self._stubborn:
            return

        def heeds() -> None:
            if self._life.frozen and not self._dead:
                self._world.at(self._world.now_s + 0.3, heeds)
            elif not self._dead:
                self._reported(FailedFrame("told to stop", True, True))

        self._world.at(self._world.now_s + self._world.rng.uniform(0.01, 0.4), heeds)

    def _reported(self, report: DoneFrame | FailedFrame | None) -> None:
        status = None if report is not None else -9
        self._end(attempt_life.conclude(self._life, report, status, self.order.timeout_s))

    # -- its end

    def _end(self, ending: EndedFrame) -> None:
        self._bench.attempts.pop((self.member, self.order.run_id, self.order.token), None)
        self.gone()
        end, error, retry = ending.end, ending.error, ending.retry
        leaves = end == "succeeded" and self.order.params.get("leaves") is True
        result = {"token": self.order.token} if leaves else None
        self._say(attempt_events.AttemptEnded(self.order.run_id, self.order.token, end, result, error, retry))  # type: ignore[arg-type]
        for tell in self.when_gone:
            tell()

    def gone(self) -> None:
        """Nothing of it is left."""
        self._dead = True
        self._spell += 1

    def _say(self, event: Event) -> None:
        if not self._orphaned:
            self._node.say(event)
