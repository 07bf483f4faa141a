"""Small views for the tests: members a, b and c, up in incarnation 1, and `a` leads in term 1."""

from dataclasses import replace
from typing import Any

from node.liveness.view import Peer, View
from node.state.value import MemberStatus, Settings


def peer(incarnation: int = 1, status: MemberStatus = "up") -> Peer:
    return Peer(incarnation, status, "127.0.0.1", 7000)


def view(me: str = "a", **changes: Any) -> View:
    plain = View(
        me=me,
        incarnation=1,
        term=1,
        leader="a",
        lead_applied=True,
        peers={name: peer() for name in "abc"},
        settings=Settings(),
    )
    return replace(plain, **changes)


def having(name: str, incarnation: int = 1, status: MemberStatus = "up") -> dict[str, Peer]:
    """The three, with one of them different."""
    return {other: peer() for other in "abc"} | {name: peer(incarnation, status)}
