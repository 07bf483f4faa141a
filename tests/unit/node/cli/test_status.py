"""The first line of `rota status`."""

from typing import Any

import pytest

from node.cli.cluster import _headline

FOUNDED: dict[str, Any] = {
    "id": "c-1",
    "node": "node-1",
    "leader": "node-2",
    "term": 3,
    "index": 17,
    "quorum": True,
    "waiting_for": None,
}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "Rota c-1  leader node-2  term 3  index 17  quorum"),
        ({"leader": None, "quorum": False}, "Rota c-1  leader -  term 3  index 17  NO QUORUM"),
        (
            {"id": "", "leader": None, "quorum": False, "term": 0},
            "node-1 belongs to no cluster yet: it is being founded, or this node is joining (no leader is elected yet)",
        ),
        (
            {"id": "", "quorum": False},
            "node-1 belongs to no cluster yet: it is being founded, or this node is joining (node-2 leads)",
        ),
        ({"id": "", "waiting_for": "node-3 is silent"}, "node-1 belongs to no cluster yet: node-3 is silent"),
    ],
    ids=["founded", "no quorum", "election of the founding", "joining", "waits for members"],
)
def test_the_headline_says_whether_there_is_a_cluster(changes: dict[str, Any], line: str) -> None:
    assert _headline(FOUNDED | changes).plain.startswith(line)
