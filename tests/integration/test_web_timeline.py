"""The timeline and what-if over a real HTTP server: as data, on the page, and by `rota what-if`."""

import asyncio
import re

import pytest
from click.testing import CliRunner

from node.cli.main import rota
from node.client import Client
from node.state.members import Drain, MarkDown
from testkit.http.http_cluster import Servers, on_loop, servers
from testkit.http.web_visitor import Visitor, text_of

pytestmark = pytest.mark.integration

THREE = ("node-1", "node-2", "node-3")


async def filled(served: Servers) -> str:
    """Register tasks, and have node-2 lose a run that its successor takes over. Returns the run."""
    for number in range(9):
        await served.put_task(f"task-{number}", schedule={"every_s": 7200})
    await served.put_task("nowhere", group={"gpu": "a100"})
    cluster = served.cluster
    task = next(name for name in cluster.machine.state.tasks if cluster.ownership.owner(name) == "node-2")
    run_id = await served.start_run(task)
    served.claim(run_id, "node-2")
    return run_id


@on_loop
async def test_what_if_says_what_moves_what_goes_on_and_what_nobody_could_run() -> None:
    async with servers(THREE) as served:
        run_id = await filled(served)
        now = (await served.get("/v1/placement/what-if")).json
        assert (now["moves"]["count"], now["interrupted"]["count"], now["unowned"]["count"]) == (0, 0, 1)
        assert now["ahead"]["unlisted"] == 0
        assert len(now["ahead"]["items"]) == 9 * 12
        found = (await served.get("/v1/placement/what-if?without=node-2&ahead_s=7200&limit=2")).json
        plan = (await served.get("/v1/plan?without=node-2")).json
        assert (found["moves"]["count"], found["moves"]["items"]) == (len(plan["moves"]), plan["moves"][:2])
        assert found["load"] == plan["load"]
        room = now["room"]
        counted = room["at_once"] + room["no_place"] + room["behind"] + room["held"] + room["unowned"]
        assert (room["due"], room["uncounted"], room["no_pool"]) == (counted, 0, {})
        assert found["majority"] == {"members": 3, "needed": 2, "now": 3, "then": 2, "left": True}
        [lost] = found["interrupted"]["items"]
        assert (lost["run_id"], lost["from"]) == (run_id, "node-2")
        assert lost["to"] in ("node-1", "node-3")
        assert found["unowned"]["items"][0]["code"] == "no_label"
        assert found["ahead"]["members"]["node-2"]["count"] == 0
        assert sum(one["count"] for one in found["ahead"]["members"].values()) == 9
        assert (len(found["ahead"]["items"]), found["ahead"]["unlisted"]) == (2, 7)
        none_left = (await served.get("/v1/placement/what-if?without=node-2,node-3")).json
        assert none_left["majority"]["left"] is False
        refused = await served.get("/v1/placement/what-if?without=nobody")
        assert (refused.status, "the members are node-1, node-2, node-3" in str(refused.json)) == (422, True)
        served.cluster.ok(Drain(served.cluster.now_us, "node-3", True))
        back = (await served.get("/v1/placement/what-if?back=node-3")).json
        assert back["load"]["node-3"] == {"now": 0, "then": 3}


@on_loop
async def test_the_timeline_shows_a_takeover_and_what_is_due_without_members() -> None:
    async with servers(THREE) as served:
        visitor = Visitor(served)
        run_id = await filled(served)
        served.cluster.now_us += 600_000_000
        member = served.cluster.machine.state.members["node-2"]
        term = served.cluster.machine.state.lead.term
        served.cluster.ok(MarkDown(served.cluster.now_us, "node-2", member.incarnation, "gone", term))
        task = served.cluster.machine.state.runs[run_id].task
        successor = served.cluster.ownership.owner(task)
        assert successor is not None
        served.claim(run_id, successor)
        served.cluster.now_us += 60_000_000
        page = await visitor.get("/timeline?past_h=1&ahead_h=6")
        body, said = page.body.decode(), text_of(page)
        assert f"{task}, attempt 1 on node-2" in body
        assert "lost with its member after 10 min" in body
        assert f"{task}, attempt 2 on {successor}, running since" in body
        assert body.count('class="takeover"') == 1
        assert f'href="./runs/{run_id}"' in body
        assert "style=" not in body, "the content security policy forbids inline style"
        assert "27 occurrences due within 6 h" in said
        left = next(name for name in ("node-1", "node-3") if name != successor)
        plan = text_of(await visitor.part(f"/timeline?part=plan&without={successor}"))
        assert f"What if without {successor} No majority would be left : 1 of 3 members up, 2 needed" in plan
        assert f"{successor} {left}" in plan
        assert "1 run would go on elsewhere" in plan
        assert "no member has the label gpu=a100 (as now)" in plan
        both = await visitor.get(f"/timeline?without={successor}&back=node-2&without=nobody")
        assert f"without {successor}, and with node-2 back A majority would be left: 2 of 3" in text_of(both)
        for wrong in ("past_h=7", "ahead_h=x", "part=other"):
            assert (await visitor.get(f"/timeline?{wrong}")).status == 422
        hostile = await visitor.get("/timeline?without=%3Cb%3E&back=%3Cb%3E")
        assert b"<b>" not in hostile.body


@on_loop
async def test_bars_are_reached_by_the_keyboard_and_told_by_name() -> None:
    async with servers() as served:
        await served.put_task("hourly", schedule={"every_s": 3600})
        body = (await Visitor(served).get("/timeline?ahead_h=6")).body.decode()
        bars = re.findall(r'<a id="bar-([^"]+)" href="([^"]+)" aria-label="([^"]+)" data-timed="', body)
        assert len({key for key, _, _ in bars}) == 6
        assert {target for _, target, _ in bars} == {"./tasks/hourly"}
        assert all(re.match(r"hourly, due at \d\d:\d\d UTC, on node-1", label) for _, _, label in bars)
        assert body.count('<td data-label="on">node-1</td>') == 6, "and the same in the table"


@on_loop
async def test_rota_what_if_prints_the_same() -> None:
    async with servers(THREE) as served:
        run_id = await filled(served)

        def printed(*arguments: str) -> str:
            client = Client([served.url("")], None)
            result = CliRunner().invoke(rota, ["what-if", *arguments], obj=client)
            assert result.exit_code == 0, result.output
            return result.output

        said = await asyncio.to_thread(printed, "--without", "node-2")
        assert said.startswith("A majority would be left: 2 of 3 members up, 2 needed.")
        assert "Runs that go on elsewhere: 1\nRUN" in said
        assert run_id in said
        assert "nowhere  no member has the label gpu=a100" in said
        none = await asyncio.to_thread(printed, "--without", "node-2", "--without", "node-3", "--hours", "1")
        assert none.startswith("NO MAJORITY would be left: 1 of 3")
