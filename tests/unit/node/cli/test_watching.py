"""`rota run --wait` sees a run to its end, and gives up what does not pass (DESIGN.md, section 10)."""

from collections.abc import Callable
from typing import Any

import pytest

from node.cli.watching import AWAY_S, BEHIND_S, MAJORITY_S, watch
from node.client import ApiProblem, Unreachable

AWAY = Unreachable("no member answered")
NO_QUORUM = ApiProblem(503, "", "There is no quorum", "")
UNKNOWN = ApiProblem(404, "", "There is no such thing", "")
STRANGER = ApiProblem(401, "", "A token is needed", "")
RUNS, DONE = {"state": "running"}, {"state": "succeeded"}

Seen = dict[str, Any] | Exception


class Watched:
    """A run that is watched on a clock of its own; `seen` says what is seen of it when, and by how many."""

    def __init__(self, seen: Callable[[float, bool], Seen]) -> None:
        self._seen = seen
        self.now_s = 0.0
        self.said: list[str] = []
        self.by_majority_s: list[float] = []

    def _look(self, majority: bool) -> dict[str, Any]:
        if majority:
            self.by_majority_s.append(self.now_s)
        seen = self._seen(self.now_s, majority)
        if isinstance(seen, Exception):
            raise seen
        return seen

    def _sleep(self, wait_s: float) -> None:
        self.now_s += wait_s
        assert self.now_s < 10_000, "it never gives up"

    def end(self) -> dict[str, Any]:
        return watch(self._look, self.said.append, lambda: self.now_s, self._sleep)


@pytest.mark.parametrize(
    ("error", "patience_s"), [(AWAY, AWAY_S), (NO_QUORUM, AWAY_S), (UNKNOWN, BEHIND_S), (STRANGER, 0.0)]
)
def test_what_does_not_pass_is_given_up(error: Exception, patience_s: float) -> None:
    watched = Watched(lambda *_: error)
    with pytest.raises(type(error)) as raised:
        watched.end()
    assert raised.value is error
    assert patience_s <= watched.now_s < patience_s + 1
    assert len(watched.said) == (1 if patience_s else 0), "it is said once that it is waited for"


@pytest.mark.parametrize("error", [AWAY, NO_QUORUM, UNKNOWN])
def test_what_passes_is_waited_for_as_often_as_it_comes(error: Exception) -> None:
    watched = Watched(lambda now_s, _: DONE if now_s > 1_010 else error if now_s % 50 < 4 else RUNS)
    assert watched.end() == DONE
    assert len(watched.said) == 21, "each time it is said"


def test_members_that_tell_what_they_know_without_a_majority_are_seen_through() -> None:
    """Section 9: reads go on without a quorum, and no run ends."""
    watched = Watched(lambda _, majority: NO_QUORUM if majority else RUNS)
    with pytest.raises(ApiProblem, match="no quorum"):
        watched.end()
    assert MAJORITY_S + AWAY_S <= watched.now_s < MAJORITY_S + AWAY_S + 1


def test_a_run_that_has_ended_needs_no_majority_to_be_believed() -> None:
    watched = Watched(lambda now_s, majority: DONE if now_s > 30 else NO_QUORUM if majority else RUNS)
    assert watched.end() == DONE


def test_a_majority_is_not_asked_at_every_look() -> None:
    watched = Watched(lambda now_s, _: DONE if now_s > 100 else RUNS)
    assert watched.end() == DONE
    assert 15 <= len(watched.by_majority_s) <= 100 / MAJORITY_S
