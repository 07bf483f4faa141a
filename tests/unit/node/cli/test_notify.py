"""How `rota notify list` says in a line how sending on a channel goes."""

from typing import Any

import pytest

from node.cli.notify import _state

AGO = "2020-01-01T00:00:00Z"
FAILED: dict[str, Any] = {
    "failures": 3,
    "waiting_since": AGO,
    "retry_at": AGO,
    "last": {"at": AGO, "node": "node-2", "notices": 1, "error": "the receiver answered 500"},
}


@pytest.mark.parametrize(
    ("changes", "begins", "ends"),
    [
        ({}, "ok", "ok"),
        ({"definition": {"enabled": False}}, "off", "off"),
        (FAILED, "3 tries failed, the oldest notice came ", "from node-2: the receiver answered 500"),
        (FAILED | {"waiting_since": None, "retry_at": None}, "3 tries failed; from node-2", "answered 500"),
        ({"given_up": 2, "given_up_at": AGO}, "ok; gave up on 2, last ", " ago"),
        (FAILED | {"given_up": 2, "given_up_at": AGO, "dropped": 4}, "3 tries failed", " ago; 4 had no room"),
        ({"dropped_successes": 9}, "ok; 9 successes", "had no room"),
        ({"digest_next": "2999-01-01T07:00:00Z"}, "ok; next digest in 3", ""),
    ],
)
def test_the_state_says_how_it_goes_now_and_what_was_never_told(
    changes: dict[str, Any], begins: str, ends: str
) -> None:
    well: dict[str, Any] = {
        "definition": {"enabled": True},
        "failures": 0,
        "waiting_since": None,
        "retry_at": None,
        "given_up": 0,
        "given_up_at": None,
        "dropped": 0,
        "dropped_successes": 0,
        "digest_next": None,
        "last": None,
    }
    shown = _state(well | changes)
    assert shown.startswith(begins)
    assert shown.endswith(ends)
