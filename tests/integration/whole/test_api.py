"""The HTTP API as a client uses it: three real nodes, each asked for everything."""

from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from testkit.cluster import Cluster
from tests.integration.whole.conftest import TOKEN

pytestmark = pytest.mark.integration

NODES = ("node-1", "node-2", "node-3")


@pytest.mark.parametrize("node", NODES)
def test_any_member_answers_anything(cluster: Cluster, node: str) -> None:
    """All paths for reading; `ask` validates each answer against /openapi.json."""
    name = f"read-{node}"
    task = cluster.register(name, node=node, params={"says": "a line for the log", "steps": 1})
    run_id = cluster.run(name, node)
    done = cluster.wait_for_run(run_id, node=node)
    assert (done["state"], done["task"], done["trigger"], done["result"]["steps"]) == ("succeeded", name, "manual", 1)

    assert cluster.get("/healthz", node) == {"status": "ok"}
    assert cluster.get("/readyz", node)["status"] == "ready"
    seen = cluster.get("/v1/cluster", node)
    assert (seen["node"], seen["quorum"], len(seen["members"])) == (node, True, 3)
    assert seen["leader"] in NODES
    assert cluster.get("/v1/settings", node) == seen["settings"]
    members = cluster.get("/v1/members", node)["items"]
    assert [(member["id"], member["slot"], member["status"]) for member in members] == [
        ("node-1", 0, "up"),
        ("node-2", 1, "up"),
        ("node-3", 2, "up"),
    ]
    kinds = {kind["kind"]: kind for kind in cluster.get("/v1/kinds", node)["items"]}
    assert kinds["command"]["members"] == ["node-1", "node-2"]
    assert kinds["probe"]["params"]["properties"].keys() >= {"notes", "steps", "gate"}

    told = cluster.get(f"/v1/tasks/{name}", node)
    changing = {"last", "next_fire_at", "warnings"}
    assert {field: told[field] for field in task.keys() - changing} == {
        field: task[field] for field in task.keys() - changing
    }
    assert told["last"]["run_id"] == run_id
    owner = cluster.get(f"/v1/tasks/{name}/owner", node)
    assert owner["because"][-1] == {"node": owner["owner"], "verdict": "chosen"}
    assert sorted(owner["preference"]) == sorted(NODES)
    assert cluster.get(f"/v1/tasks/{name}/owner", node, without=owner["owner"])["owner"] != owner["owner"]
    plan = cluster.get("/v1/plan", node, without=owner["owner"])
    assert {"task": name, "from": owner["owner"]}.items() <= _only(plan["moves"], task=name).items()
    assert sum(load["now"] for load in plan["load"].values()) == sum(load["then"] for load in plan["load"].values())

    assert cluster.get(f"/v1/tasks/{name}/runs", node, state="succeeded")["items"] == [done]
    assert done in cluster.all("/v1/runs", node, node=done["node"], task=name, state="succeeded")
    assert cluster.get(f"/v1/runs/{run_id}", node) == done
    assert "a line for the log" in cluster.ask("GET", f"/v1/runs/{run_id}/log", node, attempt=1).body.decode()
    assert b"rota_" in cluster.ask("GET", "/metrics", node).body
    assert b"swagger" in cluster.ask("GET", "/docs", node).body.lower()
    assert cluster.get("/openapi.json", node) == cluster.description.document


def test_the_description_is_valid_openapi(cluster: Cluster) -> None:
    OpenAPIV31SpecValidator(cluster.get("/openapi.json")).validate()


def _only(items: list[Any], **fields: Any) -> Any:
    [found] = [item for item in items if fields.items() <= item.items()]
    return found


@pytest.mark.parametrize("node", NODES)
def test_a_write_is_forwarded_and_can_be_read_anywhere_at_once(cluster: Cluster, node: str) -> None:
    name = f"write-{node}"
    reply = cluster.ask("PUT", f"/v1/tasks/{name}", node, json={"kind": "probe", "weight": 7})
    assert (reply.status, reply.headers["ETag"], reply.headers["Location"]) == (201, '"1"', f"/v1/tasks/{name}")
    for other in NODES:
        read = cluster.ask("GET", f"/v1/tasks/{name}", other, headers={"Rota-Index": str(reply.index)})
        assert (read.status, read.json["weight"]) == (200, 7)
        assert read.index >= reply.index
    gone = cluster.ask("DELETE", f"/v1/tasks/{name}", node)
    assert (gone.status, gone.body) == (204, b"")
    for other in NODES:
        assert cluster.ask("GET", f"/v1/tasks/{name}", other, consistent="true").problem == "not-found"


