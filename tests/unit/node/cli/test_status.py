"""The first lines of `rota status`."""

import re
from typing import Any

import pytest

from node.cli.cluster import _headline, _watchdog

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


@pytest.mark.parametrize(
    ("pings", "line"),
    [
        ({"at": "2020-01-01T00:00:00Z"}, "watchdog: pinged .* ago"),
        (
            {"at": "2020-01-01T00:00:00Z", "error": "it answered\x1b 500"},
            r"watchdog: not pinged, .*: it answered\\x1b 500",
        ),
        ({"at": "2020-01-01T00:00:00Z", "withheld": "nightly is overdue"}, "watchdog: withheld, nightly is overdue"),
        ({}, "watchdog: node-2 pings it; ask node-2 for the outcome"),
        ({"node": "node-1"}, "watchdog: not pinged yet"),
    ],
)
def test_it_says_how_the_outside_watcher_is_pinged(pings: dict[str, Any], line: str) -> None:
    known = {"node": "node-2", "every_s": 60, "at": None, "withheld": None, "error": None}
    [shown] = _watchdog(FOUNDED | {"watchdog": known | pings})
    assert re.fullmatch(line, shown.plain)
    assert _watchdog(FOUNDED | {"watchdog": None}) == []
