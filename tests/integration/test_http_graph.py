"""What stands between tasks, over HTTP: the graph of a task, an occurrence on its way, and why a task waits."""

import asyncio
import re
from typing import Any

import pytest
from click.testing import CliRunner

from node.cli.main import rota
from node.client import Client
from node.state.attempts import Finish
from node.state.joins import PassOn
from node.state.members import TakeLead
from node.state.times import rfc3339
from node.state.value import RULES
from node.web.views.set_graph import LIVE_MAX
from testkit.http.fake_node import NOW_US
from testkit.http.http_cluster import Servers, on_loop, servers
from testkit.http.web_visitor import Visitor, text_of

pytestmark = pytest.mark.integration


async def _diamond(served: Servers) -> None:
    """Tasks a, b and c after it, d after both, and e after d."""
    served.cluster.ok(TakeLead(NOW_US, "node-1", 1, RULES))
    for name, after in {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"], "e": ["d"]}.items():
        await served.put_task(name, after=after, retry={"attempts": 1})


async def _began(served: Servers) -> str:
    """Run a and what comes after it. Returns the run of a, which works."""
    reply = await served.ask("POST", "/v1/tasks/a/runs", json={"downstream": True})
    served.claim(reply.json["run_id"])
    return str(reply.json["run_id"])


def _end(served: Servers, task: str, end: Any = "succeeded") -> None:
    state = served.cluster.machine.state
    (run_id,) = state.runs_of[task]
    token = state.runs[run_id].token or served.claim(run_id)
    served.cluster.ok(Finish(served.cluster.now_us, run_id, token, end))
    while (state := served.cluster.machine.state).ends:
        served.cluster.ok(PassOn(served.cluster.now_us, state.next_end - len(state.ends)))


async def _states(served: Servers, path: str) -> dict[str, str]:
    return {one["task"]: one["state"] for one in (await served.get(path)).json["tasks"]}


@on_loop
async def test_an_occurrence_on_its_way_and_where_it_ended() -> None:
    async with servers() as served:
        await _diamond(served)
        graph = (await served.get("/v1/tasks/d/graph")).json
        assert [(one["task"], one["layer"], one["state"]) for one in graph["tasks"]] == [
            *[("a", 0, "new"), ("b", 1, "new"), ("c", 1, "new"), ("d", 2, "new"), ("e", 3, "new")],
        ]
        assert {"from": "c", "to": "d", "on": "succeeded"} in graph["edges"]
        assert (graph["occurrence"], graph["occurrences"], graph["left_out"]) == (None, [], 0)
        first = await _began(served)
        at = rfc3339(served.cluster.machine.state.runs[first].fire_at_us)
        on_its_way = f"/v1/tasks/d/graph?at={at}"
        assert await _states(served, on_its_way) == {
            "a": "running", "b": "pending", "c": "pending", "d": "pending", "e": "pending"
        }  # fmt: skip
        _end(served, "a")
        _end(served, "c", "failed")
        told = {one["task"]: one for one in (await served.get(on_its_way)).json["tasks"]}
        assert (told["d"]["state"], told["d"]["waits_for"]) == ("pending", ["b"])
        assert (told["c"]["state"], told["c"]["node"], told["c"]["attempt"]) == ("failed", "node-1", 1)
        _end(served, "b")
        over = (await served.get(on_its_way)).json
        assert {one["task"]: one["state"] for one in over["tasks"]} == {
            "a": "succeeded", "b": "succeeded", "c": "failed", "d": "upstream_failed", "e": "upstream_failed"
        }  # fmt: skip
        assert over["occurrence"]["at"] == at
        assert over["occurrence"]["rerun"] is not None
        assert (await served.get(f"/v1/tasks/a/graph?run_id={first}")).json["tasks"] == over["tasks"]
        await _began(served)
        again = (await served.get("/v1/tasks/d/graph")).json["occurrences"]
        assert len(again) == 2
        assert again[1] == over["occurrence"], "the newest comes first"
        # Both are of one time: by it the newest is shown, and an earlier one by a run of it.
        assert (await _states(served, on_its_way))["a"] == "running"
        assert (await served.get(f"/v1/tasks/a/graph?run_id={first}")).json["tasks"] == over["tasks"]


@on_loop
async def test_an_occurrence_that_is_not_known_is_refused() -> None:
    async with servers() as served:
        await _diamond(served)
        assert (await served.get("/v1/tasks/nothing/graph")).problem == "not-found"
        assert list((await served.get("/v1/tasks/a/graph?at=2020-01-01T00:00:00Z")).fields) == ["at"]
        alone = await served.start_run("a")
        for task in ("a", "b"):
            refused = await served.get(f"/v1/tasks/{task}/graph?run_id={alone}")
            assert list(refused.fields) == ["run_id"]


@on_loop
async def test_all_tasks_that_come_after_others() -> None:
    async with servers() as served:
        await _diamond(served)
        await served.put_task("alone")
        await served.put_task("f", after=["e"], set="site")
        assert list(await _states(served, "/v1/graph")) == ["a", "b", "c", "d", "e", "f"]
        assert await _states(served, "/v1/graph?set=site") == {"f": "new"}
        cut = (await served.get("/v1/graph?limit=2")).json
        assert ([one["task"] for one in cut["tasks"]], cut["left_out"]) == (["a", "b"], 4)


@on_loop
async def test_the_tasks_of_a_set_and_of_a_label_those_alone_too() -> None:
    async with servers() as served:
        await _diamond(served)
        await served.put_task("f", after=["e"], set="site", labels={"team": "bi"})
        await served.put_task("g", after=["f"], set="site")
        await served.put_task("single", set="site", labels={"team": "bi"})
        found = (await served.get("/v1/graph?set=site")).json
        assert [one["task"] for one in found["tasks"]] == ["f", "g"]
        assert found["edges"] == [{"from": "f", "to": "g", "on": "succeeded"}]
        assert [(one["task"], one["state"], one["layer"]) for one in found["alone"]] == [("single", "new", 0)]
        found = (await served.get("/v1/graph?label=team%3Dbi")).json
        assert ([one["task"] for one in found["tasks"]], len(found["alone"])) == (["f"], 1)
        # It is shown anew when the state has changed.
        served.claim(await served.start_run("single"))
        assert (await served.get("/v1/graph?set=site")).json["alone"][0]["state"] in ("claimed", "running")


def _rota(served: Servers, *arguments: str) -> str:
    result = CliRunner().invoke(rota, arguments, obj=Client([served.url("")], None))
    assert result.exit_code == 0, result.output
    return result.output


@on_loop
async def test_rota_graph_of_a_set_lists_those_alone_below_the_tree() -> None:
    async with servers() as served:
        await _diamond(served)
        for name, after in {"f": [], "g": ["f"], "single": []}.items():
            await served.put_task(name, after=after, set="site")
        told = await asyncio.to_thread(_rota, served, "graph", "--set", "site")
        assert [line.split("  ")[0].strip() for line in told.splitlines()] == [
            "TASK", "f", "└─ g", "", "without others before or after them", "TASK", "single"
        ]  # fmt: skip
        assert "single" not in await asyncio.to_thread(_rota, served, "graph")
        told = await asyncio.to_thread(_rota, served, "graph", "--label", "team=bi")
        assert "no task" in told


@on_loop
async def test_the_page_of_a_set_draws_it_and_lists_those_alone() -> None:
    async with servers() as served:
        await _diamond(served)
        visitor = Visitor(served)
        await served.put_task("single", set="site")
        await served.put_task("f", after=["e"], set="site")
        await served.put_task("g", after=[{"task": "f", "on": "failed"}], set="site")
        reply = await visitor.get("/graph?set=site")
        html, said = reply.body.decode(), text_of(reply)
        assert re.findall(r'<a id="box-(\w)"', html) == ["f", "g"]
        assert "The set site" in said
        assert "By themselves 1 task" in said
        assert 'href="./tasks?set=site"' in html
        part = (await visitor.part("/graph?set=site&part=graph")).body.decode()
        assert part.lstrip().startswith('<section id="graph"')
        assert re.findall(r'<a id="box-(\w)"', (await visitor.get("/graph")).body.decode()) == list("abcdefg")
        assert "No task here comes after another one" in text_of(await visitor.get("/graph?set=nothing"))
        assert 'href="./graph?set=site"' in (await visitor.get("/tasks?set=site")).body.decode()


@on_loop
async def test_a_page_of_many_tasks_says_that_it_is_not_kept_up_to_date() -> None:
    async with servers() as served:
        served.cluster.ok(TakeLead(NOW_US, "node-1", 1, RULES))
        for number in range(LIVE_MAX + 1):
            await served.put_task(f"t-{number:03}", after=[f"t-{number - 1:03}"] if number else [])
        visitor = Visitor(served)
        html = (await visitor.get("/graph")).body.decode()
        assert "part=graph" not in html
        assert "not kept up to date" in html
        assert html.count('<a id="box-') == LIVE_MAX + 1


@on_loop
async def test_why_goes_through_the_tasks_before_it() -> None:
    async with servers() as served:
        await _diamond(served)

        async def why(task: str = "e") -> Any:
            return (await served.get(f"/v1/tasks/{task}/why")).json

        found = await why()
        assert found["detail"].startswith("it is due once d has succeeded; a does not run: it has no schedule")
        assert "rota why a" in found["remedy"]
        run_id = await _began(served)
        found = await why()
        at = rfc3339(served.cluster.machine.state.runs[run_id].attempts[-1].started_at_us or 0)
        assert found["detail"] == (
            f"it is due once d has succeeded; e waits for d, d waits for b and c, b waits for a, "
            f"a has run on node-1 since {at}"
        )
        assert (found["code"], found["member"], found["runs"]) == ("after", "node-1", [run_id])
        _end(served, "a")
        _end(served, "b")
        served.claim(served.cluster.machine.state.runs_of["c"][0])
        found = await why("d")
        assert " waits for c, and b succeeded; c has run on node-1 since " in found["detail"]
        assert found["steps"][-1]["found"] == found["detail"]
        for task in "cde":
            _end(served, task)
        found = await why()
        assert "a does not run: it has no schedule" in found["detail"], "all have run"
        await served.ask("DELETE", "/v1/tasks/a?with_children=true")
        found = await why("b")
        assert found["code"] == "parent_gone"
        assert found["detail"].startswith("it comes after a, which is not there: it is never due")
