"""Params that depend on the occurrence, over HTTP: what is refused where, what is previewed, and what a run gets."""

from typing import Any

import pytest

from node.state.members import TakeLead
from node.state.times import rfc3339
from node.state.value import RULES
from tasks.installed_kinds import InstalledKinds, KindEntry
from tasks.reach import Reach
from testkit.http.fake_node import Copy
from testkit.http.http_cluster import Servers, on_loop, servers

pytestmark = pytest.mark.integration

DAILY = {"cron": "0 3 * * *", "timezone": "Europe/Berlin"}
WINDOW = {"source": "{{ window_start | date }}..{{ window_end | date }}"}
NOMINAL = {"source": "{{ nominal | '%Y/%m/%d' }}", "times": 2}


class CopyOfFolder(Copy):
    """Its source is a folder."""

    @staticmethod
    def reaches(params: Copy.Params, task: str) -> list[Reach]:
        return [Reach("source", "source", params.source, f"/data/{params.source}")]


def lead(served: Servers) -> None:
    served.cluster.ok(TakeLead(served.cluster.now_us, "node-1", 3, RULES))


async def put(served: Servers, name: str = "a", **spec: Any) -> Any:
    given = {"kind": "copy", "template": True, "schedule": DAILY, **spec}
    return await served.ask("PUT", f"/v1/tasks/{name}", json=given)


@on_loop
async def test_mistakes_are_told_when_a_task_is_registered() -> None:
    async with servers() as served:
        refused = await put(served, params=WINDOW)
        assert refused.status == 422 and "`template` needs a leader of this version" in refused.json["detail"]
        lead(served)
        wrong = await put(served, params={"source": "{{ today }}", "also": ["", "{{ after.b.rows }}"]})
        assert list(wrong.fields) == ["params.source", "params.also[1]"]
        assert "allowed is nominal" in wrong.fields["params.source"]
        # The kind checks what becomes of it: a number of times, which is 1 at least.
        wrong = await put(served, params={"source": "x", "times": "{{ nominal | date }}"})
        assert list(wrong.fields) == ["params.times"]
        assert (await put(served, params={"source": "x", "times": "{{ nominal | '%d' }}"})).status == 201
        wrong = await put(served, params={"source": "x", "also": ["{{ nominal - 999999d }}"]})
        assert wrong.fields == {"params.also[0]": "{{ nominal - 999999d }} is beyond the calendar"}
        listed = await served.ask(
            "POST", "/v1/tasks", json=[{"name": "b", "kind": "copy", "params": WINDOW, "template": True}]
        )
        assert "needs a window" in listed.fields["[0].params.source"]


@on_loop
async def test_what_comes_of_results_may_be_of_any_type_but_not_where_only_text_is_taken() -> None:
    async with servers() as served:
        lead(served)
        await put(served, "root", params={"source": "x"})
        child: dict[str, Any] = {"after": ["root"], "schedule": None}
        wrong = await put(served, params={"source": "{{ after.root.path }}"}, **child)
        assert wrong.fields == {"params.source": "must be text: write `| text` after the field's name"}
        params = {"source": "{{ after.root.path | text }}", "times": "{{ after.root.rows }}"}
        assert (await put(served, params=params, **child)).status == 201


@on_loop
async def test_another_member_checks_them_where_the_kind_is_not_installed() -> None:
    async with servers(("node-1", "node-2")) as served:
        lead(served)
        served.nodes["node-1"].kinds = InstalledKinds({})
        wrong = await put(served, params={"source": "x", "times": "{{ nominal | date }}"})
        assert list(wrong.fields) == ["params.times"]
        served.nodes["node-2"].kinds = InstalledKinds({"copy": KindEntry("copy", f"{__name__}:CopyOfFolder")})
        wrong = await put(served, params=WINDOW)
        assert "cannot depend on the occurrence" in wrong.fields["params.source"]
        assert (await put(served, params={"source": "x", "times": "{{ nominal | '%d' }}"})).status == 201


