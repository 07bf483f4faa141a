"""What is recorded of attempts, and what is said of those that cannot be ended."""

import os

import pytest

from node.execution.leftovers import _remaining


def test_what_is_another_users_is_told_from_what_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(pid: int, _: int) -> None:
        if pid == 51:
            raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", kill)
    assert _remaining([50, 51]) == (
        "processes 51 of an attempt are another user's (sudo?), and this node may not signal them; end them as root "
        "(kill -9 51), or restart the machine or container"
    )
    assert "processes 50, 52 of an attempt do not end when killed" in _remaining([50, 52])
