"""Admits only one start (process) of each member: a second one must wait until the first one has been probed.

A member that was restarted, or whose machine vanished, may look connected for a while. So the first start is asked
whether it is alive (a probe). If it answers, the newcomer is refused, and ends (`start_claim`). If the first start's
connection ends, or it does not answer within PROBE_S, the newcomer takes its place.

Of two members, only the one with the greater id dials, so the other one would not learn of another start with its own
id. Therefore the other one calls too, on a connection that is used for this question only: an inquiry.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pysyncobj.node import Node

from node.raft.core.parts import RaftCore, TransportPort
from node.raft.errors import NameTaken
from node.raft.transport.start_claim import PATIENCE_S, OtherStart, StartClaim
from node.raft.wire.connections import PeerConnection
from node.raft.wire.messages import Message

PROBE_S: Final = 3.0
AGAIN_S: Final = 0.2
PING_S: Final = 1.0
LATER_S: Final = 1.0
"""The pause between two inquiries to one member, once this start is settled."""

LOGGED_MAX: Final = 64
"""The maximum number of warnings that are remembered as already logged. When there are more, all are forgotten."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Newcomer:
    """A start that waits for admission. rivals: the connections of earlier starts of the member, which were probed.

    again: tries once more to admit the newcomer.
    """

    node: Node
    connection: Any
    where: str
    again: Callable[[], None]
    since_s: float
    number: int
    rivals: list[Any]
    gone: bool = False


