"""The pages over a real HTTP server: what they show, their parts, search, buttons, and problems as HTML."""

import json
import re
from dataclasses import replace
from html import unescape
from typing import Any
from urllib.parse import quote

import pytest

from node.http.door.session import BrowserSession, SessionSigner, cookie_name
from node.peer.protocol import RunProgress
from node.raft.errors import NoQuorum
from node.raft.founding.founding import FoundingWait
from node.raft.ports import RaftRole
from node.state.attempts import Finish
from node.state.backfills import AdvanceBackfill, StartBackfill
from node.state.deadlines import Breached
from node.state.members import Drain, TakeLead
from node.state.registry import Pause
from node.state.settings import ChangeSettings
from node.state.value import RULES
from testkit.http.fake_node import SECRET
from testkit.http.http_cluster import QUICK, on_loop, servers
from testkit.http.web_visitor import FORM, Visitor, fail, text_of

pytestmark = pytest.mark.integration


@on_loop
async def test_the_overview_shows_what_runs_what_failed_what_comes_and_the_members() -> None:
    async with servers(("node-1", "node-2")) as served:
        visitor = Visitor(served)
        empty = text_of(await visitor.get("/"))
        assert "All is well" in empty
        assert "Nothing runs." in empty
        await served.put_task("copying")
        await served.put_task("soon", schedule={"every_s": 600})
        await served.put_task("broken")
        await served.put_task("nowhere", group={"gpu": "a100"})
        run_id = await served.start_run("copying")
        served.claim(run_id)
        served.node.reported[run_id] = RunProgress(3, 12, "files")
        await fail(served, "broken", "<script>alert(1)</script>")
        served.cluster.now_us += 60_000_000
        page = await visitor.get("/")
        said = text_of(page)
        assert "2 things need attention" in said
        assert "nowhere has no owner" in said
        assert "The last run of broken failed" in said
        assert "3 of 12 files" in said
        assert "failed: <script>alert(1)</script>" in said, "as text"
        assert b"<script>alert" not in page.body
        assert "soon in 9 min" in said
        assert "node-1 leader shows this page up" in said
        for part, shown in (
            ("verdict", "2 things"),
            ("running", "copying"),
            ("attention", "broken"),
            ("coming", "soon"),
            ("members", "node-2"),
        ):
            reply = await visitor.part(f"/?part={part}")
            assert shown in text_of(reply)
            assert reply.body.decode().lstrip().startswith(f'<section id="{part}"')
        assert (await visitor.get("/?part=other")).status == 422


@on_loop
async def test_the_overview_shows_pools_once_there_are_any_and_who_holds_them() -> None:
    async with servers() as served:
        visitor = Visitor(served)
        assert re.search(r'<section id="pools"[^>]* hidden>', (await visitor.get("/")).body.decode())
        served.cluster.ok(TakeLead(served.cluster.now_us, "node-1", 1, RULES))
        served.cluster.ok(ChangeSettings(served.cluster.now_us, {"pools": {"dumps": 2, "idle": 1}}))
        for name in ("first", "second", "third"):
            await served.put_task(name, uses={"dumps": 2})
        runs = [await served.start_run(name) for name in ("first", "second", "third")]
        served.claim(runs[0])
        page = await visitor.part("/?part=pools")
        assert " hidden" not in page.body.decode()
        said = text_of(page)
        assert "dumps used by 3 tasks 2 of 2 used held by first (2)" in said
        assert "2 waiting , first second , third" in said
        assert said.index("dumps") < said.index("idle used by 0 tasks 0 of 1 used")
        assert "next start" not in said
        await served.put_task("calls", rate={"pool": "idle", "per_min": 30})
        served.claim(await served.start_run("calls"))
        assert "next start at its rate:" in text_of(await visitor.part("/?part=pools"))
        served.cluster.now_us += 2_000_000
        assert "next start" not in text_of(await visitor.part("/?part=pools")), "it may start now"


