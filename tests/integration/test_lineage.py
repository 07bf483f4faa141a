"""Three nodes, of which the second has a disk of its own: a folder at one path is other data there.

What was found: `{pin: node-1, source: folder, keep: 2}`; node-1 was drained, node-2 backed up its own folder of that
name, and `keep` deleted both good copies.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node.cli.local import wait_for
from tasks.backup.manifest import newest_backup, survey_url
from testkit.cluster import Cluster
from testkit.command import Rota
from testkit.faults import mounts

pytestmark = pytest.mark.integration


class Machines(Cluster):
    """Nodes that share a disk at `uploads`, but for node-2, which has one of its own there."""

    def __init__(self, folder: Path) -> None:
        self.uploads = folder / "uploads"
        for place in (self.uploads, folder / "disk-1", folder / "disk-2"):
            place.mkdir()
        (folder / "disk-1" / "photo").write_text("the real one")
        (folder / "disk-2" / "trifle").write_text("of node-2")
        super().__init__(folder, env_of={name: {"ROTA_LABELS": "rack=a"} for name in ("node-1", "node-2")})

    def command(self, name: str) -> list[str]:
        """A node is started where its disk is mounted."""
        disk = "disk-2" if name == "node-2" else "disk-1"
        return [*mounts.within(self.folder / disk, self.uploads), *super().command(name)]

    def spec(self, *, shared: bool = False, **more: Any) -> dict[str, Any]:
        """A backup of what is at `uploads`."""
        source = {"type": "folder", "path": str(self.uploads), "shared": shared}
        params = {"source": source, "destination": str(self.folder / "to"), "keep": 2}
        return {"kind": "backup", "params": params, "retry": {"attempts": 1}, **more}

    def have_from_before(self, spec: dict[str, Any]) -> None:
        """A task as an older version took it, unchecked by what is asked today."""
        kept = {"order": 1, "version": 1, "registered_at_us": 1, "since_us": 1, "through_us": 1}
        body = {"beside": 0, "token": 0, "orders": 1, "tasks": [{"task": spec, **kept}]}
        assert self.ask("POST", "/v1/cluster/saved", json=body).status == 200

    def ended(self, task: str) -> Any:
        """A run of the task by hand, once it has ended."""
        return self.wait_for_run(self.run(task))

    def urls(self, task: str) -> set[str]:
        """The backups of a task."""
        return {found.url for found in survey_url(str(self.folder / "to" / task)).complete}


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    if (why := mounts.why_not()) is not None:
        pytest.skip(why)
    with Machines(tmp_path_factory.mktemp("machines")) as made:
        made.start()
        made.wait_until_whole()
        made.have_from_before({"name": "old", **made.spec(pin="node-1", group={"rack": "a"})})
        yield made
        made.check()


@pytest.fixture(autouse=True)
def undrained(machines: Machines) -> Iterator[None]:
    yield
    assert machines.ask("POST", "/v1/members/node-1/undrain").status == 200


def _drain(machines: Machines, task: str, owner: str | None) -> None:
    """Drain node-1, until the others know who owns the task."""
    assert machines.ask("POST", "/v1/members/node-1/drain").status == 200
    wait_for(
        f"{owner} owns {task}", lambda: machines.get(f"/v1/tasks/{task}/owner", "node-2")["owner"] == owner or None
    )


def test_a_folder_that_is_neither_bound_nor_shared_is_refused_and_both_ways_out_are_named(
    machines: Machines, tmp_path: Path
) -> None:
    pinned = machines.spec(pin="node-1")
    for method, target, body in (("PUT", "/v1/tasks/u", pinned), ("POST", "/v1/tasks", [{"name": "u", **pinned}])):
        reply = machines.ask(method, target, json=body)
        assert (reply.status, reply.problem) == (422, "invalid")
        [(field, message)] = reply.fields.items()
        assert field.endswith("params.source")
        assert "group: {node: ID}; a pin is only a preference" in message
        assert "`shared: true`" in message
    file = tmp_path / "u.json"
    file.write_text(json.dumps({"name": "u", **pinned}))
    dry = Rota(machines.url("node-2"))("apply", "-f", str(file), "--dry-run")
    assert (dry.code, "`shared: true`" in dry.err) == (2, True), dry
    machines.register("bound", **machines.spec(group={"node": "node-1"}))
    override = {"params": machines.spec()["params"]}
    assert machines.ask("POST", "/v1/tasks/bound/runs", json=override).status == 202
    machines.register("shared", **machines.spec(shared=True))
    assert machines.ask("POST", "/v1/tasks/shared/runs", json=override).status == 422, "params of a run, too"


def test_a_task_that_is_bound_waits_for_its_node(machines: Machines) -> None:
    machines.register("stays", **machines.spec(group={"node": "node-1"}))
    assert {member["id"]: member["labels"]["node"] for member in machines.get("/v1/members")["items"]} == {
        name: name for name in machines.names
    }
    assert machines.ended("stays")["node"] == "node-1"
    _drain(machines, "stays", None)
    [step] = [step for step in machines.get("/v1/tasks/stays/owner")["because"] if step["node"] == "node-2"]
    assert step["verdict"] == "group"


@pytest.mark.more
def test_a_node_with_another_disk_fails_and_both_good_copies_are_there(machines: Machines) -> None:
    """`told` is said to be shared, which it is not; of `old`, registered before that was asked, nothing is said."""
    machines.register("told", **machines.spec(shared=True, pin="node-1", group={"rack": "a"}))
    for task in ("told", "old"):
        for _ in range(3):
            run = machines.ended(task)
            assert (run["node"], run["state"]) == ("node-1", "succeeded")
    good = {task: machines.urls(task) for task in ("told", "old")}
    assert {task: len(urls) for task, urls in good.items()} == {"told": 2, "old": 2}
    for task in ("told", "old"):
        _drain(machines, task, "node-2")
        run = machines.ended(task)
        assert (run["node"], run["state"]) == ("node-2", "failed")
        assert "OtherSource" in run["error"]
        assert run["attempt"] == 1, "only a person can say that this source is right"
        assert "nothing was written or removed" in run["error"]
        assert "inode of the mount's root" in run["error"]
        assert machines.urls(task) == good[task]


def test_a_disk_that_is_shared_is_one_lineage_from_each_node(machines: Machines) -> None:
    machines.register("nas", **machines.spec(shared=True, pin="node-1"))
    first = machines.ended("nas")
    machines.register("nas", **machines.spec(shared=True, pin="node-3"))
    wait_for("node-3 owns it", lambda: machines.owner_of("nas") == "node-3" or None)
    runs = [machines.ended("nas") for _ in range(2)]
    assert [run["node"] for run in [first, *runs]] == ["node-1", "node-3", "node-3"]
    assert [run["result"]["removed"] for run in runs] == [0, 1]
    found = newest_backup(str(machines.folder / "to" / "nas"))
    assert (found.node, set(found.identity or {}) & {"node"}) == ("node-3", set())
