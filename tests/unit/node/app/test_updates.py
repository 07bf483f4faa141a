"""What a member's core does, passed on to the history, to listeners and to the log."""

import logging
from dataclasses import replace

import pytest

from node.app.updates import Updates
from node.duty.ownership import Ownership
from node.http.node_port import PlacementComputed
from node.replication.state_machine import StateChange
from node.state.attempts import Began, Finish
from node.state.value import EndedRun
from tests.unit.node.loop import serving
from tests.unit.node.state.given import DAY_US, NOW_US, cluster

FOUNDED = cluster("a", "b").state


class NothingExported:
    """A member that sends neither traces nor lineage."""

    def applied(self, change: StateChange, /) -> None:
        pass

    def delivered(self, changes: list[StateChange], /) -> None:
        pass


class Written:
    """A history that remembers what it is told. `ready`: whether the member has caught up."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []
        self.ready = True
        self.updates = Updates("a", self, lambda: self.ready, NothingExported())

    def record(self, index: int, ended: tuple[tuple[int, EndedRun], ...], /) -> None:
        self.told.append(("record", index))

    def jumped(self, index: int, /) -> None:
        self.told.append(("jumped", index))


def test_the_history_hears_of_every_entry_and_of_a_snapshot_that_it_is_one() -> None:
    written = Written()
    later = replace(FOUNDED, index=FOUNDED.index + 5)
    written.updates.applied(StateChange(FOUNDED, later, frozenset()))
    written.updates.applied(StateChange(FOUNDED, later, None))
    assert written.told == [("record", later.index), ("jumped", later.index), ("record", later.index)]


def test_listeners_hear_of_changes_and_of_each_placement_once() -> None:
    async def scenario() -> None:
        updates = Written().updates
        heard = updates.listen()
        change = StateChange(FOUNDED, replace(FOUNDED, index=FOUNDED.index + 1), frozenset())
        first, second = Ownership.of(FOUNDED), Ownership.of(change.after)
        updates.delivered([change])
        for ownership in (first, first, second):
            updates.placed(FOUNDED, ownership)
        updates.close()
        assert [update async for update in heard] == [
            change,
            PlacementComputed(None, first),
            PlacementComputed(first, second),
        ]

    serving(scenario())


@pytest.mark.parametrize("ready", [True, False], ids=["caught up", "replaying its log"])
def test_failures_are_logged_and_those_of_before_a_start_are_not(ready: bool, caplog: pytest.LogCaptureFixture) -> None:
    history = cluster("a", "b")
    history.put("t", schedule={"every_s": 86400})
    run = history.claim("t", NOW_US + DAY_US)
    history.must(Began(NOW_US + DAY_US, run.run_id, run.token))
    before = history.state
    history.must(Finish(NOW_US + DAY_US, run.run_id, run.token, "failed", error="no rows"))
    written = Written()
    written.ready = ready
    ended = tuple((1, one) for one in history.last.ended)
    with caplog.at_level(logging.WARNING, "rota.runs"):
        written.updates.delivered([StateChange(before, history.state, history.last.touched, ended)])
    assert bool(caplog.records) is ready
