"""A cluster whose nodes are in network namespaces of their own, so that they can be cut off from one another.

Each node's namespace is joined to a bridge, which has a namespace too, and so has this process: a node that is cut
off from the others still answers the test. What is cut is dropped in silence, as by a broken switch.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.cluster import Cluster

TOKEN: Final = "a-token-of-the-clients"
DROP: Final = {"INPUT": "-s", "OUTPUT": "-d"}


def why_not() -> str | None:
    """Why there can be no namespaces here; None if there can."""
    for tool in ("ip", "iptables"):
        if shutil.which(tool) is None:
            return f"there is no {tool} here"
    tried = subprocess.run(
        ["ip", "netns", "add", f"rota-try-{os.getpid()}"], capture_output=True, text=True, check=False
    )
    if tried.returncode != 0:
        return f"network namespaces cannot be made here: {tried.stderr.strip()}"
    subprocess.run(["ip", "netns", "delete", f"rota-try-{os.getpid()}"], check=True)
    return None


class SeparateCluster(Cluster):
    """Nodes with an address each. Further verbs: `cut_off` and `heal`."""

    def __init__(self, folder: Path, nodes: int = 3) -> None:
        self._net = f"10.213.{os.getpid() % 250}"
        self._mark = f"rota-{os.getpid()}"
        self._leg = f"rota{os.getpid()}"
        super().__init__(folder, nodes, env={"ROTA_TOKEN": TOKEN})
        self._connect()

    def host(self, name: str) -> str:
        """Where a node is."""
        return f"{self._net}.{name.rpartition('-')[2]}"

    def command(self, name: str) -> list[str]:
        """A node is started in its namespace."""
        return ["ip", "netns", "exec", self._space(name), *super().command(name)]

    def environment(self, name: str) -> Mapping[str, str]:  # type: ignore[override]
        """A node listens on its own address only."""
        return {**super().environment(name), "ROTA_BIND": self.host(name)}

    def cut_off(self, name: str, *others: str, ways: tuple[str, ...] = ("INPUT", "OUTPUT")) -> None:
        """Let nothing through between a node and these others, or all; INPUT or OUTPUT alone: one way."""
        for other in others or self.others(name):
            for way in ways:
                self._in(name, "iptables", "-A", way, DROP[way], self.host(other), "-j", "DROP")

    def heal(self) -> None:
        """Let everything through again."""
        for name in self.names:
            self._in(name, "iptables", "-F")

    def mend(self) -> None:
        """Healed, and whole again."""
        self.heal()
        super().mend()

    def end(self) -> None:
        """Kill all, and take the network down."""
        try:
            super().end()
        finally:
            for space in (*map(self._space, self.names), self._space("hub")):
                _run("ip", "netns", "delete", space, check=False)

    def _connect(self) -> None:
        hub = self._space("hub")
        _run("ip", "netns", "add", hub)
        _run("ip", "-n", hub, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", hub, "link", "set", "bridge", "up")
        _run("ip", "link", "add", self._leg, "type", "veth", "peer", "name", "test", "netns", hub)
        _run("ip", "address", "add", f"{self._net}.254/24", "dev", self._leg)
        _run("ip", "link", "set", self._leg, "up")
        _run("ip", "-n", hub, "link", "set", "test", "master", "bridge", "up")
        for name in self.names:
            space = self._space(name)
            _run("ip", "netns", "add", space)
            _run("ip", "-n", hub, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", space)
            _run("ip", "-n", hub, "link", "set", name, "master", "bridge", "up")
            _run("ip", "-n", space, "address", "add", f"{self.host(name)}/24", "dev", "eth0")
            _run("ip", "-n", space, "link", "set", "eth0", "up")
            _run("ip", "-n", space, "link", "set", "lo", "up")

    def _space(self, name: str) -> str:
        return f"{self._mark}-{name}"

    def _in(self, name: str, *words: str) -> None:
        _run("ip", "netns", "exec", self._space(name), *words)


def _run(*words: str, check: bool = True) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
