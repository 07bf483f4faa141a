"""Members of a list without a cluster ask one another how they stand, as `node.raft.founding.inquiry` does."""

from collections.abc import Callable

from node.raft.founding.statement import Statement
from tests.simulation.recovery import AGAIN_S, Recovery
from tests.simulation.world import World


class Inquiry:
    """One process's. `send` calls what it is given with another member's inquiry."""

    def __init__(
        self, me: str, recovery: Recovery, world: World, send: Callable[[str, Callable[["Inquiry"], None]], None]
    ) -> None:
        self._me, self._recovery, self._world, self._send = me, recovery, world, send
        self._asked_s = float("-inf")

    def ask(self) -> None:
        """While there is no cluster, ask the members of the list how they stand, whatever they know of this one."""
        recovery, now_s = self._recovery, self._world.now_s
        if not recovery.inquires(now_s) or now_s - self._asked_s < AGAIN_S:
            return
        self._asked_s = now_s
        said = recovery.statement()
        for name in sorted(recovery.founding.listed - {self._me}):
            self._send(name, lambda to: to.asked(said))

    def asked(self, said: Statement) -> None:
        """A member without a cluster says how it stands, and asks."""
        self._recovery.heard(said, self._world.now_s)
        answer = self._recovery.statement()
        self._send(said.member, lambda to: to.told(answer))

    def told(self, said: Statement) -> None:
        """How another one stands."""
        self._recovery.heard(said, self._world.now_s)
