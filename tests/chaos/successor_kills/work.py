"""The work: it writes down, outside the cluster, what each attempt does, so that what happened can be seen from there.

All attempts at a task append to one file, the task's ledger; each line is on the disk before the attempt goes on. A
line is: run, token, node, when (CLOCK_BOOTTIME, one clock for all), what (`begin`, `failed` or `end`).
"""

import os
import time
import zlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from tasks.kind import Context

WORK_S_MAX: Final = 0.1
"""How long an attempt works at most."""

Fate = Literal["succeeds", "fails once", "fails"]


class Line(NamedTuple):
    """A line of a ledger."""

    run: str
    token: int
    node: str
    at_s: float
    what: str


def install(folder: Path) -> str:
    """Make a folder in which Python finds the kind `entered`, as anybody's kind is found; the PYTHONPATH with it."""
    info = folder / "rota_entered-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rota-entered\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[rota.kinds]\nentered = tests.chaos.successor_kills.work:Entered\n")
    return os.pathsep.join((str(folder), str(Path(__file__).parents[3])))


def fate(task: str, nominal: datetime) -> Fate:
    """What becomes of an occurrence of a task that fails now and then: the same for each attempt, and for the judge."""
    drawn = _drawn(task, nominal) % 4
    return "fails" if drawn == 0 else "fails once" if drawn == 1 else "succeeds"


def _drawn(task: str, nominal: datetime) -> int:
    return zlib.crc32(f"{task} {nominal.timestamp():.6f}".encode())


class EnteredParams(BaseModel):
    """The task's ledger, and whether some of its occurrences fail (`fate`)."""

    model_config = ConfigDict(extra="forbid")

    ledger: str
    fails: bool = False


class Entered:
    """Writes that it begins, works for a drawn time, and writes how it ends."""

    Params = EnteredParams

    def run(self, ctx: Context[EnteredParams]) -> None:
        """Work. Raises `RuntimeError` where the occurrence's fate is to fail."""
        ledger = Path(ctx.params.ledger)
        note(ledger, ctx, "begin")
        time.sleep(WORK_S_MAX * (_drawn(f"{ctx.task} works", ctx.fire_at) % 100) / 100)
        fails = fate(ctx.task, ctx.fire_at) if ctx.params.fails else "succeeds"
        failed = any(line.run == ctx.run_id and line.what == "failed" for line in lines_of(ledger))
        if fails == "fails" or (fails == "fails once" and not failed):
            note(ledger, ctx, "failed")
            raise RuntimeError("this occurrence is to fail")
        note(ledger, ctx, "end")


def note(ledger: Path, ctx: Context[Any], what: str) -> None:
    """Append a line to the ledger. It is on the disk when this returns."""
    at_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, f"{ctx.run_id} {ctx.token} {ctx.node} {at_s:.6f} {what}\n".encode())
        os.fsync(file)
    finally:
        os.close(file)


def lines_of(ledger: Path, offset: int = 0) -> Iterator[Line]:
    """The lines of a ledger from a byte on, in the order in which they were written."""
    with ledger.open("rb") as file:
        file.seek(offset)
        # What is after the last line end is still being written.
        for text in file.read().decode().rpartition("\n")[0].splitlines():
            run, token, node, at_s, what = text.split(" ")
            yield Line(run, int(token), node, float(at_s), what)


def end_of_lines(ledger: Path) -> int:
    """Where the last whole line of a ledger ends, in bytes: a line across two pages is seen by halves for a moment."""
    with ledger.open("rb") as file:
        begins = max(0, file.seek(0, os.SEEK_END) - 4096)
        file.seek(begins)
        return begins + file.read().rfind(b"\n") + 1
