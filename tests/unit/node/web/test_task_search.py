"""Which tasks fit a search, and in which order they are shown."""

from typing import Any

from node.duty.ownership import Ownership
from node.state.attempts import Finish
from node.state.registry import Pause
from node.web.task_search import LABELS_MAX, TaskSearch, TaskSort, find, find_sorted, labels_offered, words_of
from tests.unit.node.http.given import NOW_US, World
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


def test_a_search_has_a_set_and_a_label() -> None:
    world = full()
    world.task("site", set="site", labels={"team": "bi", "env": "x=y"})
    world.task("other", set="other", labels={"team": "ops"})
    ownership, found = Ownership.of(world.state), picture(world)

    def names(**of: Any) -> list[str]:
        return find(iter(sorted(world.state.tasks)), world.state, ownership, found, TaskSearch(**of), 50)[0]

    assert names(set="site") == names(label="team=bi") == names(label="env=x=y") == ["site"]
    assert names(set="nosuch") == names(label="team") == names(set="site", label="team=ops") == []
    assert not TaskSearch(label="team=bi").fits_all
    assert labels_offered(found, "gone=1") == ["env=x=y", "gone=1", "team=bi", "team=ops"]


def test_few_of_very_many_labels_are_offered() -> None:
    world = World()
    for number in range(LABELS_MAX + 20):
        world.task(f"t{number}", labels={"n": str(number), "common": "yes"})
    assert len(offered := labels_offered(picture(world), None)) == LABELS_MAX
    assert "common=yes" in offered


def test_tasks_are_sorted_and_paged_without_a_gap_or_a_double() -> None:
    world = full()
    world.do(Finish(NOW_US + 9, *world.running("off"), "succeeded", {}))
    world.do(Pause(NOW_US, "good", True))
    ownership, found = Ownership.of(world.state), picture(world)

    def paged(sort: TaskSort, limit: int, **of: Any) -> list[str]:
        names: list[str] = []
        after, more = None, True
        while more:
            keys, more = find_sorted(world.state, ownership, found, TaskSearch(**of), sort, after, limit)
            names += [name for _, name in keys]
            after = keys[-1] if keys else None
        return names

    for sort in ("name", "state", "last", "next", "owner", "kind"):
        whole = paged(sort, 50)
        assert sorted(whole) == sorted(world.state.tasks), sort
        assert paged(sort, 1) == paged(sort, 2) == whole
    assert paged("state", 3)[0] == "gpu"
    assert paged("last", 3)[:1] == ["off"]
    assert set(paged("last", 3)[1:3]) == {"bad", "good"}
    assert paged("next", 3)[:2] == ["minutely", "hourly"]
    assert paged("owner", 3)[0] == "gpu", "what nobody owns comes first"
    assert paged("name", 50, kind="other") == []