@on_loop
async def test_the_overview_shows_backfills_and_pauses_resumes_and_cancels_them() -> None:
    async with servers() as served:
        visitor, cluster = Visitor(served), served.cluster
        assert re.search(r'<section id="backfills"[^>]* hidden>', (await visitor.get("/")).body.decode())
        cluster.ok(TakeLead(cluster.now_us, "node-1", 1, RULES))
        await served.put_task("sales", schedule={"every_s": 3600}, retry={"attempts": 1})
        from_us, to_us = cluster.now_us - 10 * 3_600_000_000, cluster.now_us
        number = cluster.ok(StartBackfill(cluster.now_us, "sales", from_us, to_us, 10))["backfill"]
        cluster.ok(AdvanceBackfill(cluster.now_us, number, from_us - 1, from_us + 5))
        [run_id] = cluster.machine.state.runs_of["sales"]
        cluster.ok(Finish(cluster.now_us + 1, run_id, served.claim(run_id), "failed"))
        cluster.ok(AdvanceBackfill(cluster.now_us, number, from_us + 5, from_us + 3_600_000_005))
        cluster.now_us += 3_600_000_000
        page = await visitor.part("/?part=backfills")
        said = text_of(page)
        assert "sales running 1 of 10, 9 h" in said and "1 failed , the latest" in said and "under way:" in said
        assert f"runs/{run_id}" in page.body.decode()
        of_run = await visitor.get(f"/runs/{run_id}")
        assert f"It is of backfill {number} of sales , which is running: 1 of 10 times ended" in text_of(of_run)
        link = f"#backfill-{number}"
        assert f'href="{link}"' in of_run.body.decode().replace("../", "") and f'id="{link[1:]}"' in page.body.decode()
        assert f"backfill {number}" in text_of(await visitor.part("/tasks/sales?part=past"))
        for action, status in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
            notice = await visitor.press(f"/backfills/{number}/{action}", **{"HX-Request": "true"})
            assert (notice.status, f"Backfill {number}" in text_of(notice)) == (200, True)
            assert cluster.machine.state.backfills[number].status == status
        assert "cancelled" in text_of(await visitor.part("/?part=backfills"))
        cluster.now_us += 25 * 3_600_000_000
        assert " hidden" in (await visitor.part("/?part=backfills")).body.decode()


@on_loop
async def test_buttons_do_what_the_api_does() -> None:
    async with servers(("node-1", "node-2")) as served:
        visitor = Visitor(served)
        await served.put_task("a", schedule={"every_s": 60})
        rows = served.cluster.machine
        started = await visitor.press("/tasks/a/run", "/tasks?q=a")
        assert (started.status, started.headers["Location"]) == (303, "../../tasks?q=a")
        [run_id] = rows.state.runs_of["a"]
        assert (await visitor.press(f"/runs/{run_id}/cancel", "//evil.example")).headers["Location"] == "../../"
        assert "a" not in rows.state.runs_of
        for action, paused in (("pause", True), ("resume", False)):
            notice = await visitor.press(f"/tasks/a/{action}", **{"HX-Request": "true"})
            assert notice.status == 200
            assert f"a is {action}d" in text_of(notice)
            assert rows.state.tasks["a"].paused is paused
        served.cluster.ok(Drain(served.cluster.now_us, "node-2", True))
        assert "Undrain" in text_of(await visitor.get("/"))
        await visitor.press("/members/node-2/undrain")
        assert rows.state.members["node-2"].status == "up"


@on_loop
async def test_a_problem_is_a_page_or_a_notice_in_the_open_page() -> None:
    async with servers() as served:
        visitor = Visitor(served)
        await served.put_task("a")
        page = await visitor.press("/tasks/nobody/run")
        assert (page.status, "there is no task 'nobody'" in text_of(page), b"<html" in page.body) == (404, True, True)
        notice = await visitor.press("/tasks/nobody/run", **{"HX-Request": "true"})
        assert (notice.status, "there is no task 'nobody'" in text_of(notice)) == (404, True)
        assert b"<html" not in notice.body
        as_json = await served.ask("POST", "/tasks/a/run", json={})
        assert (as_json.status, "application/x-www-form-urlencoded" in text_of(as_json)) == (415, True)
        without = await served.ask("POST", "/tasks/a/run", data=b"back=/", headers=FORM)
        assert (without.status, "load the page again" in text_of(without)) == (403, True)
        assert not served.cluster.machine.state.runs