@on_loop
async def test_the_params_of_an_occurrence_are_previewed() -> None:
    async with servers() as served:
        lead(served)
        await put(served, params=WINDOW)
        found = (await served.get("/v1/tasks/a/params?at=2026-03-29T00:00:00Z")).json
        assert found == {
            "nominal": "2026-03-29T01:00:00Z",
            "window_start": "2026-03-28T02:00:00Z",
            "window_end": "2026-03-29T01:00:00Z",
            "params": {"source": "2026-03-28..2026-03-29"},
        }
        assert (await served.get("/v1/tasks/a/params")).json["nominal"] > rfc3339(served.cluster.now_us)
        params = {"source": "{{ nominal | date }}", "also": ["{{ after.a.rows | text }}"]}
        await put(served, "child", params=params, after=["a"], schedule=None)
        found = (await served.get("/v1/tasks/child/params?at=2026-03-29T01:00:00Z")).json
        assert found["params"] == {"source": "2026-03-29", "also": ["{{ after.a.rows | text }}"]}
        await put(served, "once", params=NOMINAL, schedule={"at": "2026-12-01T00:00:00Z"})
        late = await served.ask("GET", "/v1/tasks/once/params?at=2026-12-02T00:00:00Z")
        assert (late.status, list(late.fields)) == (422, ["at"])
        await put(served, "by-hand", params=NOMINAL, schedule=None)
        found = (await served.get("/v1/tasks/by-hand/params?at=2026-12-02T00:00:00Z")).json
        assert (found["params"]["source"], found["window_start"]) == ("2026/12/02", None)
        assert (await served.ask("GET", "/v1/tasks/none/params")).status == 404
        assert (await served.ask("GET", "/v1/tasks/a/params?at=2026-12-02")).status == 422


@on_loop
async def test_a_run_by_hand_has_params_of_its_time_or_is_refused_at_once() -> None:
    async with servers() as served:
        lead(served)
        await put(served, params=NOMINAL, overlap="allow")
        run_id = await served.start_run(json={"fire_at": "2026-11-01T23:30:00Z"})
        view = (await served.get(f"/v1/runs/{run_id}")).json
        assert (view["params"], view["state"]) == ({"source": "2026/11/02", "times": 2}, "waiting")
        page = await served.ask("GET", f"/runs/{run_id}")
        assert b"params made for its occurrence" in page.body
        run_id = await served.start_run(
            json={"params": {"source": "x{{ nominal in UTC | date }}"}, "fire_at": view["fire_at"]}
        )
        assert (await served.get(f"/v1/runs/{run_id}")).json["params"] == {"source": "x2026-11-01"}
        wrong = await served.ask("POST", "/v1/tasks/a/runs", json={"params": {"source": "{{ x }}"}})
        assert list(wrong.fields) == ["params.source"]
        await put(served, params=WINDOW, overlap="allow")
        wrong = await served.ask("POST", "/v1/tasks/a/runs")
        assert "{{ window_start | date }} needs a window" in wrong.fields["params"]
        action = await served.ask("POST", "/v1/tasks/a/actions/preview", json={"args": {}})
        action = (await served.get(f"/v1/runs/{action.json['run_id']}")).json
        assert action["params"]["source"].startswith("2026-11-"), "as the next occurrence has them"


@on_loop
async def test_what_would_run_downstream_is_checked_too() -> None:
    async with servers() as served:
        lead(served)
        await put(served, params={"source": "x"}, overlap="allow")
        await put(served, "b", params={"source": "x"}, schedule=None)
        child: dict[str, Any] = {"after": ["a", "b"], "schedule": None, "params": {"source": "{{ after.b.n | text }}"}}
        await put(served, "b", params={"source": "x"})
        assert (await put(served, "c", **child)).status == 201
        wrong = await served.ask("POST", "/v1/tasks/a/runs", json={"downstream": True})
        assert "the result of b, which would not" in wrong.fields["downstream"]
        assert (await put(served, "c", **(child | {"params": WINDOW}))).status == 200
        wrong = await served.ask("POST", "/v1/tasks/a/runs", json={"downstream": True})
        assert "c would run, too, and its params need {{ window_start" in wrong.fields["downstream"]
        alone = await served.ask("POST", "/v1/tasks/c/runs")
        assert alone.status == 422
        assert (await put(served, "c", **(child | {"params": NOMINAL}))).status == 200
        assert (await served.ask("POST", "/v1/tasks/a/runs", json={"downstream": True})).status == 202
