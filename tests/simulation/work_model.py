"""The work, its supervisors, and the judge of invariant 4: no two attempts of a run working at once (section 6)."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.world import World

FREEZE_S = 0.2
"""A freeze takes up to this long, under load."""

KILL_S = 0.4
"""So long may work outlive its node, or the order to end it."""


class TwoAtOnceError(AssertionError):
    """Invariant 4 is broken."""


@dataclass
class Work:
    """One attempt's worker, under its supervisor. `end_s` is when it will be done, by the world's time."""

    member: str
    run: str
    token: int
    deadline_s: float
    end_s: float
    done: Callable[[], None]
    frozen: bool = False
    dying: bool = False


class Bench:
    """All work in the world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._work: dict[tuple[str, str, int], Work] = {}
        self.starts = self.thaws = self.freezes = self.verdicts = self.gone = self.given_back = 0

    def start(self, member: str, run: str, token: int, deadline_s: float, done: Callable[[], None]) -> None:
        """A claim has been answered: the attempt's worker starts."""
        world = self._world
        boot = world.machines[member].boot
        end_s = world.now_s + world.rng.choice([0.5, 2.0, 8.0, 60.0])

        def finished() -> None:
            if world.machines[member].boot == boot:
                done()

        work = Work(member, run, token, deadline_s, end_s, finished)
        self._work[member, run, token] = work
        self.starts += 1
        self._works(work)
        self._watch(work)
        world.at(end_s, lambda: self._end(work))

    def renewed(self, member: str, deadline_s: float, current: Callable[[str, int], bool]) -> None:
        """The node tells its supervisors the lease: frozen work goes on if its token is still current."""
        now_s = self._world.clock_s(member)
        for work in [work for work in self._work.values() if work.member == member]:
            work.deadline_s = deadline_s
            self._watch(work)
            if work.frozen and deadline_s > now_s and not work.dying:
                if current(work.run, work.token):
                    work.frozen = False
                    self.thaws += 1
                    self._works(work)
                else:
                    self.kill(member, work.run, work.token)

    def holds(self, member: str) -> list[tuple[str, int]]:
        """The attempts that the member has a worker for."""
        return [(work.run, work.token) for work in self._work.values() if work.member == member]

    def kill(self, member: str, run: str, token: int) -> None:
        """End it; that may take a while."""
        work = self._work.get((member, run, token))
        if work and not work.dying:
            work.dying = True
            lag_s = self._world.rng.uniform(0, KILL_S)
            self._world.at(self._world.now_s + lag_s, lambda: self._remove(work))

    def orphaned(self, member: str) -> None:
        """The node has died: its supervisors see the end of their pipes."""
        for run, token in self.holds(member):
            self.kill(member, run, token)

    def swept(self, member: str) -> None:
        """A node starts: it first kills what the one before it left."""
        for key in [key for key in self._work if key[0] == member]:
            del self._work[key]

    def _remove(self, work: Work) -> None:
        self._work.pop((work.member, work.run, work.token), None)

    def _watch(self, work: Work) -> None:
        """The supervisor's own timer, on its machine's clock."""
        at_s = self._world.when_s(work.member, work.deadline_s) + self._world.rng.uniform(0, FREEZE_S)
        deadline_s = work.deadline_s

        def due() -> None:
            if work.deadline_s == deadline_s and not work.frozen:
                work.frozen = True
                self.freezes += 1

        self._world.at(at_s, due)

    def _end(self, work: Work) -> None:
        if (work.member, work.run, work.token) not in self._work or work.dying:
            return
        if work.frozen:
            self._world.at(self._world.now_s + 0.5, lambda: self._end(work))
            return
        self._remove(work)
        work.done()

    def _works(self, work: Work) -> None:
        others = [
            other for other in self._work.values() if other.run == work.run and other is not work and not other.frozen
        ]
        if others:
            names = ", ".join(f"{other.member} (token {other.token})" for other in [work, *others])
            raise TwoAtOnceError(f"at {self._world.now_s:.3f} s run {work.run} works twice: {names}")
