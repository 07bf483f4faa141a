"""`rota run --wait` waits for the end of a run through errors that pass, and gives up on those that last."""

from collections.abc import Callable
from typing import Any

import pytest

from node.cli.watching import AWAY_S, BEHIND_S, MAJORITY_S, wait_for_end
from node.client import ApiProblem, Unreachable

AWAY = Unreachable("no member answered")
NO_QUORUM = ApiProblem(503, "", "There is no quorum", "")
UNKNOWN = ApiProblem(404, "", "There is no such thing", "")
STRANGER = ApiProblem(401, "", "A token is needed", "")
RUNS, DONE = {"state": "running"}, {"state": "succeeded"}

Seen = dict[str, Any] | Exception


class Watched:
    """A run on a simulated clock; `seen` gives the result of each read by its time and by whether it needs a quorum."""

    def __init__(self, seen: Callable[[float, bool], Seen]) -> None:
        self._seen = seen
        self.now_s = 0.0
        self.said: list[str] = []
        self.by_majority_s: list[float] = []

    def _read(self, majority: bool) -> dict[str, Any]:
        if majority:
            self.by_majority_s.append(self.now_s)
        seen = self._seen(self.now_s, majority)
        if isinstance(seen, Exception):
            raise seen
        return seen

    def _sleep(self, wait_s: float) -> None:
        self.now_s += wait_s
        assert self.now_s < 10_000, "it never stops retrying"

    def end(self) -> dict[str, Any]:
        return wait_for_end(self._read, self.said.append, lambda: self.now_s, self._sleep)


@pytest.mark.parametrize(
    ("error", "patience_s"), [(AWAY, AWAY_S), (NO_QUORUM, AWAY_S), (UNKNOWN, BEHIND_S), (STRANGER, 0.0)]
)
def test_an_error_that_lasts_is_raised(error: Exception, patience_s: float) -> None:
    watched = Watched(lambda *_: error)
    with pytest.raises(type(error)) as raised:
        watched.end()
    assert raised.value is error
    assert patience_s <= watched.now_s < patience_s + 1
    assert len(watched.said) == (1 if patience_s else 0), "the wait is announced once"


@pytest.mark.parametrize("error", [AWAY, NO_QUORUM, UNKNOWN])
def test_an_error_that_passes_is_waited_out_each_time(error: Exception) -> None:
    watched = Watched(lambda now_s, _: DONE if now_s > 1_010 else error if now_s % 50 < 4 else RUNS)
    assert watched.end() == DONE
    assert len(watched.said) == 21, "each wait is announced"


def test_answers_without_a_quorum_do_not_prolong_the_wait() -> None:
    """Without a quorum members answer reads with what they know, and no run ends."""
    watched = Watched(lambda _, majority: NO_QUORUM if majority else RUNS)
    with pytest.raises(ApiProblem, match="no quorum"):
        watched.end()
    assert MAJORITY_S + AWAY_S <= watched.now_s < MAJORITY_S + AWAY_S + 1


def test_the_end_of_a_run_is_believed_without_a_quorum() -> None:
    watched = Watched(lambda now_s, majority: DONE if now_s > 30 else NO_QUORUM if majority else RUNS)
    assert watched.end() == DONE


def test_not_every_read_needs_a_quorum() -> None:
    watched = Watched(lambda now_s, _: DONE if now_s > 100 else RUNS)
    assert watched.end() == DONE
    assert 15 <= len(watched.by_majority_s) <= 100 / MAJORITY_S
