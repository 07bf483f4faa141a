"""What `rota up` refuses before it starts a node, and its messages."""

import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from node.cli.ports import HOST, claim_ports, free_ports
from node.cli.up import up_command


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """The command sets the umask of its process, which here is the tests' process."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


def up(folder: Path, port: int) -> Result:
    return CliRunner().invoke(up_command, ["--dir", str(folder), "--port", str(port), "--nodes", "1"])


def test_leftover_nodes_of_a_killed_up_are_named_with_the_command_that_stops_them(tmp_path: Path) -> None:
    """Before, the message was that a port is taken, or one node's last log line."""
    for name, process in (("node-1", "101"), ("node-2", "102"), ("node-3", "103")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lock").write_text(process)
    with (tmp_path / "node-1" / "lock").open() as one, (tmp_path / "node-3" / "lock").open() as three:
        fcntl.flock(one, fcntl.LOCK_EX)
        fcntl.flock(three, fcntl.LOCK_EX)
        refused = up(tmp_path, free_ports(1)[0])
    assert refused.exit_code == 1
    assert f"still run on {tmp_path}: node-1 (process 101), node-3 (process 103)" in refused.output
    assert "kill 101 103" in refused.output
    assert not (tmp_path / "cluster.json").exists(), "the running nodes' ports are kept"


def test_ports_of_another_up_are_refused_before_its_nodes_listen(tmp_path: Path) -> None:
    """The second said "ready" of the first one's nodes, and its end made the first one's token unknown."""
    [port] = free_ports(1)
    with claim_ports([port]):
        refused = up(tmp_path / "r", port)
    assert (refused.exit_code, f"port {port} is taken" in refused.output) == (1, True)


def test_a_claim_leaves_the_port_to_a_listener_and_ends_with_its_stack() -> None:
    [port] = free_ports(1)
    with claim_ports([port]), pytest.raises(OSError, match=str(port)):
        claim_ports([port])
    with claim_ports([port]), socket.create_server((HOST, port)):
        pass
    with socket.create_server((HOST, port)), pytest.raises(OSError, match=str(port)):
        claim_ports([port])
    claim_ports([port]).close()
