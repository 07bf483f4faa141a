"""Network namespaces for the nodes of a cluster: cut off, deaf, dumb, lossy, and with packets that are held.

Each node has a namespace and an address of its own, joined to a bridge that has a namespace too, and so has this
process: a node that is cut off from the others still answers who watches it. What is cut is dropped in silence, as
by a broken switch. This kernel has no netem: packets are held by a process in the node's namespace to which
netfilter hands them (`testkit.faults.held_packets`). Wants root.
"""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

PEER: Final = {"INPUT": "-s", "OUTPUT": "-d"}
"""Which end of a packet names the other node."""

BOTH: Final = ("INPUT", "OUTPUT")
QUEUE: Final = 7


def why_not() -> str | None:
    """Why there can be no namespaces here; None if there can."""
    for tool in ("ip", "iptables"):
        if shutil.which(tool) is None:
            return f"there is no {tool} here"
    name = f"rota-try-{os.getpid()}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        return f"network namespaces cannot be made here: {tried.stderr.strip()}"
    subprocess.run(["ip", "netns", "delete", name], check=True)
    return None


class NetworkFault(Exception):
    """A command that was to change the network failed; says which, and why."""


class Spaces:
    """A namespace for each name, from `connect` to `end`. Names end in a number, which their address does too."""

    _made = itertools.count()

    def __init__(self, names: Iterable[str]) -> None:
        number = next(self._made)
        self._names = tuple(names)
        self._mark = f"rota-{os.getpid()}-{number}"
        # An interface's name has 15 characters at most. Each cluster of this process has a net of its own.
        self._leg = f"rota{os.getpid()}-{number}"
        self._net = f"10.{213 + number % 40}.{os.getpid() % 250}"
        self._held: dict[str, subprocess.Popen[str]] = {}

    def host(self, name: str) -> str:
        """Where a node is."""
        return f"{self._net}.{name.rpartition('-')[2]}"

    def within(self, name: str) -> list[str]:
        """What a command is preceded by to run in a node's namespace."""
        return ["ip", "netns", "exec", self._space(name)]

    def connect(self) -> None:
        """Make them. Raises `NetworkFault`."""
        hub = self._space("hub")
        _run("ip", "netns", "add", hub)
        _run("ip", "-n", hub, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", hub, "link", "set", "bridge", "up")
        _run("ip", "link", "add", self._leg, "type", "veth", "peer", "name", "test", "netns", hub)
        _run("ip", "address", "add", f"{self._net}.254/24", "dev", self._leg)
        _run("ip", "link", "set", self._leg, "up")
        _run("ip", "-n", hub, "link", "set", "test", "master", "bridge", "up")
        for name in self._names:
            space = self._space(name)
            _run("ip", "netns", "add", space)
            _run("ip", "-n", hub, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", space)
            _run("ip", "-n", hub, "link", "set", name, "master", "bridge", "up")
            _run("ip", "-n", space, "address", "add", f"{self.host(name)}/24", "dev", "eth0")
            _run("ip", "-n", space, "link", "set", "eth0", "up")
            _run("ip", "-n", space, "link", "set", "lo", "up")

    def place_outside(self, name: str) -> None:
        """Give this process the address of `name`, for a server that is none of the nodes; `cut` takes its name."""
        _run("ip", "address", "add", f"{self.host(name)}/24", "dev", self._leg)

    def end(self) -> None:
        """Take them down, with whatever was done to them."""
        for name in list(self._held):
            self._let_go(name)
        for space in (*map(self._space, self._names), self._space("hub")):
            _run("ip", "netns", "delete", space, check=False)

    def cut(self, name: str, others: Iterable[str], ways: Iterable[str] = BOTH) -> None:
        """Let nothing through between a node and these others; INPUT or OUTPUT alone: one way."""
        for other in others:
            for way in ways:
                self._rule(name, way, other, "-j", "DROP")

    def cut_but(self, name: str, other: str, ports: Iterable[int]) -> None:
        """Let nothing through between a node and another but TCP from or to these ports."""
        for way in BOTH:
            through = ("-p", "tcp", "-m", "multiport", "--ports", ",".join(map(str, ports)))
            self._rule(name, way, other, *through, "-j", "ACCEPT")
            self._rule(name, way, other, "-j", "DROP")

    def lose(self, name: str, others: Iterable[str], share: float) -> None:
        """Drop that share of the packets between a node and these others, either way."""
        for other in others:
            for way in BOTH:
                chance = ("-m", "statistic", "--mode", "random", "--probability", f"{share:.3f}")
                self._rule(name, way, other, *chance, "-j", "DROP")

    def hold(self, name: str, others: Iterable[str], least_s: float, most_s: float) -> None:
        """Deliver every packet between a node and these others so much later; in another order where those differ."""
        command = [sys.executable, "-m", "testkit.faults.held_packets", str(QUEUE), str(least_s), str(most_s)]
        self._held[name] = holder = subprocess.Popen(
            [*self.within(name), *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT
        )
        assert holder.stdout is not None
        if holder.stdout.readline() != "ready\n":
            raise NetworkFault(f"packets cannot be held: {' '.join(command)} ended with {holder.wait()}")
        for other in others:
            for way in BOTH:
                self._rule(name, way, other, "-j", "NFQUEUE", "--queue-num", str(QUEUE))

    def heal(self, *names: str) -> None:
        """Let everything through again, for these nodes or for all. What was held arrives yet."""
        for name in names or self._names:
            self._in(name, "iptables", "-F")
            if name in self._held:
                self._let_go(name)

    def _let_go(self, name: str) -> None:
        holder = self._held.pop(name)
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdin.close()  # that is what it ends by, when it has delivered all
        holder.wait(60)
        holder.stdout.close()

    def _rule(self, name: str, way: str, other: str, *target: str) -> None:
        self._in(name, "iptables", "-A", way, PEER[way], self.host(other), *target)

    def _space(self, name: str) -> str:
        return f"{self._mark}-{name}"

    def _in(self, name: str, *words: str) -> None:
        _run(*self.within(name), *words)


_ROOT: Final = Path(__file__).parents[2]


def _run(*words: str, check: bool = True) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise NetworkFault(f"{' '.join(words)}: {done.stderr.strip()}")
