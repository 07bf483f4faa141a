"""What PySyncObj 0.3.17 does wrong with connections, and what Rota does instead (docs/explanation/raft.md)."""

import os
from pathlib import Path
from typing import Any

import pytest
from pysyncobj.tcp_connection import CONNECTION_STATE
from pysyncobj.transport import TCPTransport

from node.raft import messages
from node.raft.callers import UNKNOWN_MAX, UNKNOWN_S
from node.raft.connections import HANDSHAKE_BYTES
from node.raft.duplicate_starts import PROBE_S
from node.raft.messages import MESSAGE_BYTES, BadMessage
from node.raft.ports import RaftTiming
from node.raft.start_claim import PATIENCE_S
from node.raft.transport import BACKLOG_BYTES, PIECE_BACKLOG_BYTES, PING_S, STRANGER_S
from node.raft.unlisted import DIAL_SILENT_S
from testkit.wired import Wire, Wired, World


class Caller:
    """A connection that a caller has opened to a member; the keys have been exchanged."""

    def __init__(self) -> None:
        self.state = CONNECTION_STATE.CONNECTED
        self.ready = True
        self.peer = "10.0.0.9"
        self.greeted = False
        self.sent: list[Any] = []
        self.on_message: Any = None
        self.on_disconnected: Any = None
        self.on_greeted: Any = None
        self.on_bad: Any = None
        self.limit_bytes = HANDSHAKE_BYTES
        self.refused_s = float("-inf")

    def setOnMessageReceivedCallback(self, callback: Any) -> None:  # noqa: N802 - the library's names
        self.on_message = callback

    def setOnDisconnectedCallback(self, callback: Any) -> None:  # noqa: N802
        self.on_disconnected = callback

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def greet(self) -> None:
        self.greeted = True

    def disconnect(self) -> None:
        was_open, self.state = self.open, CONNECTION_STATE.DISCONNECTED
        if was_open and self.on_disconnected:
            self.on_disconnected()

    @property
    def open(self) -> bool:
        return bool(self.state == CONNECTION_STATE.CONNECTED)


def call(member: Wired) -> Caller:
    caller = Caller()
    member.transport._onNewIncomingConnection(caller)
    return caller


def hello(member: str, called: str, start: str = "", *, asks: bool = False) -> Any:
    said = {"type": "hello", "member": member, "cluster": "", "called": called}
    return {**said, "start": start, "port": 1, "asks": asks}


def ours(member: str, start: str = "", term: int = 1) -> Any:
    return {"type": "cluster", "id": "", "member": member, "start": start, "term": term}


@pytest.mark.parametrize("name", ["readonly", "stranger"])
def test_only_members_are_admitted(world: World, name: str) -> None:
    """The library accepts any caller that says "readonly", sends all entries there, and takes messages from it."""
    leader, follower, _ = world.lead()
    for message in (hello(name, leader.me), {"type": "timeout_now", "term": 9}, {"type": "ping"}):
        caller = call(leader)
        leader.transport._onIncomingMessageReceived(caller, message)
        assert not caller.open
    assert leader.wire_to(follower.me).state == CONNECTION_STATE.CONNECTED
    assert leader.consensus.readonlyNodes == set()


def test_administration_messages_are_refused(world: World) -> None:
    """The library adds and removes members for any caller, and tells its status."""
    leader, _, _ = world.lead()
    for order in (["add", "d"], ["remove", "b"], ["status"], ["set_version", 3], ["transfer"]):
        with pytest.raises(BadMessage):
            messages.unpack(messages.pack(order))  # type: ignore[arg-type]
        assert leader.transport._onUtilityMessageCallbacks == {}


def test_a_new_connection_of_a_member_closes_its_old_one(world: World) -> None:
    """The library never closes it, and takes messages that still arrive on it."""
    leader, follower, _ = world.lead()
    before = leader.wire_to(follower.me)
    caller = call(leader)
    leader.transport._onIncomingMessageReceived(caller, hello(follower.me, leader.me))
    assert caller.open
    assert leader.transport._connections[leader.node(follower.me)] is caller
    assert before.state == CONNECTION_STATE.DISCONNECTED


