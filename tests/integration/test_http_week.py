"""A week of the schedules over HTTP, on the page, and by `rota calendar week`."""

import asyncio

import pytest
from click.testing import CliRunner, Result

from node.cli.main import rota
from node.client import Client
from node.state.members import TakeLead
from node.state.offers import TellPlaces
from node.state.places import Places
from node.state.value import RULES
from testkit.http.http_cluster import Servers, on_loop, servers
from testkit.http.web_visitor import Visitor, text_of

pytestmark = pytest.mark.integration

WEEK = "begins=2026-11-30&timezone=Europe%2FParis"


async def _filled(served: Servers) -> None:
    cluster = served.cluster
    cluster.ok(TakeLead(cluster.now_us, "node-1", 1, RULES))
    cluster.ok(TellPlaces(cluster.now_us, "node-1", 1, Places(2)))
    await served.ask("PUT", "/v1/calendars/closing", json={"dates": ["2026-12-02"]})
    ends = {"begins": "2026-12-03T21:00:00Z", "ends": "2026-12-04T01:30:00Z"}
    await served.ask("PUT", "/v1/blackouts/freeze", json=ends)
    nightly = {"cron": "30 2 * * *", "timezone": "Europe/Paris"}
    for number in range(3):
        await served.put_task(f"dump-{number}", schedule=nightly, calendar={"skip": ["closing"]})
    await served.put_task("tick", schedule={"every_s": 30})


@on_loop
async def test_a_week_has_its_days_what_is_left_out_and_what_collides() -> None:
    async with servers() as served:
        await _filled(served)
        found = (await served.get(f"/v1/week?{WEEK}")).json
        assert (found["begins"], found["ends"]) == ("2026-11-29T23:00:00Z", "2026-12-06T23:00:00Z")
        assert [day["count"] for day in found["days"]] == [3, 3, 0, 3, 3, 3, 3]
        names = ["dump-0", "dump-1", "dump-2"]
        due = [{"at": "2026-11-30T01:30:00Z", "count": 3, "tasks": names}]
        assert found["days"][0]["hours"] == [{"hour": 2, "count": 3, "due": due, "collides": True}]
        out = [{"calendars": ["closing"], "count": 3, "tasks": names, "moved_to": None}]
        assert found["days"][2]["left_out"] == out
        assert [(one["schedule"], one["tasks"]) for one in found["often"]] == [({"every_s": 30.0}, ["tick"])]
        assert [one["name"] for one in found["blackouts"]] == ["freeze"]
        [collision] = found["collisions"]
        assert (collision["most"], collision["room"], len(collision["times"])) == (4, 2, 6)
        assert (collision["pool"], collision["tasks"], collision["always"]) == (None, names, False)
        assert (await served.get("/v1/week")).json["timezone"] == "UTC"


@on_loop
async def test_a_week_that_cannot_be_shown_is_refused_by_its_field() -> None:
    async with servers() as served:
        for query, name in (
            ("timezone=Mars%2FOlympus", "timezone"),
            ("begins=yesterday", "begins"),
            ("begins=1969-12-31", "begins"),
            ("begins=9999-12-31", "begins"),
            ("weeks=2", "weeks"),
        ):
            refused = await served.get(f"/v1/week?{query}")
            assert (refused.status, list(refused.fields)) == (422, [name])
        for first in ("1970-01-02", "9998-12-01"):
            assert len((await served.get(f"/v1/week?begins={first}&timezone=Pacific%2FKiritimati")).json["days"]) == 7


def _rota(served: Servers, *arguments: str) -> Result:
    return CliRunner().invoke(rota, arguments, obj=Client([served.url("")], None))


@on_loop
async def test_the_terminal_says_it_too() -> None:
    async with servers() as served:
        await _filled(served)
        given = ["calendar", "week", "--begins", "2026-11-30", "--timezone", "Europe/Paris"]
        told = await asyncio.to_thread(_rota, served, *given)
        assert told.exit_code == 0, told.output
        lines = told.output.splitlines()
        assert lines[:2] == ["Mon 2026-11-30: 3 due", "  02:30  dump-0, dump-1, dump-2"]
        assert "  not due: dump-0, dump-1, dump-2 (closing)" in lines
        assert "often, every 30 s: tick" in lines
        assert any(line.startswith("blackout freeze: 2026-12-03T21:00:00Z to ") for line in lines)
        assert lines[-1].startswith("collides at 02:30 on Mon, Tue, Thu, Fri, Sat, Sun: up to 4 due, 2 places: dump-0")


@on_loop
async def test_the_page_shows_the_week_with_links_to_the_weeks_beside_it() -> None:
    async with servers() as served:
        await _filled(served)
        visitor = Visitor(served)
        reply = await visitor.get(f"/week?{WEEK}")
        html, said = reply.body.decode(), text_of(reply)
        assert "Week of Mon 30 Nov 2026" in said
        assert "3 tasks: closing" in said
        assert "4 due at 02:30 , 2 places Mon, Tue, Thu, Fri, Sat, Sun" in said
        assert "every 30 s" in said
        assert "freeze" in said
        assert 'href="week?begins=2026-11-23&amp;timezone=Europe%2FParis"' in html.replace("./", "")
        assert 'href="week?begins=2026-12-07&amp;timezone=Europe%2FParis"' in html.replace("./", "")
        assert (await visitor.get("/week?timezone=Mars%2FOlympus")).status == 422
        assert (await visitor.get("/week?begins=tomorrow")).status == 422
        empty = text_of(await visitor.get("/week?begins=2020-01-06"))
        assert "Nothing is due in this week." in empty
