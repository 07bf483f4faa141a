"""A cluster's own state, saved and put back: what comes back, what does not, and what is not taken."""

import json
import random
from dataclasses import replace
from typing import Any

import msgpack
import pytest

from node.http.api.cluster import SettingsBody
from node.http.api.saved import SavedTask, _saved_task
from node.state.attempts import Finish
from node.state.occurrences import Start
from node.state.registry import DeleteTask, Pause
from node.state.restoring import RestoreTasks
from node.state.saved import BadSave, Kept, Saved, lines, read
from node.state.settings import ChangeSettings
from node.state.shape import field_names
from node.state.value import State
from tests.unit.node.state.given import DAY_US, NOW_US, History, cluster
from tests.unit.node.state.test_pools import pooled

MINUTE_US = 60_000_000


def lived() -> History:
    """A cluster with all sorts of tasks, one of which has run."""
    history = cluster("a", "b", "c")
    history.put("b-hourly", schedule={"every_s": 3600}, weight=3)
    history.put("gone")
    history.put("a-minutely", NOW_US + 5, schedule={"every_s": 60}, retry={"backoff_s": 0.5})
    history.put("always", schedule={"continuous": True})
    history.put("by-hand", key="\u00fc", group={"disk": "ssd"})
    history.put("b-hourly", NOW_US + 9, schedule={"every_s": 3600}, weight=4)
    history.must(Pause(NOW_US + 10, "b-hourly", True))
    history.must(ChangeSettings(NOW_US, {"balance_slack_milli": 125, "history_days": 7}))
    run = history.claim("a-minutely", NOW_US + 5 + MINUTE_US)
    history.must(Finish(NOW_US + DAY_US, run.run_id, run.token, "failed", error="no such thing", retry=False))
    history.must(Start(NOW_US, "by-hand", key="k"))
    history.claim("always", history.state.tasks["always"].since_us, "b")
    history.must(DeleteTask(NOW_US, "gone"))
    return history


def kept(saved: Saved) -> tuple[Kept, ...]:
    return tuple(_saved_task(SavedTask.model_validate(row), position) for position, row in enumerate(saved.tasks))


def put_back(saved: Saved, tasks: tuple[Kept, ...], beside: int = 0, at_us: int = NOW_US) -> RestoreTasks:
    head = saved.head
    settings = SettingsBody.model_validate(head["settings"]).changed()
    return RestoreTasks(at_us, beside, head["token"], head["orders"], settings, tasks)


def test_what_was_saved_comes_back_as_it_was() -> None:
    old = lived().state
    saved = read(lines(old, NOW_US))
    assert [row["task"]["name"] for row in saved.tasks] == ["b-hourly", "a-minutely", "always", "by-hand"]
    new = cluster("a", "b", "c")
    new.must(put_back(saved, kept(saved), at_us=NOW_US + 2 * DAY_US))
    assert new.state.settings == old.settings
    assert new.state.token == old.token
    assert not new.state.runs
    for name, row in old.tasks.items():
        back = new.state.tasks[name]
        if name == "always":
            # Its run is not here to end, and so to make the next one due.
            assert (back.since_us, back.through_us) == (NOW_US + 2 * DAY_US, row.through_us)
            back = replace(back, since_us=row.since_us)
        assert back == row
    new.put("next")
    assert new.state.tasks["next"].order == old.orders + 1, "no task gets the number of a deleted one"


def test_a_task_comes_back_though_its_pool_was_made_smaller_than_what_it_uses() -> None:
    old, new, without = pooled(dumps=2), pooled(), pooled()
    old.put("dump", uses={"dumps": 2})
    old.must(ChangeSettings(NOW_US, {"pools": {"dumps": 0}}))
    saved = read(lines(old.state, NOW_US))
    new.must(put_back(saved, kept(saved)))
    assert (new.state.pools["dumps"].capacity, new.state.pools["dumps"].tasks) == (0, 1)
    assert "make it first" in without.do(replace(put_back(saved, kept(saved)), settings={})).detail


