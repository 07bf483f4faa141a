"""Calendars, blackouts and due times over HTTP."""

from typing import Any

import pytest

from node.state.members import TakeLead
from node.state.value import RULES
from testkit.http.fake_node import NOW_US
from testkit.http.http_cluster import Servers, on_loop, servers
from testkit.http.web_visitor import Visitor, text_of

pytestmark = pytest.mark.integration

NIGHTLY = {"cron": "0 3 * * *", "timezone": "Europe/Berlin"}


def lead(served: Servers) -> None:
    served.cluster.ok(TakeLead(NOW_US, "node-1", 1, RULES))


@on_loop
async def test_a_calendar_is_made_used_and_deleted_once_no_task_uses_it() -> None:
    async with servers() as served:
        lead(served)
        refused = await served.put_task("a", schedule=NIGHTLY, calendar={"skip": "closing"})
        assert (refused.status, "which is not there" in refused.json["detail"]) == (422, True)
        dates = ["2026-12-31", "2026-12-24", "2026-12-24"]
        made = await served.ask("PUT", "/v1/calendars/closing", json={"dates": dates})
        assert (made.status, made.json["dates"]) == (201, ["2026-12-24", "2026-12-31"])
        assert (await served.put_task("a", schedule=NIGHTLY, calendar={"skip": "closing"})).status == 201
        same = await served.ask("PUT", "/v1/calendars/closing", json={"dates": ["2026-12-24"]})
        assert (same.status, same.json["count"], same.json["tasks"]) == (200, 1, 1)
        assert (await served.ask("DELETE", "/v1/calendars/closing")).status == 409
        assert (await served.ask("DELETE", "/v1/tasks/a")).status == 204
        assert (await served.ask("DELETE", "/v1/calendars/closing")).status == 204
        assert (await served.ask("DELETE", "/v1/calendars/closing")).status == 404
        for body in ({}, {"dates": ["soon"]}, {"dates": ["2026-12-24T03:00:00Z"]}, {"dates": ["2026-12-24"] * 2001}):
            assert (await served.ask("PUT", "/v1/calendars/closing", json=body)).status == 422, body


@on_loop
async def test_public_holidays_are_there_once_a_task_names_them() -> None:
    async with servers() as served:
        lead(served)
        spec = {"name": "a", "kind": "copy", "params": {"source": "x"}, "schedule": NIGHTLY}
        spec["calendar"] = {"skip": ["holidays/DE-BY"], "on_skip": "next"}
        tried = await served.ask("POST", "/v1/tasks?dry_run=true", json=[spec])
        assert (tried.status, len(served.cluster.machine.state.calendars)) == (200, 0)
        assert (await served.ask("POST", "/v1/tasks", json=[spec])).status == 200
        shown = (await served.get("/v1/calendars/holidays%2FDE-BY")).json
        assert shown["tasks"] == 1 and shown["known_until"] > "2027-12" and "2026-12-25" in shown["dates"]
        assert [one["name"] for one in (await served.get("/v1/calendars")).json["items"]] == ["holidays/DE-BY"]
        wrong = await served.put_task("b", schedule=NIGHTLY, calendar={"skip": "holidays/DE-XX"})
        assert (wrong.status, "DE has no part XX" in wrong.json["detail"]) == (422, True)
        kept = await served.ask("PUT", "/v1/calendars/holidays%2FDE", json={"dates": []})
        assert (kept.status, "kept for public holidays" in kept.json["detail"]) == (422, True)