def test_a_call_from_a_member_that_was_dialled_is_closed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides dial if neither has for a while: exactly one of the two connections must stay."""
    leader, follower, _ = world.lead()
    monkeypatch.setattr(leader.transport, "_shouldConnect", lambda _node: True)
    before, caller = leader.wire_to(follower.me), call(leader)
    leader.transport._onIncomingMessageReceived(caller, hello(follower.me, leader.me))
    assert (caller.open, leader.wire_to(follower.me)) == (False, before)
    world.cut(leader.me, follower.me)
    caller = call(leader)
    leader.transport._onIncomingMessageReceived(caller, hello(follower.me, leader.me))
    assert (caller.open, leader.transport._connections[leader.node(follower.me)]) == (True, caller)


def test_a_member_that_should_dial_and_does_not_is_dialled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log is behind and may not name this member yet, so that it does not dial."""
    leader, follower, _ = world.lead()
    world.cut(leader.me, follower.me)
    dialled: list[tuple[object, object]] = []
    monkeypatch.setattr(TCPTransport, "addNode", lambda transport, node: dialled.append((transport, node)))
    world.run(DIAL_SILENT_S / 2)
    assert dialled == []
    world.run(DIAL_SILENT_S)
    assert {node for transport, node in dialled if transport is leader.transport} == {leader.node(follower.me)}


@pytest.mark.parametrize("ready", [False, True])
def test_a_dial_that_hangs_times_out(world: World, ready: bool) -> None:
    """The library waits for the kernel, which takes minutes."""
    leader, follower, _ = world.lead()
    wire = Wire(world, leader.me, follower.me)
    wire.state, wire.ready = CONNECTION_STATE.CONNECTING, ready
    leader.transport._connections[leader.node(follower.me)] = wire
    leader.transport._lastConnectAttempt[leader.node(follower.me)] = world.now_s
    world.now_s += RaftTiming().dial_s / 2
    leader.tick()
    assert wire.state == CONNECTION_STATE.CONNECTING
    world.now_s += RaftTiming().dial_s
    leader.tick()
    assert wire.state == CONNECTION_STATE.DISCONNECTED


def test_an_unidentified_caller_is_disconnected_after_a_timeout(world: World) -> None:
    leader, _, _ = world.lead()
    caller = call(leader)
    world.now_s += UNKNOWN_S - 1
    leader.tick()
    assert caller.open
    world.now_s += 2
    leader.tick()
    assert not caller.open


def test_an_idle_connection_has_tcp_keepalive(world: World) -> None:
    """Between followers nothing is sent; the library finds out that one end is dead when the other next writes."""
    _, one, other = world.lead()
    sent = len(one.sent_to(other.me, "ping"))
    world.run(4 * PING_S)
    assert len(one.sent_to(other.me, "ping")) - sent >= 3
    assert world.now_s - one.transport.heard[other.me] <= PING_S + 0.1


def test_above_the_limit_the_oldest_unidentified_caller_is_disconnected(world: World) -> None:
    """Each holds a file descriptor. A member that calls among them is accepted."""
    leader, follower, _ = world.lead()
    callers = [call(leader) for _ in range(UNKNOWN_MAX)]
    assert all(caller.open for caller in callers)
    member = call(leader)
    assert [caller.open for caller in callers] == [False] + [True] * (UNKNOWN_MAX - 1)
    leader.transport._onIncomingMessageReceived(member, hello(follower.me, leader.me))
    more = [call(leader) for _ in range(2 * UNKNOWN_MAX)]
    assert sum(caller.open for caller in callers + more) == UNKNOWN_MAX
    assert member.open


def test_only_members_may_send_large_messages(world: World) -> None:
    leader, follower, _ = world.lead()
    caller = call(leader)
    assert caller.limit_bytes == HANDSHAKE_BYTES
    leader.transport._onIncomingMessageReceived(caller, hello(follower.me, leader.me))
    assert caller.limit_bytes == MESSAGE_BYTES


def dial(member: Wired, other: str) -> Caller:
    """The member's connection to the address of another, as soon as the keys are exchanged there."""
    made = Caller()
    made.ready = False
    node = member.node(other)
    member.transport._onNodeDisconnected(node)
    member.transport._connections[node] = made
    made.on_disconnected = lambda: member.transport._onDisconnected(made)
    member.transport._onOutgoingConnected(made)
    assert (made.greeted, made.sent) == (True, [])
    made.on_greeted()
    return made


def test_an_answer_from_another_member_at_the_dialled_address_is_refused(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The library attributes any answer to the dialled member: one member's acknowledgements counted as two."""
    leader, one, other = world.lead()
    world.cut(leader.me, one.me)
    node, inbound = leader.node(one.me), leader.consensus.inbound
    made = dial(leader, one.me)
    assert made.sent == [hello(leader.me, one.me)]
    acknowledged: Any = {"type": "next_node_idx", "next_node_idx": 10**6, "success": True, "reset": False}
    acknowledged["term"] = leader.consensus.raftCurrentTerm
    taken: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inbound, "take", lambda *what: taken.append(what))
        made.on_message(acknowledged)
        assert not leader.consensus.isNodeConnected(node), "the other end has not introduced itself yet"
        assert not leader.transport.send(node, {"type": "ping"})
        for _ in range(2):
            made.on_message(ours(other.me))
            made.on_message(acknowledged)
    assert (made.open, taken, leader.consensus.isNodeConnected(node)) == (False, [], False)
    assert leader.transport._lastConnectAttempt[node] == world.now_s + STRANGER_S
    assert caplog.text.count(f"{other.me} answers at the address of {one.me}") == 1

    made = dial(leader, one.me)
    made.on_message(ours(one.me))
    assert (made.open, made.limit_bytes) == (True, MESSAGE_BYTES)
    assert leader.consensus.isNodeConnected(node)
    assert leader.transport.send(node, {"type": "ping"})


