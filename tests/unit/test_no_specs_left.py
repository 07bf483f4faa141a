"""A list of tasks leaves no specs behind, in the member that takes it or in those that apply it.

Each is a score of objects, and the collector of garbage stops all threads while it looks at those that are new: with
four thousand of them remembered, a full collection took 50 ms of processor time, once for every thousand changes.
"""

import gc
from collections.abc import Iterator

import pytest

from node.http.api import specs
from node.state.members import FoundCluster
from node.state.registry import Put, PutTasks
from tasks.definition.spec import Spec
from tests.unit.node.state.given import NOW_US, History, joining, packed, seed

TASKS = 200


@pytest.fixture(autouse=True)
def _only_new_objects() -> Iterator[None]:
    """What other tests have left is neither looked at nor collected: it is most of what a worker of pytest holds."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def _alive() -> int:
    gc.collect()
    return sum(isinstance(one, Spec) for one in gc.get_objects())


def test_what_is_applied_leaves_rows_and_no_specs() -> None:
    history = History()
    history.must(FoundCluster(NOW_US, "c-1", (seed("a"),)))
    history.must(joining("a"))
    for weight in (1, 2):
        puts = tuple(Put(packed(f"task-{number}", weight=weight)) for number in range(TASKS))
        before = _alive()
        history.must(PutTasks(NOW_US, puts))
        assert _alive() == before
    assert len(history.state.tasks) == TASKS


def test_what_has_been_checked_is_packed_and_no_spec() -> None:
    given = [{"name": f"task-{number}", "kind": "command"} for number in range(TASKS)]
    before = _alive()
    checked, errors = specs.all_checked(given, NOW_US)
    assert not errors
    assert _alive() == before
    assert [one.put.spec_packed for one in checked.values()] == [packed(f"task-{number}") for number in range(TASKS)]
