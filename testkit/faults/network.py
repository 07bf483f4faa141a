"""A cluster whose nodes are in network namespaces of their own, so that they can be cut off from one another."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from testkit.cluster import Cluster
from testkit.faults.namespaces import BOTH, Spaces, why_not

__all__ = ["SeparateCluster", "why_not"]


class SeparateCluster(Cluster):
    """Nodes with an address each. Further verbs: `cut_off`, `lose_heartbeats` and `heal`.

    `outside`: names that end in numbers, such as "store-250", of servers that tasks use. They run in this process's own
    namespace, at `host(name)`, and nodes can be cut off from them, too.
    """

    def __init__(self, folder: Path, nodes: int = 3, outside: Iterable[str] = ()) -> None:
        self._spaces = Spaces(f"node-{number}" for number in range(1, nodes + 1))
        super().__init__(folder, nodes, open_to_all=False)
        self._spaces.connect()
        for name in outside:
            self._spaces.place_outside(name)

    def host(self, name: str) -> str:
        """Where a node is, or what is outside."""
        return self._spaces.host(name)

    def command(self, name: str) -> list[str]:
        """A node is started in its namespace."""
        return [*self._spaces.within(name), *super().command(name)]

    def environment(self, name: str) -> Mapping[str, str]:  # type: ignore[override]
        """A node listens on its own address only."""
        return {**super().environment(name), "ROTA_BIND": self.host(name)}

    def cut_off(self, name: str, *others: str, ways: tuple[str, ...] = BOTH) -> None:
        """Let nothing through between a node and these others, or all; INPUT or OUTPUT alone: one way."""
        self._spaces.cut(name, others or self.others(name), ways)

    def lose_heartbeats(self, name: str, other: str) -> None:
        """Let nothing through between a node and another but Raft and HTTP."""
        at = dict(member.split("=") for member in self.members.split(","))
        self._spaces.cut_but(name, other, [int(port) for one in (name, other) for port in at[one].split(":")[1:]])

    def heal(self) -> None:
        """Let everything through again."""
        self._spaces.heal()

    def mend(self) -> None:
        """Healed, and whole again."""
        self.heal()
        super().mend()

    def end(self) -> None:
        """Kill all, and take the network down."""
        try:
            super().end()
        finally:
            self._spaces.end()
