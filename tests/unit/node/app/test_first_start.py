"""The first start of a node, before Raft's thread asks the other members."""

from types import SimpleNamespace
from typing import Any

from node.app.member import LocalMember
from node.state.entries import Seed


def test_a_first_start_names_the_members_that_have_not_answered_before_raft_asks_them() -> None:
    seeds = tuple(Seed(name, name, 7000, 8100) for name in ("a", "b", "c"))
    member: Any = SimpleNamespace(
        _auto_join=SimpleNamespace(outlook=None),
        _config=SimpleNamespace(node="a", members=seeds),
        _first_start=True,
        _raft=SimpleNamespace(turns=0),
    )
    outlook: Any = LocalMember.outlook
    assert "b, c have not answered" in str(outlook.fget(member))
    member._raft.turns = 9
    assert outlook.fget(member) is None
