"""A cluster that is shared by the tests that leave it as it was."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from node.cli.ports import free_ports
from testkit.cluster import Cluster
from testkit.command import Rota

TOKEN = "a-token-of-the-clients"


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that require a token; the third does not run commands."""
    folder: Path = tmp_path_factory.mktemp("cluster")
    env_of = {
        "node-1": {"ROTA_LABELS": "zone=a,disk=ssd"},
        "node-2": {"ROTA_LABELS": "zone=b,disk=ssd"},
        "node-3": {"ROTA_LABELS": "zone=b", "ROTA_ALLOW_COMMAND": "0"},
    }
    with Cluster(folder, env={"ROTA_TOKEN": TOKEN}, env_of=env_of) as made:
        made.start()
        made.wait_until_whole()
        yield made
        made.check()


@pytest.fixture(scope="package")
def rota(cluster: Cluster) -> Rota:
    """The command with four addresses: one without a listener, then the three nodes."""
    [nobody] = free_ports(1)
    return Rota(f"http://127.0.0.1:{nobody}," + ",".join(cluster.url(name) for name in cluster.names), TOKEN)