@on_loop
async def test_a_node_without_a_cluster_or_a_quorum_says_so() -> None:
    async with servers() as served:
        visitor = Visitor(served)
        await served.put_task("a")
        served.cluster.fault = NoQuorum("there is no quorum")
        refused = await visitor.press("/tasks/a/pause", **{"HX-Request": "true"})
        assert refused.status == 503
        assert "there is no quorum" in text_of(refused)
        served.node.role = RaftRole(3, None, False, False, True)
        assert "There is no quorum 1 of 1 member up" in text_of(await visitor.get("/"))
        served.node.outlook = FoundingWait(silent=("node-3",))
        assert "There is no cluster yet" in text_of(await visitor.get("/"))


@on_loop
async def test_events_end_with_the_session_of_the_browser() -> None:
    async with servers(limits=replace(QUICK, ping_s=0.05), token="a token") as served:
        now_s = served.cluster.now_us // 1_000_000
        session = BrowserSession("operator", now_s + 60, "a" * 32)
        signer = SessionSigner(SECRET, {"operator": "a token"})
        headers = {"Cookie": f"{cookie_name('c-1')}={signer.cookie(session, 'c-1')}"}
        async with served.session.get(served.url("/v1/events"), headers=headers) as response:
            assert response.status == 200
            assert b"connected" in await response.content.readany()
            served.cluster.now_us += 60_000_000
            await response.content.read()
        assert (await served.get("/v1/events", headers=headers)).status == 401


@on_loop
async def test_an_open_page_is_sent_the_parts_that_differ_with_its_own_tokens() -> None:
    async with servers(("node-1", "node-2")) as served:
        now_s = served.cluster.now_us // 1_000_000
        session = BrowserSession("guest", now_s + 60, "a" * 32)
        signer = SessionSigner(SECRET, {})
        headers = {"Cookie": f"{cookie_name('c-1')}={signer.cookie(session, 'c-1')}"}
        await served.put_task("quick")
        parts = quote(json.dumps(["/?part=running", "/tasks?part=rows&q=quick"]))
        async with served.session.get(served.url(f"/live?parts={parts}"), headers=headers) as response:
            assert response.status == 200
            shown: dict[str, str] = {}
            while len(shown) < 2:
                if (line := await response.content.readline()).startswith(b'data: {"url":'):
                    found = json.loads(line.removeprefix(b"data: "))
                    shown[found["url"]] = found["html"]
            assert "Nothing runs." in shown["/?part=running"]
            rows = shown["/tasks?part=rows&q=quick"]
            assert 'action="./tasks/quick/run"' in rows
            assert f'value="{signer.csrf(session)}"' in rows, "its own token"
            assert rows.count('name="csrf"') == rows.count(signer.csrf(session))
            served.claim(await served.start_run("quick"))
            while b'"/?part=running"' not in (line := await response.content.readline()):
                pass
            assert b"quick" in line
        for wrong in (
            "[]",
            "x",
            '["/nowhere"]',
            '["/sign-in"]',
            '["//evil.example/"]',
            '["/live"]',
            json.dumps(["/"] * 17),
        ):
            refused = await served.get(f"/live?parts={quote(wrong)}", headers=headers)
            assert refused.status == 422, wrong


