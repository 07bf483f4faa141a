"""`rota log -f` follows a run from one attempt to the next, whichever members are unreachable."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from node.cli.following import LogFollower
from node.client import ApiProblem, Unreachable

AWAY = ApiProblem(503, "", "The member that has it is away", "node-1 does not answer")
GONE = Unreachable("the answer has broken off: reset")
NO_LOG = ApiProblem(404, "", "There is no such thing", "it wrote none")


Seen = dict[str, Any] | Exception


def run(state: str, *nodes: str) -> dict[str, Any]:
    attempts = [{"attempt": number, "node": node} for number, node in enumerate(nodes, 1)]
    return {"state": state, "attempt": len(nodes) or None, "attempts": attempts}


class Followed:
    """A run with the results of each read of it, and of each read of an attempt's log."""

    def __init__(self, seen: Sequence[Seen], logs: Sequence[tuple[int | None, Sequence[bytes | Exception]]]) -> None:
        self._seen = list(seen)
        self._logs = list(logs)
        self.out = b""
        self.said: list[str] = []
        self.now_s = 0.0

    def _read_run(self) -> dict[str, Any]:
        seen = self._seen.pop(0) if len(self._seen) > 1 else self._seen[0]
        if isinstance(seen, Exception):
            raise seen
        return seen

    def _pieces(self, attempt: int | None) -> Iterator[bytes]:
        expected, pieces = self._logs.pop(0)
        assert attempt == expected
        for piece in pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    def _write(self, piece: bytes) -> None:
        self.out += piece

    def _head(self, attempt: dict[str, Any]) -> None:
        self.out += f"==> {attempt['attempt']} on {attempt['node']}\n".encode()

    def _sleep(self, wait_s: float) -> None:
        self.now_s += wait_s
        assert self.now_s < 1000, "it never stops retrying"

    def follow(self) -> bytes:
        LogFollower(
            self._read_run, self._pieces, self._write, self._head, self.said.append, lambda: self.now_s, self._sleep
        ).follow()
        assert self._logs == [], "not all was read"
        return self.out


def test_attempts_come_one_after_the_other() -> None:
    seen = [run("running", "a"), run("orphaned", "a"), run("orphaned", "a"), run("running", "a", "b")]
    followed = Followed([*seen, run("succeeded", "a", "b")], [(1, [b"one\n", b"two\n"]), (2, [b"three\n"])])
    assert followed.follow() == b"one\ntwo\n==> 2 on b\nthree\n"
    assert followed.said == []


def test_it_begins_with_the_latest_attempt_and_waits_for_the_first() -> None:
    assert Followed([run("succeeded", "a", "b")], [(2, [b"two"])]).follow() == b"two"
    assert Followed([run("waiting"), run("claimed", "a"), run("succeeded", "a")], [(1, [b"one"])]).follow() == b"one"


def test_a_log_that_breaks_off_is_read_on_where_it_was() -> None:
    seen = [run("running", "a"), run("running", "a"), run("succeeded", "a")]
    followed = Followed(seen, [(1, [b"one\n", GONE]), (1, [b"one\ntw", b"o\n"])])
    assert followed.follow() == b"one\ntwo\n"
    assert len(followed.said) == 1
    assert "broken off" in followed.said[0]
    assert "retrying" in followed.said[0]


def test_a_log_on_an_unreachable_node_is_reported_and_skipped() -> None:
    seen = [run("running", "a"), run("orphaned", "a"), run("running", "a", "b"), run("succeeded", "a", "b")]
    followed = Followed(seen, [(1, [b"one\n", GONE]), (1, [AWAY]), (2, [b"two\n"])])
    assert followed.follow() == b"one\n==> 2 on b\ntwo\n"
    [said] = followed.said
    assert "the log of attempt 1 on a cannot be read" in said
    assert "node-1 does not answer; the rest of it is skipped" in said


def test_an_attempt_without_a_log_is_reported() -> None:
    seen = [run("waiting", "a"), run("waiting", "a"), run("succeeded", "a", "b")]
    followed = Followed(seen, [(1, [NO_LOG]), (1, [NO_LOG]), (2, [b"two\n"])])
    assert followed.follow() == b"==> 2 on b\ntwo\n"
    assert "it wrote none" in followed.said[0]


def test_an_error_that_lasts_is_raised() -> None:
    with pytest.raises(ApiProblem, match="token"):
        Followed([ApiProblem(401, "", "A token is needed", "")], []).follow()
    followed = Followed([run("running", "a"), Unreachable("nobody")], [(1, [GONE])])
    with pytest.raises(Unreachable, match="nobody"):
        followed.follow()
    assert followed.now_s >= 60
    with pytest.raises(ApiProblem, match="wrote none"):
        Followed([run("cancelled")], [(None, [NO_LOG])]).follow()
