"""Which tasks fit a search."""

from node.duty.ownership import Ownership
from node.web.task_search import TaskSearch, find, words_of
from tests.unit.node.web.test_board import full, picture


def test_a_search_combines_words_marks_kind_and_owner() -> None:
    world = full()
    ownership, found = Ownership.of(world.state), picture(world)

    def names(limit: int = 50, **of: object) -> list[str]:
        search = TaskSearch(**of)  # type: ignore[arg-type]
        return find(iter(sorted(world.state.tasks)), world.state, ownership, found, search, limit)[0]

    assert names() == sorted(world.state.tasks)
    assert names(words=words_of("LY mi")) == ["minutely"]
    assert names(show="failing") == ["bad"]
    assert names(kind="other") == []
    assert set(names(owner="node-1")) < set(world.state.tasks)
    everything = TaskSearch()
    assert find(iter(["bad", "good", "off"]), world.state, ownership, found, everything, 2) == (["bad", "good"], True)
    assert find(iter(["bad", "gone"]), world.state, ownership, found, everything, 2) == (["bad"], False)
