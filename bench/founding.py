"""One cluster, ever: nodes are started with lists that differ, lose their disks and are cut off, at random times.

    python -m bench.founding --rounds 20 --seed 1

Each round is one of three stories, on real processes: a cluster of three beside which two nodes are started with a list
of five, and a member loses its disk and takes that list while the others are cut off; the same where two of three lose
their disks; a first start of five with lists that differ at first. Those who are cut off are in network namespaces of
their own (wants root), or are stopped, where there are none. A line is printed for each round, and at the end the
number of cluster ids that ready nodes named beyond one a round, and the tasks that were lost. Exit code 1 if there are
any.
"""

import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.beginning import options_of
from node.cli.local import LocalCluster, NotInTime, wait_for
from node.client import ApiProblem, Unreachable
from testkit.faults.namespaces import Spaces, why_not

FIVE: Final = tuple(f"node-{number}" for number in range(1, 6))
THREE: Final = FIVE[:3]
TASKS: Final = 5
MENDED_S: Final = 60.0
_TOKEN: Final = "the token of a cluster that lives for a minute"


class Listed(LocalCluster):
    """Five nodes, each with a list of its own (`lists`; all, where nothing is said), and links that can be cut."""

    def __init__(self, folder: Path, spaces: Spaces | None = None) -> None:
        self.lists: dict[str, tuple[str, ...]] = {}
        self.cut: tuple[str, ...] = ()
        self._spaces = spaces
        super().__init__(folder, len(FIVE), env={"ROTA_TOKEN": _TOKEN})
        if spaces is not None:
            spaces.connect()

    def host(self, name: str) -> str:
        """Where a node is."""
        return super().host(name) if self._spaces is None else self._spaces.host(name)

    def command(self, name: str) -> list[str]:
        """What a node is started with, in its namespace."""
        return [*(self._spaces.within(name) if self._spaces is not None else ()), *super().command(name)]

    def environment(self, name: str) -> dict[str, str]:
        """With the list that the node is given."""
        raft_http = {one: self._plan[one] for one in self.lists.get(name, FIVE)}
        members = ",".join(f"{one}={self.host(one)}:{raft}:{http}" for one, (raft, http) in raft_http.items())
        return {**super().environment(name), "ROTA_MEMBERS": members, "ROTA_BIND": self.host(name)}

    def cut_off(self, names: Iterable[str]) -> None:
        """These reach one another, and nobody else; where there are no namespaces, they are stopped."""
        self.cut = tuple(names)
        for name in self.cut:
            if self._spaces is not None:
                self._spaces.cut(name, [other for other in FIVE if other not in self.cut])
            elif name in self.running():
                self.pause(name)

    def heal(self) -> None:
        """They are reached again."""
        if self._spaces is not None:
            self._spaces.heal()
        else:
            for name in self.running():
                self.resume(name)
        self.cut = ()

    def lose(self, name: str) -> None:
        """kill -9, and the data folder is gone."""
        self.kill(name)
        gone = self.folder / f"gone-{time.monotonic_ns()}"
        (self.folder / name).rename(gone)  # what its workers still write goes there
        shutil.rmtree(gone, ignore_errors=True)

    def end(self) -> None:
        """Kill all, and take the network down."""
        try:
            for name in self.running():
                self.kill(name)
            self.release_ports()
        finally:
            if self._spaces is not None:
                self._spaces.end()


@dataclass
class Watch:
    """Which cluster ids nodes have named that were ready, and which nodes those were."""

    cluster: Listed
    ids: dict[str, set[str]] = field(default_factory=dict)

    def look(self) -> None:
        """Ask all that can be asked."""
        for name in self.cluster.running():
            client = self.cluster.client_of(name, 0.5)
            try:
                client.call("GET", "/readyz")
                self.ids.setdefault(client.get("/v1/cluster")["id"], set()).add(name)
            except (Unreachable, ApiProblem):
                continue

    def look_for(self, for_s: float) -> None:
        """Ask again and again for so long."""
        end = time.monotonic() + for_s
        while time.monotonic() < end:
            self.look()
            time.sleep(0.1)


