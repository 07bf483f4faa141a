"""A term is published before a vote is sent in it: evidence of a majority relies on that."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from node.cli.local import wait_for
from node.cli.ports import free_ports
from node.raft.adapter import Raft
from node.raft.ports import RaftOwner, RaftRole, RaftSettings
from node.raft.transport.transport import Transport
from node.state.entries import ProposalId
from node.state.value import Result

pytestmark = pytest.mark.integration


class Nothing:
    """A state machine without effect."""

    cluster_id = ""

    def apply(self, _entry: bytes) -> Sequence[tuple[ProposalId, Result]]:
        return ()

    def capture(self) -> Callable[[], Iterator[bytes]]:
        return lambda: iter(())

    def restore(self, _pieces: Iterable[bytes]) -> None:
        """Nothing to replace."""


def test_no_vote_is_sent_in_an_unpublished_term(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, int] = {}
    votes: list[tuple[str, int, int]] = []
    send = Transport.send

    def watched(self: Any, node: Any, message: Any) -> bool:
        if message["type"] in ("request_vote", "response_vote"):
            me = self._consensus.me
            votes.append((me, self._consensus.raftCurrentTerm, told.get(me, 0)))
        return send(self, node, message)

    monkeypatch.setattr(Transport, "send", watched)
    addresses = {f"n{number}": ("127.0.0.1", port) for number, port in enumerate(free_ports(3), 1)}

    def member(name: str) -> Raft:
        def on_role(role: RaftRole) -> None:
            told[name] = role.term

        settings = RaftSettings(name, addresses, tmp_path / name, "a secret of the members")
        return Raft(settings, Nothing(), RaftOwner(on_role))

    members = {name: member(name) for name in addresses}
    with ExitStack() as stack:
        for one in members.values():
            one.start()
            stack.callback(one.stop)
        leader = wait_for("a leader", lambda: next((one for one in members.values() if one.role.is_leader), None))
        leader.stop()
        wait_for("another", lambda: next((one for one in members.values() if one.role.is_leader), None))
    assert {name for name, _, _ in votes} >= set(addresses) - {leader.me}
    assert [vote for vote in votes if vote[1] > vote[2]] == []
