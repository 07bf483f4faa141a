"""A cluster that is shared by the tests that leave it as it was."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.cluster import Cluster

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
