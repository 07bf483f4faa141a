"""Nodes that prepare processes for what is due soon, and for what they stand by for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node.cli.local import wait_for
from testkit.cluster import Cluster

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, each with room for one engine."""
    with Cluster(tmp_path_factory.mktemp("cluster"), env={"ROTA_ENGINES": "1"}) as made:
        made.start()
        yield made


@pytest.fixture
def cluster(nodes: Cluster) -> Cluster:
    """All three are up."""
    nodes.mend()
    return nodes


def prepared(cluster: Cluster) -> list[Path]:
    """The prepared processes without an attempt, by a file that each has written, and their attempts'."""
    # Not by `rglob`, which lists all folders, and fails if one is removed meanwhile.
    return list(cluster.folder.glob("*/scratch/prepared.*/ready"))


def ended(cluster: Cluster, name: str) -> list[Any]:
    runs = cluster.all("/v1/runs", task=name)
    return [run for run in runs if run["state"] == "succeeded"]


@pytest.mark.more
def test_a_scheduled_run_finds_what_its_owner_has_prepared_and_a_run_by_hand_does_not(cluster: Cluster) -> None:
    cluster.register("soon", "engine", schedule={"every_s": 5})
    [first, *_] = wait_for("a run has ended", lambda: ended(cluster, "soon"), deadline_s=30)
    assert first["result"] == {"prepared": True}
    assert cluster.ask("DELETE", "/v1/tasks/soon").status == 204
    wait_for("what is not needed is given up", lambda: not prepared(cluster))
    cluster.register("by-hand", "engine")
    assert cluster.wait_for_run(cluster.run("by-hand"))["result"] == {"prepared": False}


@pytest.mark.more
def test_a_run_after_another_finds_what_was_prepared_while_that_one_worked(cluster: Cluster) -> None:
    cluster.register("before", "numbered", params={"sleep_s": 3})
    cluster.register("after", "engine", after=["before"])
    for count, expected in ((1, False), (2, True)):  # the first run shows how long it takes
        cluster.run("before", downstream=True)
        wait_for(f"run {count}", lambda count=count: len(ended(cluster, "after")) == count, deadline_s=60)  # type: ignore[misc]
        assert ended(cluster, "after")[0]["result"] == {"prepared": expected}
    for name in ("after", "before"):
        assert cluster.ask("DELETE", f"/v1/tasks/{name}").status == 204


@pytest.mark.more
def test_a_task_that_is_not_due_after_all_has_its_process_given_up(cluster: Cluster) -> None:
    cluster.register("later", "engine", schedule={"every_s": 12})
    wait_for("one is prepared", lambda: prepared(cluster))
    assert cluster.ask("POST", "/v1/tasks/later/pause").status == 200
    wait_for("it is given up", lambda: not prepared(cluster))
    cluster.ask("DELETE", "/v1/tasks/later")


@pytest.mark.more
def test_a_standby_goes_on_in_a_process_that_it_had_prepared(cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    cluster.register("stays", "engine", params={"gate": str(gate)}, standbys=1)
    run_id = cluster.run("stays")
    run = cluster.wait_for_attempt(run_id, 1)
    [there] = wait_for("the standby is prepared", lambda: prepared(cluster))
    assert run["node"] not in there.parts
    cluster.kill(run["node"])
    gate.touch()
    taken = cluster.wait_for_run(run_id, node=cluster.others(run["node"])[0])
    assert (taken["attempt"], taken["result"]) == (2, {"prepared": True})


@pytest.mark.more
def test_what_is_beyond_the_bound_waits_and_says_so(cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    for name in ("one", "two"):
        cluster.register(name, "engine", params={"gate": str(gate)}, pin="node-1")
    runs = [cluster.run("one")]
    cluster.wait_for_attempt(runs[0], 1)
    runs.append(cluster.run("two"))
    waiting = wait_for("it waits", lambda: cluster.get("/v1/tasks/two/owner")["waiting"])
    assert waiting.startswith("node-1 has room for 1 attempt of such kinds at once (ROTA_ENGINES): one~")
    gate.touch()
    assert [cluster.wait_for_run(run_id)["state"] for run_id in runs] == ["succeeded", "succeeded"]
