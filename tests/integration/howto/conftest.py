"""One cluster of three nodes, on which the pages of docs/ are followed."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from node.cli.local import wait_for
from node.client import Client
from testkit.cluster import Cluster
from testkit.pages import Shell, follow

ROOT = Path(__file__).parents[3]
TOKEN = "a-token-of-the-readers"
ARCHIVED_S = 60.0


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that run commands, as `rota up` has them."""
    folder: Path = tmp_path_factory.mktemp("cluster")
    token_file = folder / "token"
    token_file.write_text(TOKEN)
    with Cluster(folder, env={"ROTA_TOKEN_FILE": str(token_file), "ROTA_SPARK_MASTER": "local[2]"}) as made:
        made.start()
        made.wait_until_whole()
        yield made


@pytest.fixture
def reader(cluster: Cluster, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Follows pages as a reader does."""
    with reader_of(cluster, tmp_path) as read:
        yield read
    cluster.mend()


@contextmanager
def reader_of(
    cluster: Cluster, folder: Path, stage: Callable[[str], None] | None = None
) -> Iterator[Callable[..., None]]:
    """A reader with a cluster: in one shell, in the empty `folder`, with `rota` in the PATH.

    `stage` carries out stage directions; None: those that pages of docs/ give.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
    env |= {
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), env.get("PATH", os.defpath))),
        "HOME": str(folder),
        "COLUMNS": "200",
        "ROTA_URL": ",".join(cluster.url(name) for name in cluster.names),
        "ROTA_TOKEN_FILE": str(cluster.token_file),
        "ROTA_SECRETS_DIR": str(cluster.secrets_dir),
    }
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    with Shell(folder, env) as shell:

        def read(*pages: str, **values: str) -> None:
            for page in pages:
                follow(ROOT / "docs" / page, shell, values, stage or (lambda words: _stage(cluster, shell, words)))

        yield read


def _ask_with_the_present_token(cluster: Cluster) -> None:
    assert cluster.token_file is not None
    cluster.token = cluster.token_file.read_text().strip()
    cluster.client = Client([cluster.url(name) for name in cluster.names], cluster.token)


def _stage(cluster: Cluster, shell: Shell, words: str) -> None:
    match words.split():
        case ["until", "it", "leads", "to", "the", "latest", "moment:", *command]:
            listed = " ".join(command)
            wait_for(listed, lambda: "to the latest moment" in shell.run(listed, ARCHIVED_S)[1], ARCHIVED_S)
        case ["kill", "the", "node", "that", "runs", task]:
            [run] = cluster.get("/v1/runs", task=task, state="running")["items"]
            cluster.kill(run["node"])
        case ["stop", "all"]:
            cluster.stop()
        case ["start", "all"]:
            _ask_with_the_present_token(cluster)
            cluster.start()
            cluster.wait_until_whole()
        case ["restart", "each"]:
            _ask_with_the_present_token(cluster)
            for node in cluster.names:
                cluster.stop(node)
                cluster.restart(node)
        case ["stop", node]:
            cluster.stop(node)
        case ["start", node]:
            cluster.restart(node)
        case _:
            raise ValueError(f"no such stage direction: {words!r}")