def test_if_match_keeps_two_writers_apart(cluster: Cluster) -> None:
    first = cluster.register("versions", weight=1)
    unchanged = cluster.ask("PUT", "/v1/tasks/versions", json={"kind": "probe", "weight": 1})
    assert (unchanged.status, unchanged.json["version"]) == (200, first["version"])
    epoch = unchanged.epoch
    changed = cluster.ask("PUT", "/v1/tasks/versions", json={"kind": "probe"}, headers={"If-Match": '"1"'})
    assert (changed.status, changed.json["version"]) == (200, 1), "what is not said is the default, which it was"
    assert changed.epoch == epoch, "an unchanged spec keeps version and epoch"
    second = cluster.ask("PUT", "/v1/tasks/versions", json={"kind": "probe", "weight": 2}, headers={"If-Match": '"1"'})
    assert (second.status, second.json["version"], second.epoch) == (200, 2, epoch + 1)
    for method, body in (("PUT", {"kind": "probe", "weight": 3}), ("DELETE", {})):
        late = cluster.ask(method, "/v1/tasks/versions", "node-2", json=body, headers={"If-Match": '"1"'})
        assert (late.status, late.problem) == (412, "version-conflict")
    again = cluster.ask("PUT", "/v1/tasks/versions", json={"kind": "probe"}, headers={"If-None-Match": "*"})
    assert again.status == 412
    assert cluster.get("/v1/tasks/versions")["weight"] == 2
    assert cluster.ask("DELETE", "/v1/tasks/versions", headers={"If-Match": '"2"'}).status == 204


def test_a_list_is_registered_whole_or_not_at_all(cluster: Cluster) -> None:
    specs = [{"name": f"list-{number}", "kind": "probe"} for number in range(5)]
    wrong: list[Any] = [
        [*specs, {"name": "list-5", "kind": "nothing of the kind"}],
        [*specs, {"name": "list-5", "kind": "probe", "params": {"steps": "many"}}],
        [*specs, specs[2]],
        [*specs, {"name": "list/5", "kind": "probe"}],
    ]
    for each in wrong:
        reply = cluster.ask("POST", "/v1/tasks", "node-2", json=each)
        assert (reply.status, reply.problem) == (422, "invalid")
        assert all(field.startswith("[5].") for field in reply.fields)
    assert not [task for task in cluster.all("/v1/tasks") if task["name"].startswith("list-")]

    tried = cluster.ask("POST", "/v1/tasks", "node-3", json=specs, dry_run="true")
    assert {item["change"] for item in tried.json["items"]} == {"created"}
    assert not [task for task in cluster.all("/v1/tasks") if task["name"].startswith("list-")]
    assert cluster.ask("POST", "/v1/tasks", "node-3", json=specs).json == tried.json
    again = cluster.ask("POST", "/v1/tasks", json=[{**specs[0], "weight": 2}, *specs[1:]])
    assert [item["change"] for item in again.json["items"]] == ["changed"] + ["unchanged"] * 4


