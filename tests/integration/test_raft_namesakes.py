"""Two processes with the name of one member: the first one stays, the other ends and logs why."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from node.cli.local import wait_for
from node.cli.ports import HOST, free_ports, hold
from testkit.raft.raft_cluster import Cluster, Process

pytestmark = pytest.mark.integration


@contextmanager
def cluster_of(folder: Path, members: int) -> Iterator[Cluster]:
    """A cluster that has committed entries, and was restarted once: `NAME.copy` is each member's folder as of then."""
    made = Cluster(folder, members)
    try:
        made.start()
        made.leader().do("push", start=0, count=10, window=5)
        made.same(10)
        made.stop()
        for name in made.addresses:
            shutil.copytree(folder / name, folder / f"{name}.copy")
        made.start()
        made.leader()
        yield made
    finally:
        made.close()


@contextmanager
def another(cluster: Cluster, name: str, folder: str) -> Iterator[Process]:
    """A second process with a member's name, at a port of its own."""
    [port] = free_ports(1)
    with hold([port]):
        process = cluster.process(
            name, folder=str(cluster.folder / folder), addresses=cluster.addresses | {name: (HOST, port)}
        )
        try:
            yield process
        finally:
            process.kill()


def log(cluster: Cluster) -> str:
    return (cluster.folder / "members.log").read_text()


def ends(cluster: Cluster, name: str, process: Process) -> None:
    """Wait until that process ends, naming the address of the other one."""
    failed = wait_for(f"the second {name} to end", lambda: process.failed)
    host, port = cluster.addresses[name]
    assert failed.startswith(f"NameTaken: another process runs as {name}, at {host}:{port}, and was there first. ")
    assert "ROTA_NODE" in failed


@pytest.mark.more
@pytest.mark.parametrize("members", [2, 3])
def test_a_clone_of_a_running_member_ends_and_the_member_continues(tmp_path: Path, members: int) -> None:
    """As after cloning a machine: the members' connections alternated between the two while both ran."""
    with cluster_of(tmp_path, members) as cluster:
        leader = cluster.leader().me
        roles = {name: len(process.roles) for name, process in cluster.running.items()}
        for name in cluster.addresses:
            for folder in (f"{name}.copy", f"{name}.empty"):
                with another(cluster, name, folder) as second:
                    ends(cluster, name, second)
        assert cluster.leader().me == leader
        assert roles == {name: len(process.roles) for name, process in cluster.running.items()}, (
            "a member's role changed"
        )
        cluster.leader().do("push", start=100, count=10, window=5)
        cluster.same(20)
        for name in cluster.addresses:
            assert f"calls itself {name}, which runs at {HOST}:{cluster.addresses[name][1]} and answers" in log(cluster)
            assert f"calls itself {name}, as this one does" in log(cluster)


def one_ends(name: str, starts: list[Process]) -> tuple[Process, Process]:
    """Wait until one of two starts of a member ends; returns it, and the other one."""
    wait_for(f"one {name} to end", lambda: any(start.failed for start in starts))
    ended, stays = sorted(starts, key=lambda start: not start.failed)
    assert ended.failed.startswith(f"NameTaken: another process runs as {name}, at {HOST}:")
    return ended, stays


@pytest.mark.more
def test_of_two_simultaneous_starts_of_one_member_one_stays(tmp_path: Path) -> None:
    """Each is admitted by some members. The losing start was disconnected after three seconds without a reason."""
    with cluster_of(tmp_path, 3) as cluster:
        pushed = 10
        for name, folder in (("n1", "copy"), ("n2", "empty")):  # n1 dials none, n2 dials one and is dialled by one
            cluster.stop(name)
            if folder == "empty":
                shutil.rmtree(tmp_path / name)
            with another(cluster, name, f"{name}.{folder}") as second:
                first = cluster.process(name)
                ended, cluster.running[name] = one_ends(name, [first, second])
                cluster.leader().do("push", start=1000 + pushed, count=10, window=5)
                pushed += 10
                cluster.same(pushed)
                assert not cluster.running[name].failed
                ended.kill()
                if ended is first:
                    cluster.kill(name)
                    cluster.start(name)
                    cluster.leader()


@pytest.mark.more
def test_a_start_replaces_a_stopped_one_which_ends_when_resumed(tmp_path: Path) -> None:
    """Its connections are still open, as after a loss of the machine."""
    with cluster_of(tmp_path, 3) as cluster:
        name = "n3"  # the greatest id dials: the others need not know where it is
        cluster.running[name].pause()
        try:
            with another(cluster, name, f"{name}.copy") as second:
                wait_for("the second one to be ready", lambda: second.role.get("ready"))
                cluster.running[name].wake()
                wait_for("the first one to end", lambda: cluster.running[name].failed)
                assert second.failed == ""
                second.stop()
        finally:
            cluster.running[name].wake()
        cluster.kill(name)
        began_s = time.monotonic()
        cluster.start(name)
        cluster.leader()
        assert time.monotonic() - began_s < 20


@pytest.mark.more
@pytest.mark.parametrize("stays", ["n1", "n3"])  # n1 is dialled by all others, n3 dials them
def test_a_dead_member_whose_port_refuses_connections_is_not_waited_for(tmp_path: Path, stays: str) -> None:
    """A leader that died just when the third member was back was replaced a second later than another one."""
    with cluster_of(tmp_path, 3) as cluster:
        cluster.stop()
        cluster.timing["settle_s"] = 1e6
        cluster.start()
        cluster.leader()
        back, dead = (name for name in cluster.addresses if name != stays)
        for name in (back, dead):
            cluster.kill(name)
        cluster.start(back)
        cluster.leader().do("push", start=100, count=10, window=5)
        cluster.same(20)
