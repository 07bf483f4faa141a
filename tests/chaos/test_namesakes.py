"""A second process with a node's name ends with an error message, and the node stays ready."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from node.cli.local import wait_for
from node.cli.ports import HOST, free_ports, hold
from testkit.cluster import Cluster

pytestmark = pytest.mark.chaos


@contextmanager
def second(cluster: Cluster, name: str, data: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another node with that name, at ports of its own. Its output is in `data`.log."""
    raft, http = free_ports(2)
    others = [member for member in cluster.members.split(",") if not member.startswith(f"{name}=")]
    members = ",".join([*others, f"{name}={HOST}:{raft}:{http}"])
    environment = {**cluster.environment(name), "ROTA_DATA": str(data), "ROTA_MEMBERS": members}
    with hold([raft, http]), data.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(
            cluster.command(name), env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@pytest.mark.more
def test_a_clone_and_an_empty_namesake_end_and_the_node_stays_ready(cluster: Cluster, tmp_path: Path) -> None:
    """The node was alternately ready and not ready while the other one lived, and no message said why."""
    follower = cluster.others(cluster.wait_for_leader())[0]
    cluster.stop(follower)
    shutil.copytree(cluster.folder / follower, tmp_path / "clone")
    cluster.restart(follower)
    cluster.wait_until_whole()
    leader = cluster.wait_for_leader()
    incarnation = cluster.member(follower)["incarnation"]

    for name, data in ((follower, tmp_path / "clone"), (follower, tmp_path / "empty"), (leader, tmp_path / "leader")):
        with second(cluster, name, data) as process:

            def ended(process: subprocess.Popen[bytes] = process, name: str = name) -> bool:
                assert cluster.ask("GET", "/readyz", name, fresh=False).status == 200
                return process.poll() is not None

            wait_for(f"the second {name} to end", ended)
            assert process.returncode == 1
        said = data.with_suffix(".log").read_text()
        assert (
            said.count(f"another process runs as {name}, at {HOST}:{cluster._plan[name][0]}, and was there first") == 1
        )
        assert "Traceback" not in said
    assert f"calls itself {follower}, which runs at {HOST}" in cluster.said(leader)
    assert cluster.said(leader).count(f"calls itself {leader}, as this one does") == 1
    assert cluster.member(follower)["incarnation"] == incarnation, "the node was marked down"
    assert cluster.wait_for_leader() == leader