def test_files_and_entries_have_what_they_had_in_the_order_that_they_had_it() -> None:
    """What a row has gained is beside it, if it is not at its default."""
    first = "order version registered_at_us since_us through_us paused incumbent skipped missed last"
    assert list(field_names(Kept))[:13] == ["spec_packed", *first.split(), "requests", "succeeded_at_us"]
    told = ["task", *first.split(), "succeeded_at_us", "requests"]
    for row in read(lines(lived().state, NOW_US)).tasks:
        assert [name for name in row if name in told] == told
    [last] = [row["last"] for row in read(lines(lived().state, NOW_US)).tasks if row["last"]]
    assert list(last)[:6] == ["run_id", "state", "fire_at_us", "finished_at_us", "error", "took_us"]


def test_it_can_be_put_back_in_parts_but_beside_nothing_else() -> None:
    saved = read(lines(lived().state, NOW_US))
    tasks = kept(saved)
    new = cluster("a")
    new.must(put_back(saved, tasks[:1]))
    assert new.do(put_back(saved, tasks[1:])).code == "exists", "as if it were the first part"
    assert new.do(put_back(saved, tasks, beside=1)).code == "exists", "one is there already"
    new.must(put_back(saved, tasks[1:3], beside=1))
    new.put("another")
    assert new.do(put_back(saved, tasks[3:], beside=3)).code == "exists"
    assert new.do(put_back(saved, tuple(replace(one, order=1) for one in tasks[3:]), beside=4)).code == "invalid"
    assert new.do(replace(put_back(saved, tasks[3:], beside=4), token=2**63)).code == "invalid"
    assert len(new.state.tasks) == 4


@pytest.mark.parametrize(
    "fields",
    [{"order": 0}, {"order": 99}, {"version": 0}, {"spec_packed": b"?"}, {"spec_packed": msgpack.packb({"name": "t"})}],
)
def test_what_is_no_task_is_refused_and_nothing_of_its_part_taken(fields: dict[str, Any]) -> None:
    saved = read(lines(lived().state, NOW_US))
    first, *rest = kept(saved)
    new = cluster("a")
    before = new.state
    assert new.do(put_back(saved, (*rest, replace(first, **fields)))).code == "invalid"
    assert (new.state.tasks, new.state.orders, new.state.settings) == (before.tasks, before.orders, before.settings)


def test_an_empty_cluster_is_saved_too() -> None:
    assert read(lines(State(), NOW_US)).tasks == []


def test_one_changed_byte_or_a_missing_end_is_noticed() -> None:
    whole = b"".join(lines(lived().state, NOW_US))
    assert read(whole.splitlines(keepends=True)).tasks
    chance = random.Random(7)
    places = {0, 1, len(whole) - 2, *chance.sample(range(len(whole)), 200)}
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1 << chance.randrange(8)
        with pytest.raises(BadSave):
            read(bytes(changed).splitlines(keepends=True))
    for end in chance.sample(range(len(whole) - 1), 100):
        with pytest.raises(BadSave):
            read(whole[:end].splitlines(keepends=True))


def test_it_is_said_what_is_wrong_with_a_file() -> None:
    text = list(lines(lived().state, NOW_US))
    for broken, why in (
        ([], "not a file of `rota cluster save`"),
        ([b"name: t\n"], "not a file of `rota cluster save`"),
        ([b'{"name": "t"}\n'], "not a file of `rota cluster save`"),
        ([json.dumps({"rota": "cluster state", "format": 2}).encode(), *text[1:]], "of format 2, and this .* format 1"),
        (text[:-1], "cut short: 4 of its 4 tasks"),
        ([*text[:2], *text[3:]], "checksum does not match"),
        ([*text, b"more\n"], "checksum does not match"),
        ([*text[:-1], text[-1][:20]], "damaged, and cut short: line 6"),
    ):
        with pytest.raises(BadSave, match=why):
            read(broken)
