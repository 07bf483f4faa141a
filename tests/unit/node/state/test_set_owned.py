"""Sets of files own the pools and calendars that they made, and remove no others."""

from dataclasses import replace

import pytest

from node.state.calendars import SetCalendar
from node.state.codec import from_pieces, snapshot_pieces
from node.state.saved import lines, read
from node.state.set_owned import RULES_SET_OWNED
from node.state.settings import ChangeSettings
from tests.unit.node.state.given import NOW_US, History
from tests.unit.node.state.test_calendars import leading

DAY = 738_000


def pools(history: History, by_set: str = "", *, adopt: bool = False, **capacities: int | None) -> str:
    """Change pools on behalf of a set. Returns the code of the result."""
    return history.do(ChangeSettings(NOW_US, {"pools": capacities}, by_set, adopt)).code


def calendar(history: History, days: tuple[int, ...] | None, by_set: str = "", *, adopt: bool = False) -> str:
    """Change the calendar `closing` on behalf of a set. Returns the code of the result."""
    return history.do(SetCalendar(NOW_US, "closing", days, 0, by_set, adopt)).code


def owners(history: History) -> dict[str, str]:
    """The sets of the pools and calendars, as a snapshot restores them."""
    restored = from_pieces(list(snapshot_pieces(history.state)))
    assert restored == history.state
    return dict(restored.settings.pool_sets) | {name: one.of_set for name, one in restored.calendars.items()}


def test_whoever_makes_one_owns_it_and_a_change_by_others_changes_no_owner() -> None:
    history = leading()
    assert (pools(history, "a", dumps=1), pools(history, byhand=1), calendar(history, (DAY,), "a")) == ("ok",) * 3
    assert owners(history) == {"dumps": "a", "closing": "a"}
    assert (pools(history, "b", dumps=2), pools(history, dumps=3), calendar(history, (), "b")) == ("ok",) * 3
    assert (pools(history, "a", byhand=2), pools(history, "a", byhand=2, adopt=True)) == ("ok", "ok")
    assert owners(history) == {"dumps": "a", "closing": "a"}, "what was made by hand is no set's, whoever names it"
    assert dict(history.state.settings.pools) == {"dumps": 3, "byhand": 2}


def test_a_set_removes_its_own_only_and_whoever_names_no_set_removes_any() -> None:
    history = leading()
    pools(history, "a", dumps=1, table=1), pools(history, byhand=1), calendar(history, (DAY,), "a")
    for name in ("dumps", "byhand"):
        refused = history.do(ChangeSettings(NOW_US, {"pools": {name: None}}, "b"))
        assert (refused.code, "is not of the set b" in str(refused)) == ("invalid", True)
    assert calendar(history, None, "b") == "invalid"
    assert (pools(history, "a", dumps=None), calendar(history, None, "a")) == ("ok", "ok")
    assert owners(history) == {"table": "a"}
    assert pools(history, table=None, byhand=None) == "ok"
    assert owners(history) == {}
    # Whoever makes it anew owns it: the earlier set does not remove what is no longer its own.
    assert (pools(history, dumps=1), pools(history, "a", dumps=None)) == ("ok", "invalid")


def test_a_set_takes_over_from_another_one_if_it_says_so() -> None:
    history = leading()
    pools(history, "a", dumps=1), calendar(history, (DAY,), "a")
    assert (pools(history, "b", dumps=1, adopt=True), calendar(history, (DAY,), "b", adopt=True)) == ("ok", "ok")
    assert owners(history) == {"dumps": "b", "closing": "b"}
    assert (pools(history, "a", dumps=None), calendar(history, None, "a")) == ("invalid", "invalid")


def test_what_tasks_use_stays_whatever_set_they_are_of() -> None:
    history = leading()
    pools(history, "a", dumps=1), calendar(history, (DAY,), "a")
    history.put("t", set="b", uses={"dumps": 1}, schedule={"cron": "0 3 * * *"}, calendar={"skip": ["closing"]})
    assert (pools(history, "a", dumps=None), calendar(history, None, "a")) == ("invalid", "exists")
    assert owners(history) == {"dumps": "a", "closing": "a"}


@pytest.mark.parametrize("by_set", [" ", "x" * 129, "a/b"])
def test_a_set_has_a_name(by_set: str) -> None:
    history = leading()
    assert (pools(history, by_set, dumps=1), calendar(history, (), by_set)) == ("invalid", "invalid")


def test_before_all_members_know_of_them_nothing_is_of_a_set() -> None:
    history = leading(RULES_SET_OWNED - 1)
    assert (pools(history, "a", dumps=1), pools(history, dumps=1)) == ("invalid", "ok")


def test_a_saved_cluster_names_the_sets_and_one_without_any_is_as_before() -> None:
    history = leading()
    pools(history, byhand=1), calendar(history, (DAY,))
    assert not read(lines(history.state, NOW_US)).head.keys() & {"pool_sets", "calendar_sets"}
    assert "pool_sets" not in read(lines(history.state, NOW_US)).head["settings"]
    pools(history, "a", dumps=1), calendar(history, None), calendar(history, (DAY,), "b")
    head = read(lines(history.state, NOW_US)).head
    assert (head["pool_sets"], head["calendar_sets"]) == ({"dumps": "a"}, {"closing": "b"})
    assert "pool_sets" not in head["settings"], "its settings are those that a PATCH takes"
    assert replace(history.state.settings, pool_sets=()).pools == history.state.settings.pools