def test_a_wrong_spec_is_reported_field_by_field_and_changes_nothing(cluster: Cluster) -> None:
    spec = {
        "kind": "command",
        "params": {"argv": "ls", "shell": True},
        "schedule": {"cron": "0 0 30 2 *"},
        "weight": 0,
        "overlap": "perhaps",
        "retry": {"attempts": 0},
        "timeout_s": -1,
        "colour": "red",
    }
    reply = cluster.ask("PUT", "/v1/tasks/bad", json=spec)
    assert reply.problem == "invalid"
    assert {"weight", "overlap", "retry.attempts", "timeout_s", "colour"} <= reply.fields.keys()
    assert any("schedule" in field and "never" in said for field, said in reply.fields.items()), reply.fields
    params = cluster.ask("PUT", "/v1/tasks/bad", json={"kind": "command", "params": {"argv": "ls", "shell": True}})
    assert params.fields.keys() == {"params.argv", "params.shell"}
    unknown = cluster.ask("PUT", "/v1/tasks/bad", json={"kind": "nothing"})
    assert "backup" in unknown.fields["kind"], "it names the kinds that there are"
    other = cluster.ask("PUT", "/v1/tasks/bad", json={"kind": "probe", "name": "good"})
    assert other.fields.keys() == {"name"}
    for name in ("a%2Fb", ".hidden", "a%20b", "x" * 129):
        assert cluster.ask("PUT", f"/v1/tasks/{name}", json={"kind": "probe"}).status == 422
    assert cluster.ask("PUT", "/v1/tasks/a/b", json={"kind": "probe"}).status == 404
    assert cluster.ask("GET", "/v1/tasks/bad").status == 404


def test_bodies_that_are_not_json_too_large_or_cross_site_are_refused(cluster: Cluster) -> None:
    before = cluster.get("/v1/cluster")["index"]
    large = cluster.ask("PUT", "/v1/tasks/large", data=b'{"kind": "probe", "x": "' + b"x" * 10_000_000 + b'"}')
    assert (large.status, large.problem) == (413, "too-large")
    many = cluster.ask("POST", "/v1/tasks", json=[{"name": f"n{n}", "kind": "probe"} for n in range(40_000)])
    assert (many.status, many.problem) == (413, "too-large")
    specs = [{"name": f"n{n}", "kind": "probe", "params": {"says": "x" * 102_000}} for n in range(10)]
    for dry_run in ("true", "false"):
        packed = cluster.ask("POST", "/v1/tasks", json=specs, dry_run=dry_run)
        assert (packed.status, packed.problem) == (413, "too-large"), "a try tells what will come of it"
        assert "with all defaults filled in" in packed.json["detail"]
    form = cluster.ask("PUT", "/v1/tasks/a", data=b"a=b", headers={"Content-Type": "text/plain"})
    assert (form.status, form.problem) == (415, "media-type")
    for body in (b"{", b"", b'{"kind": NaN}', b"\xff"):
        assert cluster.ask("PUT", "/v1/tasks/a", data=body).problem == "bad-request"
    for host in ("evil.example", "evil.example:8101", "127.0.0.1.evil.example"):
        assert cluster.ask("GET", "/v1/tasks", headers={"Host": host}).status == 421
    assert cluster.ask("PATCH", "/v1/tasks/a", json={}).problem == "method-not-allowed"
    assert cluster.ask("GET", "/v1/nothing").problem == "not-found"
    assert cluster.ask("GET", "/v1/tasks", headers={"Rota-Index": "soon"}).problem == "bad-request"
    assert cluster.ask("GET", "/v1/tasks", limit="1001").fields.keys() == {"limit"}
    assert cluster.ask("GET", "/v1/tasks", colour="red").fields.keys() == {"colour"}
    assert cluster.get("/v1/cluster")["index"] == before