def test_a_second_start_is_refused_once_the_first_answered_a_ping(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The newest call took the place of the one before: a member and its clone were connected in turns."""
    leader, follower, _ = world.lead()
    first, second = call(leader), call(leader)
    leader.transport._onIncomingMessageReceived(first, hello(follower.me, leader.me, "1"))
    leader.transport._onIncomingMessageReceived(second, hello(follower.me, leader.me, "2"))
    [probe] = [message for message in first.sent if message["type"] == "probe"]
    assert (first.open, second.sent, leader.transport._connections[leader.node(follower.me)]) == (True, [], first)
    first.on_message({"type": "probe_answer", "number": probe["number"], "led": True, "settled": True})
    assert second.sent == [{"type": "taken", "start": "1", "where": "10.0.0.9:1", "led": True, "settled": True}]
    assert leader.transport._connections[leader.node(follower.me)] is first
    for _ in range(2):
        assert caplog.text.count(f"calls itself {follower.me}, which runs at 10.0.0.9:1 and answers") == 1
        leader.transport._onIncomingMessageReceived(call(leader), hello(follower.me, leader.me, "2"))
        first.on_message({"type": "probe_answer", "number": probe["number"] + 1, "led": True, "settled": True})


def test_a_calling_second_start_is_told_of_the_dialled_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was disconnected without an answer, did not learn of the other start, and stayed beside it."""
    leader, follower, _ = world.lead()
    monkeypatch.setattr(type(leader.transport), "_shouldConnect", lambda _self, _node: True)
    leader.transport.duplicate_starts._starts[leader.wire_to(follower.me)] = (
        leader.node(follower.me),
        "1",
        "10.0.0.9:1",
    )
    for start, told in (("1", False), ("2", True)):
        caller = call(leader)
        leader.transport._onIncomingMessageReceived(caller, hello(follower.me, leader.me, start))
        assert (caller.open, leader.wire_to(follower.me).sent[-1]["type"] == "probe") == (told, told)
    number = leader.wire_to(follower.me).sent[-1]["number"]
    said = {"type": "probe_answer", "number": number, "led": True, "settled": True}
    leader.transport.duplicate_starts.answered(leader.wire_to(follower.me), said)
    assert caller.sent[-1]["type"] == "taken"


@pytest.mark.parametrize("how", ["ends", "says nothing"])
def test_a_second_start_replaces_one_that_does_not_answer(world: World, how: str) -> None:
    """After kill -9, or after its machine has vanished: that connection still looks open."""
    leader, follower, _ = world.lead()
    first, second = call(leader), call(leader)
    leader.transport._onIncomingMessageReceived(first, hello(follower.me, leader.me, "1"))
    leader.transport._onIncomingMessageReceived(second, hello(follower.me, leader.me, "2"))
    assert second.sent == []
    if how == "ends":
        first.disconnect()
    else:
        world.now_s += PROBE_S + 0.1
        leader.tick()
    assert (first.open, second.open, second.sent[0]) == (False, True, ours(leader.me))
    assert leader.transport._connections[leader.node(follower.me)] is second


def test_a_reconnecting_start_is_admitted_at_once(world: World) -> None:
    leader, follower, _ = world.lead()
    first, second = call(leader), call(leader)
    for caller in (first, second):
        leader.transport._onIncomingMessageReceived(caller, hello(follower.me, leader.me, "1"))
    assert (first.open, second.open) == (False, True)


def test_a_name_query_is_answered_and_not_kept_as_a_connection(world: World) -> None:
    """The member with the lower id never dials: its clone waited for a leader for ever."""
    leader, follower, _ = world.lead()
    before = leader.wire_to(follower.me)
    leader.transport.duplicate_starts._starts.clear()
    asks = call(leader)
    leader.transport._onIncomingMessageReceived(asks, hello(follower.me, leader.me, "1", asks=True))
    assert asks.sent == [ours(leader.me)]
    assert leader.wire_to(follower.me) is before
    also = call(leader)
    leader.transport._onIncomingMessageReceived(also, hello(follower.me, leader.me, "2", asks=True))
    asks.on_message({"type": "probe_answer", "number": asks.sent[-1]["number"], "led": False, "settled": False})
    assert also.sent == [{"type": "taken", "start": "1", "where": "10.0.0.9:1", "led": False, "settled": False}]
    asks.on_message({"type": "apply_command", "command": b"\0x"})
    assert not asks.open


def test_an_unsettled_start_takes_part_in_no_election(world: World) -> None:
    """A clone would vote once more in a term in which the member has voted, or lead by its own vote twice."""
    leader, one, other = world.lead()
    for member in (one, other):
        member.transport.duplicate_starts.claim.settled = False
        member.transport.duplicate_starts.claim.begun_s = world.now_s
    world.crash(leader.me)
    for name in (one.me, other.me):
        world.cut(name, leader.me)
    world.run(5)
    assert world.leader() is None, "each waits for the other's answer"
    world.until(world.leader, PATIENCE_S)


def test_a_start_neither_votes_nor_stands_in_a_term_in_which_another_start_may_have_voted(world: World) -> None:
    """Two candidates of one term, each with the vote of another start of the third member, would both lead."""
    leader, one, other = world.lead()
    fence = leader.consensus.raftCurrentTerm + 5
    claim = one.transport.duplicate_starts.claim
    claim.fence = fence
    standing = one.consensus.standing()
    request = {"type": "request_vote", "last_log_term": standing.last_term, "last_log_index": standing.last_index}
    request |= {"life": 1, "founding": ""}
    for term, votes in ((fence, 0), (fence + 1, 1)):
        one.take(other.me, {**request, "term": term})
        assert len(one.sent_to(other.me, "response_vote")) == votes
    claim.fence = fence + 5
    world.crash(leader.me)
    for name in (one.me, other.me):
        world.cut(name, leader.me)
    assert world.until(world.leader, 10).consensus.raftCurrentTerm > fence + 5


def test_votes_of_two_starts_of_one_member_count_once(five: World) -> None:
    """Three of five are a majority, and a member and its clone count as one."""
    candidate, voter = five.running["a"], five.running["b"]
    five.until(five.leader)
    consensus = candidate.consensus
    for name in list(five.running):
        if name != candidate.me:
            five.cut(candidate.me, name)
    consensus.adopt_term(consensus.raftCurrentTerm + 1)
    consensus._SyncObj__raftState = 1
    consensus._SyncObj__votesCount = 1
    vote = {"type": "response_vote", "term": consensus.raftCurrentTerm, "life": 1, "lives": {}}
    vote["candidate"] = consensus.recovery._life
    for _start in range(3):
        candidate.take(voter.me, vote)
        consensus.inbound.take(candidate.node(voter.me), vote)
    assert not consensus.is_leader
    assert consensus._SyncObj__votesCount == 2


def test_a_caller_looking_for_another_member_is_told_this_members_name(world: World) -> None:
    """It is connected already under its own name, and that connection must not be closed."""
    leader, follower, other = world.lead()
    caller, before = call(leader), leader.wire_to(follower.me)
    leader.transport._onIncomingMessageReceived(caller, hello(follower.me, other.me))
    assert caller.sent == [ours(leader.me)]
    assert leader.wire_to(follower.me) is before
    assert before.state == CONNECTION_STATE.CONNECTED
    caller.on_message({"type": "ping"})
    assert not caller.open


def test_the_send_buffer_of_a_member_that_does_not_read_is_bounded(world: World) -> None:
    """The library appends all messages to its buffer, without a limit."""
    leader, follower, _ = world.lead()
    wire = leader.wire_to(follower.me)
    wire.backlog_bytes = BACKLOG_BYTES + 1
    sent = len(wire.sent)
    leader.consensus.put(b"more")
    leader.tick()
    assert [message for message in wire.sent[sent:] if message["type"] == "append_entries"] == []
    wire.backlog_bytes = PIECE_BACKLOG_BYTES + 1
    assert leader.consensus.snapshots.getTransmissionData(leader.node(follower.me)) is None
    wire.backlog_bytes = 0
    world.until(lambda: follower.applied[-1:] == [b"more"])


def pipes() -> int:
    descriptors = Path("/proc/self/fd")
    return sum(os.readlink(one).startswith("pipe:") for one in descriptors.iterdir() if one.is_symlink())  # noqa: PTH115


def test_closing_a_member_leaves_no_descriptor_open(world: World) -> None:
    """The library does not close the pipe that wakes it."""
    _, follower, _ = world.lead()
    world.crash(follower.me)
    before = pipes()
    world.start(follower.me)
    assert pipes() == before + 2
    world.running.pop(follower.me).consensus.close()
    assert pipes() == before
