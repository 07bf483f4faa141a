"""A node's machine: its wall clock, its disk, the files on it."""

import errno
import os
import random
import stat
from pathlib import Path
from typing import Final

from bench.chaos.cluster import HarmedCluster
from bench.chaos.faults.fault import Draw, Fault
from node.liveness.pulse import STILL_S

HOUR_S: Final = 3600.0
HUNG: Final = "disk hangs"
FILLING: Final = "rota-chaos-filling"
KEPT: Final = frozenset({"lock", "node.json", "members.json", "place.json", "logs", "groups", "scratch"})
"""What is not the cluster's state: damage there loses nothing, or is another's business."""


def clock_ahead(draw: Draw) -> Fault:
    """An hour ahead, while it runs, and right again."""
    return _clock("clock an hour ahead", draw, HOUR_S)


def clock_back(draw: Draw) -> Fault:
    """An hour back, while it runs, and right again."""
    return _clock("clock an hour back", draw, -HOUR_S)


def _clock(kind: str, draw: Draw, offset_s: float) -> Fault:
    victim, hold_s = draw.victim(), draw.rng.uniform(3.0, 15.0)

    def move(cluster: HarmedCluster, to_s: float) -> None:
        assert cluster.clocks is not None, "drawn only where clocks can be moved"
        cluster.clocks.move(victim, to_s)

    said = f"{kind}: {draw.called(victim)} for {hold_s:.1f} s"
    return Fault(
        kind, said, (victim,), hold_s, lambda cluster: move(cluster, offset_s), lambda cluster: move(cluster, 0.0)
    )


def full_disk(draw: Draw) -> Fault:
    """The small disk is filled up, and freed. Its node waits for room."""
    victim, hold_s = draw.names[-1], draw.rng.uniform(5.0, 20.0)

    def strike(cluster: HarmedCluster) -> None:
        _fill(cluster.data(victim) / FILLING)

    def mend(cluster: HarmedCluster) -> None:
        (cluster.data(victim) / FILLING).unlink()

    said = f"disk of {draw.called(victim)} full for {hold_s:.1f} s"
    return Fault("full disk", said, (victim,), hold_s, strike, mend)


def hung_disk(draw: Draw) -> Fault:
    """The small disk does not answer, for longer than its node goes on saying that it lives."""
    victim, hold_s = draw.names[-1], draw.rng.uniform(1.2, 2.0) * STILL_S
    said = f"disk of {draw.called(victim)} does not answer for {hold_s:.1f} s"
    return Fault(
        HUNG, said, (victim,), hold_s, lambda cluster: cluster.disk.freeze(), lambda cluster: cluster.disk.thaw()
    )


def _fill(path: Path) -> None:
    """Write until there is no room, in ever smaller pieces."""
    with path.open("wb", buffering=0) as file:
        for size_bytes in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(b"\0" * size_bytes)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def damaged_files(draw: Draw) -> Fault:
    """Killed, and some of its files cut short or written over before it is started again."""
    victim = draw.victim()
    chance = random.Random(draw.rng.random())

    def strike(cluster: HarmedCluster) -> None:
        cluster.kill(victim)
        files = sorted(_state_files(cluster.data(victim)))
        for path in chance.sample(files, min(len(files), chance.choice((1, 1, 2)))):
            print(f"             {path.relative_to(cluster.folder)}: {damage(path, chance)}", flush=True)

    said = f"kill -9 {draw.called(victim)}, files of its folder damaged"
    return Fault("damaged files", said, (victim,), 0.5, strike, lambda cluster: cluster.start(victim))


def _state_files(folder: Path) -> list[Path]:
    """The files of a node that has been killed. Its supervisors may still remove what attempts had in `scratch`."""
    found = []
    for inner, folders, names in os.walk(folder):  # it passes over folders that have gone
        folders[:] = [name for name in folders if name not in KEPT]
        found += [Path(inner) / name for name in names if name not in KEPT]
    return [path for path in found if _size_bytes(path) > 0]


def _size_bytes(path: Path) -> int:
    """The size of a regular file; 0 if it is none, or is gone."""
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return 0
    return facts.st_size if stat.S_ISREG(facts.st_mode) else 0


def damage(path: Path, chance: random.Random) -> str:
    """Cut a file short, or write over some of it, at one place or at many. What was done."""
    size_bytes = path.stat().st_size
    how = chance.choice(("cut", "zeros", "noise"))
    if how == "cut":
        at = chance.choice((0, chance.randrange(size_bytes)))
        os.truncate(path, at)
        return f"cut from {size_bytes} bytes to {at}"
    places = chance.choice((1, 30))
    with path.open("r+b") as file:
        for _ in range(places):
            at = chance.randrange(size_bytes)
            many = min(chance.randrange(1, 4097), size_bytes - at)
            file.seek(at)
            file.write(bytes(many) if how == "zeros" else chance.randbytes(many))
    return f"{how} written over it at {places} places of its {size_bytes} bytes"
