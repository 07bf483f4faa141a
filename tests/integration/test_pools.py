"""Pools on real nodes, one of which is killed meanwhile: never more runs at once than there is room for."""

from pathlib import Path
from typing import Any

import pytest

from node.cli.local import wait_for
from tasks.definition.run import ACTIVE
from testkit.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.more]

WORKS = (
    "import os, sys, time\n"
    "path, name = sys.argv[1], os.environ['ROTA_RUN_ID']\n"
    "mine = os.path.join(path, name)\n"
    "open(mine, 'x').close()\n"
    "until_s = time.monotonic() + 30\n"
    "while time.monotonic() < until_s:\n"
    "    here = [one for one in os.listdir(path) if not one.startswith('.')]\n"
    "    open(os.path.join(path, '.most-' + str(len(here))), 'w').close()\n"
    "    if os.path.exists(os.path.join(path, '.most-2')):\n"
    "        break\n"
    "    time.sleep(0.02)\n"
    "time.sleep(0.1)\n"
    "os.unlink(mine)\n"
)
"""Notes how many work at once, by files in one folder. The first waits for a second one; none waits for a third."""


def _register(cluster: Cluster, name: str, folder: Path, **spec: Any) -> None:
    argv = ["python3", "-c", WORKS, str(folder)]
    cluster.register(name, "command", params={"argv": argv}, retry={"attempts": 1}, **spec)


def test_no_more_run_at_once_than_the_pool_has_though_a_holder_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "working"
    folder.mkdir()
    with Cluster(tmp_path, 3) as cluster:
        cluster.start()
        cluster.wait_until_whole()
        assert cluster.ask("PATCH", "/v1/settings", json={"pools": {"dumps": 2}}).status == 200
        names = [f"dump-{number}" for number in range(8)]
        for name in names:
            _register(cluster, name, folder, uses={"dumps": 1})
        for name in names:
            cluster.run(name)
        _all_end(cluster, names, "succeeded")
        assert _most(folder) == 2
        # One that holds is killed with its node: its share goes to the next as soon as its lease is over.
        cluster.register("sleeps", "command", params={"argv": ["sleep", "600"]}, uses={"dumps": 2})
        cluster.run("sleeps")
        wait_for("the holder", lambda: _pool(cluster)["used"] == 2, 20)
        [holder] = _pool(cluster)["holders"]
        cluster.run("dump-0")
        wait_for("one that waits", lambda: _pool(cluster)["waiters"] == 1, 20)
        why = cluster.get("/v1/tasks/dump-0/why")
        assert why["code"] == "pool" and holder["run_id"] in why["sentence"], why
        cluster.kill(holder["node"])
        left = cluster.others(holder["node"])[0]
        wait_for("the lost run to be taken over", lambda: _held_by_others(cluster, left, holder["node"]), 20)
        run_id = _pool(cluster, left)["holders"][0]["run_id"]
        assert cluster.ask("DELETE", f"/v1/runs/{run_id}", left).status == 202
        _all_end(cluster, ["dump-0"], "succeeded", left)


def _pool(cluster: Cluster, node: str | None = None) -> Any:
    [pool] = cluster.get("/v1/pools", node)["items"]
    return pool


def _held_by_others(cluster: Cluster, node: str, lost: str) -> bool:
    """Whether the lost run goes first: it holds the pool again, elsewhere."""
    holders = _pool(cluster, node)["holders"]
    return [one["task"] for one in holders] == ["sleeps"] and holders[0]["node"] != lost


def _all_end(cluster: Cluster, names: list[str], state: str, node: str | None = None) -> None:
    def ended() -> bool:
        runs = [run for name in names for run in cluster.all(f"/v1/tasks/{name}/runs", node)]
        return not any(run["state"] in ACTIVE for run in runs)

    wait_for("all to end", ended, 60)
    for name in names:
        newest = cluster.all(f"/v1/tasks/{name}/runs", node)[0]
        assert newest["state"] == state, newest


def _most(folder: Path) -> int:
    return max(int(path.name.removeprefix(".most-")) for path in folder.iterdir())