class DuplicateStarts:
    """The known starts of all members, this one's included. Used in Raft's thread."""

    def __init__(self, consensus: RaftCore, transport: TransportPort, start: str) -> None:
        self.claim = StartClaim(start, consensus.clock(), consensus.timing.settle_s)
        self._consensus, self._transport = consensus, transport
        self._starts: dict[Any, tuple[Node, str, str]] = {}
        """For each connection, including callers' inquiries: the member, the id of its start, and its address."""
        self._inquirers: set[Any] = set()
        self._newcomers: list[_Newcomer] = []
        self._number = 0
        self._begun = False
        self._calls = consensus.single_calls(self._heard, self._inquiry_ended)
        """This member's own inquiries to others."""
        self._pinged_s: dict[Node, float] = {}
        self._logged: set[str] = set()

    # -- the starts of others

    def enter(
        self, node: Node, connection: Any, start: str, where: str, admit: Callable[[], None], *, asks: bool = False
    ) -> None:
        """Handle a start of a member. `admit` is called at once, or when the earlier start has ended.

        `asks`: the start came on an inquiry. A start that is not on an inquiry replaces those on inquiries.
        """

        def note_and_admit() -> None:
            self._starts[connection] = (node, start, where)
            if asks:
                self._inquirers.add(connection)
            else:
                # The member has returned, so ask it at once to admit this start. Otherwise, if the last member that has
                # admitted this start is lost now, this start must settle anew, and cannot vote for about a second.
                self._calls.soon(node)
            admit()

        if not asks:
            for other in [other for other in self._others(node, start) if other in self._inquirers]:
                self._forget(other)
                other.send({"type": "taken", "start": start, "where": where, "led": False, "settled": False})
        rivals = self._others(node, start)
        if not rivals:
            note_and_admit()
            return
        self._number += 1
        again = partial(self.enter, node, connection, start, where, admit, asks=asks)
        newcomer = _Newcomer(
            node=node,
            connection=connection,
            where=where,
            again=again,
            since_s=self._consensus.clock(),
            number=self._number,
            rivals=rivals,
        )
        self._newcomers.append(newcomer)
        for rival in rivals:
            rival.send({"type": "probe", "number": newcomer.number, "where": where})

    def _others(self, node: Node, start: str) -> list[Any]:
        """Return the connections of other starts of a member."""
        return [
            connection
            for connection, (member, its_start, _) in self._starts.items()
            if member == node and its_start != start
        ]

    def differs(self, node: Node, start: str) -> bool:
        """Whether another start of the member is connected. Then `start` must be notified before it is disconnected."""
        return bool(self._others(node, start))

    def waits(self, connection: Any) -> bool:
        """Whether a start that waits for admission is on this connection."""
        return any(newcomer.connection is connection and not newcomer.gone for newcomer in self._newcomers)

    def answered(self, connection: Any, message: Message) -> None:
        """Handle the answer to a probe: the start on this connection is alive, so refuse the newcomer."""
        node, start, there = self._starts.get(connection, (None, "", ""))
        for newcomer in [one for one in self._newcomers if one.number == message["number"] and one.node == node]:
            self._newcomers.remove(newcomer)
            self._warn_once(
                f"refused: another process, at {newcomer.where}, calls itself {newcomer.node.id}, which runs at "
                f"{there} and answers. Each node needs a name and a data folder of its own (ROTA_NODE, ROTA_DATA)",
            )
            if not newcomer.gone:
                claims = {"led": message["led"], "settled": message["settled"]}
                newcomer.connection.send({"type": "taken", "start": start, "where": there, **claims})

    def probed(self, connection: Any, message: Message) -> None:
        """Handle a probe: a member asks whether this start is alive, because another start has connected to it."""
        answer = self.claim.answer(self._consensus.hears_leader(), self._consensus.clock())
        if answer is not None:  # else this start ends with its connections, and the other one is admitted
            led, settled = answer
            connection.send({"type": "probe_answer", "number": message["number"], "led": led, "settled": settled})
        self._warn_once(
            f"another process, at {message['where']}, calls itself {self._consensus.me}, as this one does: the members "
            "with which this one is connected refuse it"
        )

    def _warn_once(self, text: str) -> None:
        if text not in self._logged:
            if len(self._logged) >= LOGGED_MAX:
                self._logged.clear()
            self._logged.add(text)
            logger.warning("%s", text)

    def ended(self, connection: Any) -> None:
        """Handle the end of a connection: newcomers that waited for its start may be admitted now."""
        self._forget(connection)
        for newcomer in self._newcomers:
            newcomer.gone = newcomer.gone or newcomer.connection is connection
        for newcomer in [one for one in self._newcomers if connection in one.rivals]:
            newcomer.rivals.remove(connection)
            if not newcomer.rivals:
                self._newcomers.remove(newcomer)
                if not newcomer.gone:
                    newcomer.again()

    def _forget(self, connection: Any) -> None:
        self._starts.pop(connection, None)
        self._inquirers.discard(connection)

    # -- this start

    @property
    def settled(self) -> bool:
        """Whether this start may take part in elections."""
        return self.claim.settled and not self.claim.ends

    def connected(self, node: Node, term: int) -> None:
        """Note that a member that this one has dialled has admitted it. `term`: the other member's current term."""
        self._admitted_by(node, term)

    def _admitted_by(self, node: Node, term: int) -> None:
        first = not self.claim.held
        self.claim.admitted(node.id, term, self._consensus.clock())
        if first:  # call the others again, since a refused call counts from now on (`start_claim`)
            for other in self._transport.others():
                self._calls.soon(other)
                self._transport.dial_soon(other)

    def parted(self, node: Node) -> None:
        """Note that the connection with a member has ended."""
        if self._calls.under_way(node) is None:
            self.claim.parted(node.id, self._consensus.clock())

    def taken(self, node: Node, message: Message) -> None:
        """Handle a refusal: a member says that another start already has this member's id."""
        other = OtherStart(message["start"], message["where"], message["led"], message["settled"])
        self.claim.refused(node.id, other, self._consensus.clock())

    def step(self) -> None:
        """Ask the members that have not admitted this start. Raises NameTaken if this start has to end."""
        now_s = self._consensus.clock()
        if not self._begun:  # loading the data folder may have taken long
            self._begun, self.claim.begun_s = True, now_s
        for newcomer in [one for one in self._newcomers if now_s - one.since_s > PROBE_S]:
            for rival in list(newcomer.rivals):
                rival.disconnect()  # it has not answered the probe; `ended` then admits the newcomer
        self._ask(now_s)
        others = self._transport.others()
        reached = {node.id for node in others if self._transport.reached(node) or self._greeted(node)}
        refused_s = {node.id: max(self._transport.refused_s(node), self._calls.refused_s(node)) for node in others}
        self.claim.observe({node.id for node in others}, reached, now_s, refused_s)
        other = self.claim.lost_to(self._consensus.hears_leader(), now_s)
        if other is not None:
            raise NameTaken(
                f"another process runs as {self._consensus.me}, at {other.where}, and was there first. Give this one "
                "a name (ROTA_NODE) and an empty data folder (ROTA_DATA) of its own, or stop the other one first"
            )

    def _greeted(self, node: Node) -> bool:
        connection = self._calls.under_way(node)
        return connection is not None and connection.ready

    def _ask(self, now_s: float) -> None:
        """Send inquiries to the members that would dial this one, as they may have dialled another start of it."""
        for node in self._transport.others():
            self._attend(node, now_s)
            if self.claim.asks(node.id) and not self._transport.dials(node):
                pause_s = LATER_S if self.settled else AGAIN_S
                self._calls.ask(node, self._transport.hello(node, asks=True), now_s, pause_s)
        for node in self._calls.called():
            if node not in self._transport.others():
                self._calls.hang_up(node)

    def _attend(self, node: Node, now_s: float) -> None:
        """End an inquiry once the member has dialled, or has not answered in time; keep it alive until then."""
        connection = self._calls.under_way(node)
        if connection is None:
            return
        asked_s = self._calls.begun_s(node)
        if self.claim.asks(node.id):
            if now_s - asked_s > (PATIENCE_S if connection.ready else self._consensus.timing.dial_s):
                connection.disconnect()
        elif self._transport.reached(node):
            connection.disconnect()
        elif now_s - self._pinged_s.get(node, asked_s) > PING_S:
            self._pinged_s[node] = now_s
            connection.send({"type": "ping"})

    def _heard(self, node: Node, connection: PeerConnection, message: Message) -> None:
        """Handle a message on one of this member's inquiries."""
        kind = message["type"]
        if kind == "cluster":
            if message["member"] != node.id or not self._transport.is_ours(node, message["id"]):
                connection.disconnect()
            else:
                self._admitted_by(node, message["term"])
        elif kind == "taken":
            self.taken(node, message)
            connection.disconnect()
        elif kind == "probe":
            self.probed(connection, message)

    def _inquiry_ended(self, node: Node) -> None:
        if not self._transport.reached(node):
            self.claim.parted(node.id, self._consensus.clock())

    def close(self) -> None:
        """End all inquiries."""
        self._calls.close()
