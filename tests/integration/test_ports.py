"""A port that is held is there for its node, and for nobody else, however busy the machine is."""

import json
import os
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

SCRIPT = """
import json, socket
from pathlib import Path
from node.cli.ports import HOST, free_ports, hold

Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("40000 40009")
served = socket.create_server((HOST, 20_000))
[port] = free_ports(1)
held, taken, connections = hold([port]), [], []
for _ in range(9):  # all that there are but the one
    connections.append(socket.create_connection((HOST, 20_000)))
    taken.append(connections[-1].getsockname()[1])
with socket.create_server((HOST, port)) as node:  # it comes while the port is held
    listens = node.getsockname()[1]
held.close()
print(json.dumps({"port": port, "listens": listens, "taken": taken}))
"""


def test_a_held_port_is_given_to_no_connection_and_its_node_can_listen() -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("needs root, unshare and ip: it uses up all ports, which it does in a network namespace of its own")
    inside = ["sh", "-c", 'ip link set lo up && exec "$0" -c "$1"', sys.executable, SCRIPT]
    done = subprocess.run(["unshare", "--net", *inside], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    assert told["listens"] == told["port"]
    assert sorted([*told["taken"], told["port"]]) == list(range(40_000, 40_010))