@pytest.mark.parametrize("shown", ["", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x"])
def test_without_the_token_nothing_is_answered_or_changed(cluster: Cluster, shown: str) -> None:
    for method, path in (("GET", "/v1/cluster"), ("PUT", "/v1/tasks/a"), ("GET", "/metrics"), ("POST", "/v1/tasks")):
        reply = cluster.ask(method, path, "node-2", json={"kind": "probe"}, headers={"Authorization": shown})
        assert (reply.status, reply.problem) == (401, "unauthorized")
        assert reply.headers["WWW-Authenticate"].startswith("Bearer")
    for path in ("/healthz", "/readyz"):
        assert cluster.ask("GET", path, headers={"Authorization": shown}).status == 200


def test_lists_are_paged_and_filtered(cluster: Cluster) -> None:
    cluster.ask("POST", "/v1/tasks", json=[{"name": f"page-{n:02}", "kind": "probe"} for n in range(25)])
    names: list[str] = []
    after = None
    while True:
        page = cluster.get("/v1/tasks", "node-3", kind="probe", limit=7, after=after)
        assert len(page["items"]) <= 7
        names += [task["name"] for task in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert names == sorted(set(names))
    assert {f"page-{n:02}" for n in range(25)} <= set(names)
    by_owner = {node: {task["name"] for task in cluster.all("/v1/tasks", owner=node, kind="probe")} for node in NODES}
    assert set().union(*by_owner.values()) == set(names)
    assert sum(map(len, by_owner.values())) == len(names), "a task has one owner"
    assert cluster.get("/v1/tasks", kind="nothing")["items"] == []


def test_settings_are_changed_one_by_one_and_placement_follows(cluster: Cluster) -> None:
    before = cluster.get("/v1/settings")
    changed = cluster.ask("PATCH", "/v1/settings", "node-2", json={"balance_slack": None, "history_days": 7})
    assert changed.json == {**before, "balance_slack": None, "history_days": 7}
    assert cluster.ask("PATCH", "/v1/settings", json={"history_days": 8}).epoch == changed.epoch
    back = cluster.ask("PATCH", "/v1/settings", "node-3", json={"balance_slack": 0, "history_days": 30})
    assert back.epoch > changed.epoch
    wrong = cluster.ask("PATCH", "/v1/settings", json={"balance_slack": 0.0001, "lease_s": 0, "colour": 1})
    assert wrong.fields.keys() == {"balance_slack", "lease_s", "colour"}
    assert cluster.get("/v1/settings") == before


def test_a_drained_member_keeps_what_runs_and_gets_nothing_new(cluster: Cluster) -> None:
    notes = cluster.notes()
    cluster.register("drained", params=notes.params, pin="node-3")
    run_id = cluster.run("drained")
    notes.wait("beat")
    assert cluster.ask("POST", "/v1/members/node-3/drain", "node-1", json={}).json["status"] == "draining"
    owner = cluster.get("/v1/tasks/drained/owner")
    assert owner["owner"] != "node-3"
    assert owner["because"][0] == {"node": "node-3", "verdict": "draining"}
    assert owner["running_on"] == [{"node": "node-3", "run_id": run_id}]
    assert not cluster.all("/v1/tasks", owner="node-3")
    notes.let_go()
    run = cluster.wait_for_run(run_id)
    assert (run["state"], run["attempt"], run["node"]) == ("succeeded", 1, "node-3")
    assert cluster.wait_for_run(cluster.run("drained"))["node"] != "node-3"
    assert cluster.ask("POST", "/v1/members/node-3/undrain", "node-2", json={}).json["status"] == "up"
    assert cluster.owner_of("drained") == "node-3"


def test_members_come_and_go_with_a_reason_for_each_refusal(cluster: Cluster) -> None:
    there = {"id": "node-1", "host": "127.0.0.1", "raft_port": 1, "http_port": 2}
    assert cluster.ask("POST", "/v1/members", json=there).status == 409
    wrong = cluster.ask("POST", "/v1/members", json={"id": "a/b", "host": "a b", "raft_port": 0, "http_port": 70_000})
    assert wrong.fields.keys() == {"id", "host", "raft_port", "http_port"}
    for path in ("/v1/members/node-9/drain", "/v1/members/node-9/undrain"):
        assert cluster.ask("POST", path, json={}).problem == "not-found"
    assert cluster.ask("DELETE", "/v1/members/node-9").problem == "not-found"
    assert cluster.ask("DELETE", "/v1/members/node-2", "node-2").status == 409, "a member does not remove itself"
    assert len(cluster.get("/v1/members")["items"]) == 3


def test_where_no_member_runs_commands_the_error_says_how_to_allow_them(tmp_path: Path) -> None:
    with Cluster(tmp_path, 1, env={"ROTA_ALLOW_COMMAND": "0"}) as alone:
        alone.start()
        alone.wait_until_whole()
        refused = alone.ask("PUT", "/v1/tasks/ls", json={"kind": "command", "params": {"argv": ["ls"]}})
        assert "set ROTA_ALLOW_COMMAND=1 on a member" in refused.fields["kind"]
        assert "command" not in {kind["kind"] for kind in alone.get("/v1/kinds")["items"]}