@on_loop
async def test_the_due_times_say_which_days_fall_out_and_why() -> None:
    async with servers() as served:
        lead(served)
        asked = "/v1/tasks/a/times?count=2"
        await served.put_task("a", schedule=NIGHTLY)
        plain: dict[str, Any] = (await served.get(asked)).json
        first, second = plain["times"]
        assert plain == {"times": [first, second], "held": [], "left_out": [], "known_until": None, "missing": []}
        await served.ask("PUT", "/v1/calendars/closing", json={"dates": [second[:10]]})
        await served.put_task("a", schedule=NIGHTLY, calendar={"skip": "closing"})
        found = (await served.get(asked)).json
        assert found["times"][0] == first and found["times"][1] > second
        [out] = found["left_out"]
        assert (out["day"], out["at"], out["calendars"], out["moved_to"]) == (second[:10], second, ["closing"], None)
        assert out["detail"].endswith("falls out (closing)")
        once = {"at": f"{second[:10]}T12:00:00Z"}
        warned = await served.put_task("b", schedule=once, calendar={"skip": "closing"})
        assert "falls out (closing); the task does not run by itself" in warned.json["warnings"][0]
        await served.ask("POST", "/v1/tasks/a/pause")
        assert (await served.get(asked)).json["times"] == []
        assert (await served.get("/v1/tasks/a/times?count=0")).status == 422


@on_loop
async def test_a_blackout_is_set_listed_and_ended() -> None:
    async with servers() as served:
        lead(served)
        body = {"begins": "2000-01-01T00:00:00Z", "ends": "2999-01-01T01:00:00+01:00", "labels": {"team": "bi"}}
        made = await served.ask("PUT", "/v1/blackouts/move", json=body)
        assert made.status == 200, made.json
        listed = (await served.get("/v1/blackouts")).json["items"]
        assert listed == [made.json]
        assert (made.json["active"], made.json["ends"]) == (True, "2999-01-01T00:00:00Z")
        await served.put_task("a", labels={"team": "bi"})
        await served.ask("POST", "/v1/tasks/a/runs")
        why = (await served.get("/v1/tasks/a/why")).json
        assert (why["code"], "the blackout move" in why["sentence"]) == ("blackout", True)
        assert (await served.ask("DELETE", "/v1/blackouts/move")).status == 204
        assert (await served.ask("DELETE", "/v1/blackouts/move")).status == 404
        now = await served.ask("PUT", "/v1/blackouts/now", json={"ends": "2999-01-01T00:00:00Z"})
        assert now.json["active"] is True
        for wrong in (
            {"ends": "2000-01-01T00:00:00Z"},
            {"ends": "2999-01-01T00:00:00"},
            {"ends": "9999-02-01T00:00:00Z"},
        ):
            assert (await served.ask("PUT", "/v1/blackouts/x", json=wrong)).status == 422, wrong


@on_loop
async def test_what_is_due_in_a_blackout_is_foretold_where_due_times_are() -> None:
    async with servers() as served:
        lead(served)
        await served.put_task("a", schedule={"every_s": 600}, labels={"team": "bi"})
        await served.put_task("b", schedule={"every_s": 600})
        assert (await served.get("/v1/tasks/a")).json["next_held"] is None
        due = (await served.get("/v1/tasks/a/times?count=3")).json["times"]
        body = {"begins": due[0], "ends": due[2], "labels": {"team": "bi"}}
        assert (await served.ask("PUT", "/v1/blackouts/move", json=body)).status == 200
        held = (await served.get("/v1/tasks/a")).json["next_held"]
        assert (held["blackouts"], held["until"], held["begins"]) == (["move"], due[2], False)
        assert held["detail"] == f"held by the blackout move until {due[2]}, and missed then (catch_up: latest)"
        assert (await served.get("/v1/tasks/a/owner")).json["next_held"] == held
        listed = {one["name"]: one["next_held"] for one in (await served.get("/v1/tasks")).json["items"]}
        assert listed == {"a": held, "b": None}
        times = (await served.get("/v1/tasks/a/times?count=3")).json
        assert [one["at"] for one in times["held"]] == due[:2] and times["times"] == due
        ahead = (await served.get("/v1/placement/what-if?ahead_s=3600")).json["ahead"]
        assert ahead["held"] == 2
        assert [one["at"] for one in ahead["items"] if one["held"] is not None] == due[:2]
        page = text_of(await Visitor(served).get("/tasks/a"))
        assert "held by the blackout move until" in page and "and missed then (catch_up: latest)" in page
        overview = text_of(await Visitor(served).part("/?part=coming"))
        assert "2 in a blackout" in overview and overview.count("held by the blackout move until") == 1
        timeline = text_of(await Visitor(served).get("/timeline"))
        assert "2 occurrences of these are in a blackout" in timeline