@dataclass
class Round:
    """One round's cluster, and what it draws from."""

    cluster: Listed
    watch: Watch
    rng: random.Random

    # -- the stories

    def one_disk(self) -> list[str]:
        """A member of three loses its disk, and is started with the list of five beside two that wait."""
        lost = [self.rng.choice(THREE)]
        return self._lost_beside_two(lost)

    def two_disks(self) -> list[str]:
        """Two of three lose theirs: no cluster can come of it, and the third has all that there was."""
        return self._lost_beside_two(self.rng.sample(THREE, 2))

    def first_start(self) -> list[str]:
        """Five start with lists of three and of five, at any time, and are cut off; then all have the same list."""
        cluster, rng = self.cluster, self.rng
        for name in FIVE:
            cluster.lists[name] = rng.choice([THREE, FIVE, FIVE, FIVE])
        for name in THREE:
            cluster.lists[name] = rng.choice([cluster.lists["node-1"], FIVE])
        for name in FIVE[3:]:
            cluster.lists[name] = FIVE
        for name in rng.sample(FIVE, 5):
            cluster.start(name)
            self.watch.look_for(rng.uniform(0, 0.6))
        cluster.cut_off(rng.sample(FIVE, rng.choice([1, 2])))
        self.watch.look_for(rng.uniform(1, 4))
        cluster.heal()
        for name in rng.sample(FIVE, 5):
            if cluster.lists[name] != FIVE:
                cluster.stop(name)
                cluster.lists[name] = FIVE
                cluster.start(name)
        # Where three with the shorter list had founded theirs, the two others wait, and are no members.
        members = self._members()
        self._ready(members)
        self._register()
        self.watch.look()
        return self._missing(members)

    def _members(self) -> tuple[str, ...]:
        def known() -> tuple[str, ...] | None:
            self.watch.look()
            for name in FIVE:
                try:
                    view = self.cluster.client_of(name, 0.5).get("/v1/cluster")
                except (Unreachable, ApiProblem):
                    continue
                if view["id"]:
                    return tuple(member["id"] for member in view["members"])
            return None

        return wait_for("there is a cluster", known, MENDED_S)

    def _lost_beside_two(self, lost: list[str]) -> list[str]:
        cluster, rng, watch = self.cluster, self.rng, self.watch
        cluster.lists = dict.fromkeys(THREE, THREE)
        cluster.start(*THREE)
        self._ready(THREE)
        self._register()
        early = rng.random() < 0.5
        if early:
            cluster.start(*FIVE[3:])
            watch.look_for(rng.uniform(0, 3))
        left = [name for name in THREE if name not in lost]
        cluster.cut_off(left)
        if not early and rng.random() < 0.5:
            cluster.start(*FIVE[3:])
        watch.look_for(rng.uniform(0, 1))
        for name in lost:
            cluster.lose(name)
            cluster.lists[name] = FIVE
        watch.look_for(rng.uniform(0, 1))
        for name in (*lost, *FIVE[3:]):
            if name not in cluster.running():
                cluster.start(name)
        watch.look_for(rng.uniform(4, 10))
        cluster.heal()
        if len(lost) == 1:
            self._ready(THREE)
            watch.look_for(1)
            return self._missing(THREE)
        watch.look_for(rng.uniform(3, 6))
        return self._missing(left)

    # -- what is asked

    def _ready(self, names: Iterable[str]) -> None:
        for name in names:
            client = self.cluster.client_of(name, 2)
            wait_for(f"{name} is ready", lambda client=client: client.call("GET", "/readyz"), MENDED_S)  # type: ignore[misc]
        self.watch.look()

    def _register(self) -> None:
        for number in range(TASKS):
            target = f"/v1/tasks/task-{number}"
            wait_for("a task is registered", lambda target=target: self._put(target), MENDED_S)  # type: ignore[misc]

    def _put(self, target: str) -> bool:
        body = {"kind": "command", "params": {"argv": ["true"]}}
        return self.cluster.client.call("PUT", target, body=body).status in (200, 201)

    def _missing(self, names: Iterable[str]) -> list[str]:
        """The tasks that one of these nodes does not have."""
        there = {f"task-{number}" for number in range(TASKS)}
        missing: set[str] = set()
        for name in names:
            items = self.cluster.client_of(name).get("/v1/tasks")["items"]
            missing |= there - {item["name"] for item in items}
        return sorted(missing)


def main() -> int:
    """Run the rounds; 1 if there was a second cluster, or something was lost."""
    parser = options_of(__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the first round; each has the next one")
    parser.add_argument("--stopped", action="store_true", help="stop those who are cut off, namespaces or not")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through the `finally` of a round: no node is left behind
    without = "--stopped" if asked.stopped else why_not()
    print(f"cut off by {'namespaces' if without is None else f'SIGSTOP ({without})'}", flush=True)
    second = lost = broken = 0
    for seed in range(asked.seed, asked.seed + asked.rounds):
        ids, missing, failed, said = _round(seed, separate=without is None)
        second += max(0, ids - 1)
        lost += missing
        broken += failed
        print(f"seed {seed}: {said}", flush=True)
    print(
        f"{asked.rounds} rounds: {second} second cluster ids, {lost} lost tasks, {broken} rounds not ended", flush=True
    )
    return 1 if second or lost or broken else 0


def _round(seed: int, *, separate: bool) -> tuple[int, int, int, str]:
    """How many cluster ids there were, and lost tasks; 1 if the round came to no end; and a line about it."""
    rng = random.Random(seed)
    stories: list[Callable[[Round], list[str]]] = [Round.one_disk, Round.one_disk, Round.two_disks, Round.first_start]
    story = rng.choice(stories)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rota-founding-", ignore_cleanup_errors=True) as folder:
        cluster = Listed(Path(folder), Spaces(FIVE) if separate else None)
        watch = Watch(cluster)
        missing, failed, why = [], 0, ""
        try:
            missing = story(Round(cluster, watch, rng))
        except NotInTime as error:
            failed, why = 1, f"; {error}"
            for name in FIVE:
                log = cluster.log_file(name)
                print(f"--- {name}\n{log.read_text()[-3000:] if log.exists() else ''}", file=sys.stderr)
        finally:
            cluster.end()
    named = ", ".join(f"{one} ({' '.join(sorted(names))})" for one, names in watch.ids.items())
    took_s = time.monotonic() - begun
    line = f"{story.__name__}, {took_s:.0f} s: {len(watch.ids)} cluster ids: {named}; {len(missing)} lost tasks{why}"
    return len(watch.ids), len(missing), failed, line


if __name__ == "__main__":
    sys.exit(main())
