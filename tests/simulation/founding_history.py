"""Random lives of folders that are to found a cluster, and only that: the real `Founding`, and elections.

Nodes are started again with other lists, shorter ones too; lose their folders; are told by hand to found without
others; what they say arrives late, or never. An election is modelled by what it must have: members that are all bound
to one founding as the candidate knows, and votes of a majority of them, each kept on its disk. A cluster that was so
elected is reported by its voters; the others may hear of it late.

What must hold: of all foundings that came to a cluster, no two have a folder in common.
"""

import hashlib
import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from node.raft.founding.founding import SILENT_S, Founding
from node.raft.founding.statement import Binding, KnownCluster, Statement

NAMES = "abcde"


@dataclass
class Folder:
    """What outlives a process. `life` is a number that no other folder has."""

    life: int
    bound: Binding | None = None
    told: KnownCluster | None = None
    voted_in: str = ""
    cluster_id: str = ""


@dataclass
class Node:
    """A process on a folder."""

    name: str
    folder: Folder
    founding: Founding

    @property
    def says(self) -> Statement:
        """How it stands."""
        return self.founding.statement(self.folder.cluster_id, self.founding.listed)


@dataclass
class History:
    """One life. `seed` decides all of it."""

    seed: int
    steps: int = 400
    now_s: float = 100.0
    lives_of: dict[str, set[int]] = field(default_factory=dict)
    founded: set[str] = field(default_factory=set)
    by_hand: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.lives = 0
        self.nodes: dict[str, Node] = {}
        self.under_way: list[tuple[str, Statement]] = []
        some = self.rng.sample(NAMES, self.rng.choice([2, 4]))
        self.lists = [frozenset(NAMES), frozenset(NAMES[:3]), frozenset(some)]
        self.agreed = self.rng.choice([0, 3, 20])
        self.harm = self.rng.choice([0.3, 1, 3])
        for name in NAMES:
            self._start(name, self._new(), self._list(name))

    def run(self) -> None:
        """Live it."""
        faults = (self._restart, self._lose, self._leave_out)
        does = (self._ask, self._deliver, self._decide, self._elect, self._wait, *faults)
        weights = (30, 60, 40, 10, 2, 0.5 * self.harm, 0.2 * self.harm, 0.4 * self.harm)
        for _ in range(self.steps):
            self.rng.choices(does, weights)[0]()

    @property
    def overlapping(self) -> bool:
        """Whether two clusters were founded that have a folder in common."""
        lives = [self.lives_of[founding] for founding in sorted(self.founded)]
        return any(one & other for place, one in enumerate(lives) for other in lives[:place])

    @property
    def digest(self) -> str:
        """Of all that the life has come to: equal lives have equal ones, in whatever process."""
        lives = [(founding, sorted(self.lives_of[founding])) for founding in sorted(self.lives_of)]
        says = [self.nodes[name].says for name in NAMES]
        ended = (sorted(self.founded), lives, says, self.under_way, self.now_s, self.rng.getstate())
        return hashlib.sha256(repr(ended).encode()).hexdigest()

    def _new(self) -> Folder:
        self.lives += 1
        return Folder(self.lives)

    def _list(self, name: str) -> frozenset[str]:
        return self.rng.choice([one for one in (*self.lists, *[self.lists[0]] * self.agreed) if name in one])

    def _start(self, name: str, folder: Folder, listed: frozenset[str]) -> None:
        founding = Founding(name, folder.life, listed, self.now_s, folder.told, folder.bound)
        founding.voted = bool(folder.voted_in)
        founding.blank = not folder.voted_in and not folder.cluster_id
        self.nodes[name] = Node(name, folder, founding)

    def _one(self) -> Node:
        return self.nodes[self.rng.choice(NAMES)]

    def _wait(self) -> None:
        self.now_s += self.rng.choice([0.2, 1.0, SILENT_S + 1])

    def _ask(self) -> None:
        node = self._one()
        self.now_s += 0.02
        for other in sorted(node.founding.listed - {node.name}):
            self.under_way.append((other, node.says))

    def _deliver(self) -> None:
        for _ in range(min(len(self.under_way), self.rng.choice([1, 10]))):
            name, said = self.under_way.pop(self.rng.randrange(len(self.under_way)))
            node = self.nodes[name]
            if not node.folder.cluster_id and self.rng.random() < 0.9:
                node.founding.hear(said, self.now_s)
            if self.rng.random() < 0.7:
                self.under_way.append((said.member, node.says))
        del self.under_way[:-60]

    def _decide(self) -> None:
        node = self._one()
        if node.folder.cluster_id:
            return
        while (promise := node.founding.promise(self.now_s)) is not None:
            if isinstance(promise, KnownCluster):
                node.folder.told = promise
            else:
                node.folder.bound = promise
                heard = [said.life for name, said in node.founding.statements.items() if name in promise.members]
                self.lives_of.setdefault(promise.founding, set()).update([node.folder.life, *heard])
            node.founding.keep(promise)

    def _elect(self) -> None:
        """A candidate asks for votes; each is kept before it is given."""
        candidate = self._one()
        founding = candidate.founding
        if candidate.folder.cluster_id or not founding.complete or founding.bound is None:
            return
        voters = founding.bound.members
        votes = [
            node
            for node in map(self.nodes.__getitem__, sorted(voters))
            if self.rng.random() < 0.8 and node.founding.complete and node.founding.founding == founding.founding
        ]
        for node in votes:
            node.folder.voted_in, node.founding.voted, node.founding.blank = founding.founding, True, False
        if 2 * len(votes) > len(voters):
            self.founded.add(founding.founding)
            for node in votes:
                node.folder.cluster_id = founding.founding

    def _restart(self) -> None:
        node = self._one()
        self._start(node.name, node.folder, self._list(node.name))

    def _lose(self) -> None:
        """A folder is lost; the one that takes its place is another one."""
        node = self._one()
        self._start(node.name, self._new(), self._list(node.name))

    def _leave_out(self) -> None:
        node = self._one()
        listed = sorted(node.founding.listed)
        out = self.rng.sample(listed, min(len(listed), self.rng.choice([1, 1, 2])))
        if not node.folder.cluster_id and node.founding.leave_out(out, self.now_s) is None:
            self.by_hand += 1


def digests(seeds: Iterable[int]) -> list[str]:
    """The digests of some seeds' lives."""
    histories = [History(seed) for seed in seeds]
    for history in histories:
        history.run()
    return [history.digest for history in histories]
