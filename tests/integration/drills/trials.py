"""Drills of spoilt and of good backups, as many as one asks for; each is drawn by its number."""

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tasks.access import EVERYTHING
from tasks.backup.proofs import read_proofs
from tasks.drill.kind import Drill, DrillFailed
from tasks.drill.params import DrillParams
from tasks.places.place import Place
from testkit.fake_context import FakeContext
from tests.integration.drills.backups import TASKS, GoodBackups
from tests.integration.drills.spoilings import SPOILINGS


@dataclass(frozen=True)
class Trial:
    """The outcome of one drill."""

    #: The number by which the trial was drawn.
    number: int
    #: What was drilled: the task, and how its backup was spoilt; "" if it was not.
    what: str
    #: Whether the backup was spoilt.
    spoilt: bool
    #: The error of the drill; "" if it proved the backup.
    said: str

    @property
    def is_right(self) -> bool:
        """Whether the drill told a spoilt backup from a good one."""
        return bool(self.said) == self.spoilt


def trials(good: GoodBackups, scratch: Path, numbers: range, *, spoilt: bool) -> Iterator[Trial]:
    """Drill copies of backups, each spoilt in a way drawn by its number, or not at all. All ways come in turn."""
    ways = [(task, way) for task in TASKS for way in SPOILINGS[task]]
    for number in numbers:
        draw = random.Random(number)
        task, way = ways[number % len(ways)] if spoilt else (TASKS[number % len(TASKS)], None)
        folder = scratch / f"{'spoilt' if spoilt else 'good'}-{number}"
        copied = good.copied(folder / "to")
        other = {} if way is None else way(copied, task, draw)
        ctx = FakeContext(
            DrillParams.model_validate(copied.params(task)),
            folder / "scratch",
            task="drill",
            token=100,
            node="node-2",
            access=replace(EVERYTHING, postgres_bin=other.get("postgres_bin", str(good.server.programs))),
            secrets={"key": other.get("identity", good.identity)},
        )
        ctx.scratch.mkdir()
        said = ""
        try:
            Drill().run(ctx)
        except DrillFailed as error:
            said = str(error)
        (proof,) = read_proofs(Place(str(copied.top / task))).proofs
        assert proof.result == ("failed" if said else "proven"), proof
        shutil.rmtree(folder)
        yield Trial(number, f"{task} {'' if way is None else way.__name__}".strip(), spoilt, said)
