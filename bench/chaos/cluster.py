"""The cluster that is harmed: nodes on loopback or each in a namespace, with clocks that move and a small disk."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from node.cli.local import LocalCluster
from node.client import Client
from testkit.faults.namespaces import Spaces
from testkit.faults.node_clocks import Clocks
from testkit.faults.small_disk import SmallDisk

PLACES: Final = 40
"""So many attempts all nodes together run at once: few enough that one of them has no room now and then."""


class HarmedCluster(LocalCluster):
    """Nodes with what is needed to harm them. `close` takes away what was made for it."""

    def __init__(
        self,
        folder: Path,
        nodes: int,
        env: Mapping[str, str],
        spaces: Spaces | None = None,
        clocks: Clocks | None = None,
        *,
        small_disk: bool = False,
    ) -> None:
        self.spaces = spaces
        self.clocks = clocks
        self._acting = threading.RLock()
        self._down: set[str] = set()
        """The nodes that do not run because they were killed or stopped here."""
        self.places = -(-PLACES // nodes)
        """So many attempts one node runs at once."""
        super().__init__(folder, nodes, env={"ROTA_MAX_RUNS": str(self.places), **env})
        self._disk: SmallDisk | None = None
        try:
            if spaces is not None:
                spaces.connect()
            if small_disk:
                self._disk = SmallDisk(self.data(self.names[-1]))
        except Exception:
            self.close()
            raise

    @property
    def disk(self) -> SmallDisk:
        """The disk that the last node's data folder is."""
        assert self._disk is not None, "drawn only where there is one"
        return self._disk

    def host(self, name: str) -> str:
        """Where a node is."""
        return super().host(name) if self.spaces is None else self.spaces.host(name)

    def command(self, name: str) -> list[str]:
        """A node is started in its namespace, where it has one."""
        return [*(self.spaces.within(name) if self.spaces else ()), *super().command(name)]

    def environment(self, name: str) -> dict[str, str]:
        """A node listens on its own address only, and its clock is one that can be moved."""
        bind = {"ROTA_BIND": self.host(name)} if self.spaces else {}
        return {**super().environment(name), **bind, **(self.clocks.environment(name) if self.clocks else {})}

    def data(self, name: str) -> Path:
        """A node's data folder."""
        return self.folder / name

    def start(self, *names: str) -> None:
        """Start these nodes, or all, without waiting for them."""
        with self._acting:
            self._down -= set(names or self.names)
            super().start(*names)

    def kill(self, name: str) -> None:
        """kill -9, and wait until it is dead."""
        with self._acting:
            self._down.add(name)
            super().kill(name)

    def stop(self, *names: str, deadline_s: float = 15) -> None:
        """Ask these nodes, or all, to stop in good order; kill what has not stopped in time."""
        if self._disk is not None:
            self._disk.thaw()  # what waits for it does not even die
        with self._acting:
            self._down |= set(names or self.names)
            super().stop(*names, deadline_s=deadline_s)

    def revive(self) -> list[tuple[str, int]]:
        """Start the nodes again that have ended by themselves: which, and with what exit code."""
        with self._acting:
            ended = [(name, code) for name in self.names if (code := self.exit_code(name)) is not None]
            ended = [(name, code) for name, code in ended if name not in self._down]
            for name, _ in ended:
                super().start(name)
            return ended

    def clients(self) -> list[Client]:
        """A client for each node, which asks that one first and the others where it cannot be reached."""
        urls = [self.url(name) for name in self.names]
        return [Client(urls[at:] + urls[:at], self.token) for at in range(len(urls))]

    def rest(self, *names: str) -> list[str]:
        """All nodes but these."""
        return [name for name in self.names if name not in names]

    def close(self) -> None:
        """Take down namespaces and disk; the nodes must have been stopped."""
        if self.spaces is not None:
            self.spaces.end()
        if self._disk is not None:
            self._disk.close()
