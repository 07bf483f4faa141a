"""The replicated state as the API shows it."""

from dataclasses import replace
from typing import Any

import msgpack
import pytest

from node.duty.ownership import Ownership
from node.http.api.cluster import settings_view
from node.http.api.members import member_view
from node.http.api.placement import owner_view
from node.http.api.runs import checkpoint_view, ended_view, run_view
from node.http.api.tasks import next_fire_us, task_view
from node.peer.protocol import RunProgress
from node.state.attempts import Checkpoint, Finish
from node.state.occurrences import Start
from node.state.registry import Pause
from node.state.shape import LATEST_US
from node.state.value import Settings
from tasks.definition.cron import LAST_FIRE_US
from tests.unit.node.http.given import NOW_US, World

RUN_FIELDS = (
    "run_id task kind trigger fire_at attempt token node state claimed_at started_at finished_at progress checkpoint "
    "result error attempts"
).split()


def test_a_run_has_the_fields_of_the_contract() -> None:
    world = World()
    world.task("a")
    run_id, token = world.running("a", "node-2")
    world.do(Checkpoint(NOW_US + 2, run_id, token, bytes(msgpack.packb({"row": 7}))))
    view = run_view(world.state.runs[run_id], progress=RunProgress(3, 10, "rows"))
    assert set(RUN_FIELDS) <= view.keys()
    assert (view["state"], view["node"], view["attempt"], view["token"]) == ("running", "node-2", 1, token)
    assert view["progress"] == {"done": 3, "total": 10, "unit": "rows"}
    assert view["checkpoint"] == {"row": 7}
    assert view["started_at"] == "2026-11-18T11:06:40.000001Z"
    assert view["finished_at"] is None
    fields = ["attempt", "node", "token", "state", "started_at", "finished_at", "error", "log_truncated"]
    assert list(view["attempts"][0]) == fields
    assert view["attempts"][0]["log_truncated"] is False

    world.do(Finish(NOW_US + 3, run_id, token, "succeeded", {"rows": 10}, log_truncated=True))
    [ended] = world.ended
    over = ended_view(ended)
    assert over.keys() == view.keys()
    assert over["attempts"][0]["log_truncated"] is True
    assert (over["state"], over["result"], over["finished_at"]) == (
        "succeeded",
        {"rows": 10},
        "2026-11-18T11:06:40.000003Z",
    )


def test_a_waiting_run_has_no_attempt() -> None:
    world = World()
    world.task("a")
    run_id = world.do(Start(NOW_US, "a"))["run_id"]
    view = run_view(world.state.runs[run_id])
    assert (view["state"], view["attempt"], view["token"], view["node"]) == ("waiting", None, None, None)


def test_an_owner_says_why_and_where_it_runs() -> None:
    world = World()
    world.task("a", pin="node-2", standbys=1)
    run_id, _ = world.running("a", "node-3")
    view = owner_view(world.state, Ownership.of(world.state), "a", NOW_US)
    assert view["owner"] == "node-2"
    assert view["running_on"] == [{"node": "node-3", "run_id": run_id}]
    assert view["because"] == [{"node": "node-2", "verdict": "chosen"}]
    assert sorted(view["preference"]) == ["node-1", "node-2", "node-3"]
    assert len(view["standbys"]) == 1
    assert (view["epoch"], view["index"]) == (world.state.epoch, world.state.index)


def test_the_next_due_time_is_in_the_future_unless_there_is_none() -> None:
    world = World()
    world.task("often", schedule={"every_s": 10})
    world.task("once", schedule={"at": "2026-11-18T12:00:00Z"})
    world.task("hand")
    later = NOW_US + 95_000_000
    assert next_fire_us(world.state.calendars, world.state.tasks["often"], later) == NOW_US + 100_000_000
    assert next_fire_us(world.state.calendars, world.state.tasks["hand"], later) is None
    at_us = next_fire_us(world.state.calendars, world.state.tasks["once"], later)
    assert at_us is not None
    assert next_fire_us(world.state.calendars, world.state.tasks["once"], at_us + 1) == at_us
    world.do(Pause(NOW_US + 1, "often", on=True))
    assert next_fire_us(world.state.calendars, world.state.tasks["often"], later) is None


LAST_YEAR = "9999-12-31T23:59:59.999999Z"


@pytest.mark.parametrize(
    ("schedule", "since_us", "expected"),
    [
        ({"at": "9999-12-31T23:59:59-14:00"}, NOW_US, LAST_YEAR),  # as an earlier version took it
        ({"every_s": 366 * 86_400}, LATEST_US, LAST_YEAR),
        ({"every_s": 366 * 86_400}, LAST_FIRE_US, LAST_YEAR),
        ({"cron": "0 0 1 1 *", "timezone": "Pacific/Kiritimati"}, LATEST_US - 1, None),
        ({"cron": "59 23 31 12 *", "timezone": "Pacific/Niue"}, LATEST_US - 86_400_000_000, None),
        ({"cron": "* * * * * *", "timezone": "Europe/Paris"}, LATEST_US, None),
    ],
)
def test_a_due_time_after_the_calendar_does_not_break_lists(
    schedule: dict[str, Any], since_us: int, expected: str | None
) -> None:
    world = World()
    world.task("a", schedule={"at": "2027-01-01T00:00:00Z"})
    row = world.state.tasks["a"]
    raw = msgpack.unpackb(row.spec_packed) | {"schedule": schedule}
    row = replace(row, spec_packed=msgpack.packb(raw), since_us=since_us)
    state = replace(world.state, tasks=world.state.tasks.set("a", row))
    assert task_view(state, row, "node-1", NOW_US)["next_fire_at"] == expected
    assert owner_view(state, Ownership.of(state), "a", NOW_US)["next_fire_at"] == expected


def test_a_task_has_its_complete_definition() -> None:
    world = World()
    world.task("a", schedule={"cron": "0 3 * * *"})
    view = dict(task_view(world.state, world.state.tasks["a"], "node-1", NOW_US))
    assert (view["name"], view["owner"], view["version"], view["next_fire_at"]) == (
        "a",
        "node-1",
        1,
        "2026-11-19T03:00:00Z",
    )
    assert view["retry"] == {"attempts": 3, "backoff_s": 10, "factor": 2, "max_s": 900, "away_s": 86_400}


def test_members_and_settings() -> None:
    world = World()
    view = member_view(world.state.members["node-2"], {"node-2": 5}, {"node-2": 2}, {})
    assert (view["url"], view["load"], view["running"], view["slot"]) == ("http://host-2:8100", 5, 2, 1)
    assert settings_view(Settings(balance_slack_milli=125))["balance_slack"] == 0.125
    assert settings_view(Settings(balance_slack_milli=None))["balance_slack"] is None


def test_a_checkpoint_is_shown_as_far_as_json_can_express_it() -> None:
    assert checkpoint_view(None) is None
    assert checkpoint_view(bytes(msgpack.packb({1: [b"\xff", 2.5, None]}))) == {"1": [{"base64": "/w=="}, 2.5, None]}
    assert checkpoint_view(b"\xc1") == {"base64": "wQ=="}
