"""Members that do not fit are named on both sides: real members, real connections."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node.cli.local import wait_for
from testkit.raft.raft_cluster import Cluster, Process

pytestmark = pytest.mark.integration

VERSIONS = {"n1": "1.0+g1", "n2": "1.0+g1", "n3": "1.0+g3"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, 3)
    yield made
    made.close()


def start(cluster: Cluster, member: str, **settings: Any) -> Process:
    cluster.running[member] = cluster.process(member, **{"version": VERSIONS[member], **settings})
    wait_for(f"{member} to start", lambda: cluster.running[member].started)
    return cluster.running[member]


def meets(process: Process, *wanted: list[Any]) -> None:
    """Wait until a member has met these, and nothing else beside a claim of the same."""

    def found() -> bool:
        met = process.do("mismatches")["mismatches"]
        return all(one in met for one in wanted) and len(met) == len(wanted)

    wait_for(f"{process.me} to meet {wanted}, not {process.do('mismatches')}", found)


@pytest.mark.more
@pytest.mark.parametrize(
    ("settings", "code", "here", "there"),
    [
        ({"secret": "another"}, "secret", "1.0+g1", "1.0+g3"),
        ({"protocol": "rf9"}, "build", "1.0+g1", "1.0+g3"),
    ],
    ids=["another secret", "another build"],
)
def test_a_node_of_another_build_or_secret_and_the_others_name_one_another(
    cluster: Cluster, settings: dict[str, str], code: str, here: str, there: str
) -> None:
    """At the founding, when each calls each; and in a cluster at work, where one of two dials first."""
    n1, n2 = start(cluster, "n1"), start(cluster, "n2")
    n3 = start(cluster, "n3", **settings)
    for process in (n1, n2):
        meets(process, ["n3", code, False, there, ""])
    meets(n3, ["n1", code, False, here, ""], ["n2", code, False, here, ""])
    cluster.stop("n3")
    start(cluster, "n3")
    cluster.leader().do("push", start=0, count=3, window=1)
    cluster.same(3)
    meets(n1, ["n3", "mixed", False, "1.0+g3", ""])
    cluster.stop("n3")
    meets(n1)
    n3 = start(cluster, "n3", **settings)
    for process in (n1, n2):
        meets(process, ["n3", code, False, there, ""])
    meets(n3, ["n1", code, False, here, ""], ["n2", code, False, here, ""])
    log = (cluster.folder / "members.log").read_text()
    assert "a caller at 127.0.0.1 that says it is n3" in log
    assert "n1 (127.0.0.1:" in log


def test_a_member_that_accepts_connections_and_says_nothing_is_told_so(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        cluster.more = {"addresses": cluster.addresses | {"n1": ("127.0.0.1", silent.getsockname()[1])}}
        n2 = start(cluster, "n2", addresses=cluster.more["addresses"])
        meets(n2, ["n1", "silent", False, "", ""])
    log = (cluster.folder / "members.log").read_text()
    assert log.count("says nothing") == 1


def test_what_does_not_speak_as_a_member_is_told_so(cluster: Cluster) -> None:
    """Such as a member of the builds before this one, which hang up without a word."""
    with socket.create_server(("127.0.0.1", 0)) as hangs_up:
        addresses = cluster.addresses | {"n1": ("127.0.0.1", hangs_up.getsockname()[1])}
        n2 = start(cluster, "n2", addresses=addresses)

        def answered() -> bool:
            caller, _ = hangs_up.accept()
            caller.settimeout(5)
            caller.recv(4096)
            caller.close()
            return bool(n2.do("mismatches")["mismatches"])

        wait_for("n2 to meet it for a while", answered)
        meets(n2, ["n1", "no-member", False, "", ""])
