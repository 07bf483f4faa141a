"""What keeps a node from starting: one clear sentence, an exit code, and no change on the disk."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from node.cli.local import wait_for
from node.cli.ports import free_ports
from testkit.cluster import Cluster

pytestmark = pytest.mark.integration

FILL_BYTES = 17 << 20
"""More than the limit of Raft's log, so that a snapshot is made."""


@dataclass
class Ended:
    """A node that did not start."""

    code: int
    lines: list[str]

    @property
    def sentence(self) -> str:
        """The only line that it printed."""
        assert len(self.lines) == 1, "\n".join(self.lines)
        return self.lines[0]


def start(environment: Mapping[str, str]) -> Ended:
    """Start a node that is expected to end at once; 20 s at most."""
    command = Cluster.command(None, "")  # type: ignore[arg-type]  # the same for every node
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return Ended(done.returncode, done.stderr.strip().splitlines())


def configured(folder: Path, **changes: str | None) -> dict[str, str]:
    """A valid environment of a node with these changes (None: variable removed)."""
    raft, http = free_ports(2)
    whole = {
        "ROTA_NODE": "a",
        "ROTA_MEMBERS": f"a=127.0.0.1:{raft}:{http}",
        "ROTA_DATA": str(folder),
        "ROTA_SECRET": "s" * 32,
        **changes,
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
    return inherited | {name: value for name, value in whole.items() if value is not None}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ROTA_NODE": "b"}, "ROTA_MEMBERS does not contain this node: ROTA_NODE is 'b'"),
        ({"ROTA_SECRET": None}, "ROTA_SECRET (or ROTA_SECRET_FILE) is not set"),
        ({"ROTA_SECRET": None, "ROTA_SECRET_FILE": "/nowhere/secret"}, "ROTA_SECRET_FILE=/nowhere/secret: No such"),
    ],
    ids=["not among the members", "no secret", "no file with it"],
)
def test_a_wrong_setting_is_named_and_nothing_is_created(  # the others: tests/unit/node/app/test_config.py
    tmp_path: Path, changes: dict[str, str | None], said: str
) -> None:
    ended = start(configured(tmp_path / "data", **changes))
    assert (ended.code, said in ended.sentence) == (2, True), ended
    assert not (tmp_path / "data").exists()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running cluster of one, whose data folder has every kind of file."""
    with Cluster(tmp_path_factory.mktemp("alone"), 1) as made:
        made.start()
        made.wait_until_whole()
        made.register("kept", params={"says": "something"})
        made.wait_for_run(made.run("kept"))
        for turn in range(FILL_BYTES // 900_000):
            made.register("large", params={"says": f"{turn:06}" * 150_000})
        wait_for("a snapshot is made", lambda: (made.folder / "node-1/raft/snapshot").exists())
        for number in range(20):
            made.register(f"late-{number}")
        yield made


@pytest.fixture(scope="module")
def left(alone: Cluster) -> Path:
    """The node's folder after kill -9; the node stays down."""
    alone.kill("node-1")
    return alone.folder / "node-1"


def test_a_folder_serves_one_process_at_a_time(alone: Cluster) -> None:
    raft, http = free_ports(2)
    elsewhere = {**alone.environment("node-1"), "ROTA_MEMBERS": f"node-1=127.0.0.1:{raft}:{http}"}
    ended = start(elsewhere)
    assert ended.code == 1
    assert re.search(rf"node-1 is in use by a node that runs already \(process {alone.pid('node-1')}\)", ended.sentence)
    assert alone.get("/v1/cluster")["quorum"], "the one that runs is not disturbed"


def test_a_folder_belongs_to_one_node(alone: Cluster, left: Path) -> None:
    raft, http = free_ports(2)
    other = {**alone.environment("node-1"), "ROTA_NODE": "b", "ROTA_MEMBERS": f"b=127.0.0.1:{raft}:{http}"}
    ended = start(other)
    assert (ended.code, "belongs to node 'node-1', and ROTA_NODE is 'b'" in ended.sentence) == (1, True), ended


@pytest.mark.parametrize("which", ["raft", "http", "heartbeat"])
def test_a_port_in_use_is_named(tmp_path: Path, which: str) -> None:
    raft, http, heartbeat = free_ports(3)
    port = {"raft": raft, "http": http, "heartbeat": heartbeat}[which]
    changes = {"ROTA_MEMBERS": f"a=127.0.0.1:{raft}:{http}", "ROTA_HEARTBEAT_PORT": str(heartbeat)}
    with closing(socket.create_server(("127.0.0.1", port))):
        ended = start(configured(tmp_path / "data", **changes))
    said = [line for line in ended.lines if " INFO " not in line]
    assert (ended.code, len(said)) == (1, 1), ended
    assert str(port) in said[0], ended


def flip(path: Path, at: int = 0, every: int | None = None) -> None:
    """Invert one byte, or every `every`-th byte."""
    content = bytearray(path.read_bytes())
    for place in range(at, len(content), every or len(content)):
        content[place] ^= 0xFF
    path.write_bytes(content)


def remove(folder: Path, pattern: str) -> None:
    """Lose files."""
    for path in folder.glob(pattern):
        path.unlink()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "raft/raft.sqlite": lambda folder: flip(folder / "raft/raft.sqlite", every=1500),
    "raft/raft.sqlite-wal": lambda folder: flip(folder / "raft/raft.sqlite-wal", at=12_500),
    "raft/snapshot": lambda folder: flip(folder / "raft/snapshot", at=1_000_000),
    "raft/snapshot cut off": lambda folder: os.truncate(folder / "raft/snapshot", 100_000),
    "raft/raft.sqlite gone": lambda folder: remove(folder, "raft/raft.sqlite*"),
    "raft/snapshot gone": lambda folder: remove(folder, "raft/snapshot"),
}
"""With other members, a damaged member catches up from them: tests/chaos/test_damage.py."""


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=[] if what.endswith("gone") else pytest.mark.more) for what in DAMAGE]
)
def test_alone_a_damaged_log_is_refused_with_what_to_do(alone: Cluster, left: Path, tmp_path: Path, what: str) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(left, folder)
    DAMAGE[what](folder)
    for _ in range(2 if what == "raft/raft.sqlite-wal" else 1):  # to try again must not mend it by forgetting
        ended = start({**alone.environment("node-1"), "ROTA_DATA": str(folder)})
        said = [line for line in ended.lines if " INFO " not in line]
        assert (ended.code, len(said)) == (1, 1), ended
        assert what.partition(" ")[0].rpartition("/")[2].removesuffix("-wal") in said[0], said
        assert "put back a copy of the data folder" in said[0], f"it does not say what to do: {said}"


def test_an_undamaged_copy_starts_with_all_its_data(alone: Cluster, left: Path) -> None:
    alone.start()
    alone.wait_until_whole()
    assert {task["name"] for task in alone.all("/v1/tasks")} == {"kept", "large", *(f"late-{n}" for n in range(20))}
    assert [run["state"] for run in alone.all("/v1/runs")] == ["succeeded"]