@on_loop
async def test_tasks_are_searched_filtered_and_shown_page_by_page() -> None:
    async with servers() as served:
        visitor = Visitor(served)
        assert "There are no tasks yet" in text_of(await visitor.get("/tasks"))
        for number in range(60):
            await served.put_task(f"orders-{number:02}", schedule={"cron": "0 3 * * *", "timezone": "Europe/Paris"})
        await served.put_task("broken")
        await fail(served, "broken", "the disk is full")
        served.cluster.ok(Pause(served.cluster.now_us, "orders-07", True))
        served.cluster.now_us += 10_000_000

        async def names(path: str) -> list[str]:
            body = (await visitor.get(path)).body.decode()
            return re.findall(r'<a id="task-[^"]+" class="name"[^>]* data-panel>([^<]+)</a>', body)

        first = await visitor.get("/tasks")
        assert {"All 61", "Failing 1", "Paused 1"} <= set(re.findall(r"\b\w+ \d+", text_of(first)))
        following = re.search(r'href="\./(tasks\?[^"]+)" rel="next"', first.body.decode())
        assert following is not None
        shown = await names("/tasks") + await names("/" + unescape(following[1]))
        assert shown == sorted(served.cluster.machine.state.tasks)
        assert await names("/tasks?q=BROK") == await names("/tasks?show=failing") == ["broken"]
        assert await names("/tasks?q=orders+1&show=paused") == []
        assert await names("/tasks?q=7&show=paused") == ["orders-07"]
        assert len(await names("/tasks?owner=node-1&kind=copy")) == 50
        assert "No task fits" in text_of(await visitor.get("/tasks?kind=other"))
        said = text_of(await visitor.part("/tasks?q=broken&part=rows"))
        assert "broken copy failing failed 10 s ago the disk is full" in said
        assert "0 3 * * * Europe/Paris" in text_of(await visitor.get("/tasks"))
        await served.put_task("labelled", set="site", labels={"team": "bi"})
        assert await names("/tasks?set=site") == await names("/tasks?label=team%3Dbi") == ["labelled"]
        page = text_of(await visitor.get("/tasks?label=team%3Dbi&sort=last"))
        assert "label: team=bi" in page
        latest = await names("/tasks?sort=last")
        assert (latest[0], len(latest)) == ("broken", 50)
        by_last = (await visitor.get("/tasks?sort=last")).body.decode()
        [second] = re.findall(r'href="\./(tasks\?[^"]+)" rel="next"', by_last)
        assert sorted(latest + await names("/" + unescape(second))) == sorted(served.cluster.machine.state.tasks)
        cursor = unescape(second).partition("after=")[2]
        assert (await visitor.get(f"/tasks?sort=owner&after={cursor}")).status == 422
        hostile: list[tuple[str, Any]] = [("sort", "nonsense"), ("show", "nonsense"), ("after", "nonsense")]
        for name, value in hostile:
            assert (await visitor.get(f"/tasks?{name}={value}")).status == 422
        assert b"<b>" not in (await visitor.get("/tasks?q=%3Cb%3E&owner=%3Cb%3E")).body


@on_loop
async def test_a_late_task_is_wrong_and_every_page_says_by_which_deadline() -> None:
    async with servers() as served:
        visitor, cluster = Visitor(served), served.cluster
        cluster.ok(TakeLead(cluster.now_us, "node-1", 1, RULES))
        await served.put_task("forgotten", deadlines={"success_every_s": 60})
        await served.put_task("other")
        cluster.now_us += 70_000_000
        cluster.ok(Breached(cluster.now_us, "forgotten", "success_every", cluster.now_us - 70_000_000))
        overview = text_of(await visitor.get("/"))
        assert "A deadline is breached" in overview
        assert "forgotten is late: no run has succeeded for 60 s · for 10 s" in overview
        rows = text_of(await visitor.part("/tasks?show=late&part=rows"))
        assert "forgotten copy late , never ran no run has succeeded for 60 s" in rows
        assert "other" not in rows
        await fail(served, "forgotten", "the disk is full")
        assert 'id="again-forgotten"' in (await visitor.part("/?part=attention")).body.decode(), "it can be run again"
        assert "Late: no run has succeeded for 60 s" in text_of(await visitor.get("/tasks/forgotten"))
