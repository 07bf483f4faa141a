"""What PySyncObj 0.3.17 does wrong with connections, and what Rota does instead (docs/explanation/raft.md)."""

import os
from pathlib import Path
from typing import Any

import pytest
from pysyncobj.tcp_connection import CONNECTION_STATE
from pysyncobj.transport import TCPTransport

from node.raft.ports import RaftTiming
from node.raft.transport.callers import UNKNOWN_MAX, UNKNOWN_S
from node.raft.transport.transport import BACKLOG_BYTES, PIECE_BACKLOG_BYTES, PING_S, STRANGER_S
from node.raft.transport.unlisted import DIAL_SILENT_S
from node.raft.wire import messages
from node.raft.wire.connections import HANDSHAKE_BYTES
from node.raft.wire.messages import MESSAGE_BYTES, BadMessage
from testkit.raft.wired import Wire, World
from tests.unit.node.raft.callers import call, dial, hello, ours


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
