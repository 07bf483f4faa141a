"""What the work wrote down: who worked when, where, and from where to where."""

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

STILL_S: Final = 1.0
"""Work writes a line twenty times a second; what writes none for so long stands still, frozen or starved."""


@dataclass
class Attempt:
    """An attempt as its lines show it: positions are line numbers in its task's record, times CLOCK_BOOTTIME."""

    task: str
    run: str
    token: int
    node: str
    fire_at: datetime | None
    """What it was told it was due at; a `command` does not hear of that."""
    first: int
    last: int
    begun_s: float
    last_s: float
    begin: int = 0
    """The step that it began at."""
    saving: int = 0
    """The highest step that it may have saved."""
    saved: int = 0
    """The highest step that it was told is saved."""
    ended: bool = False
    """It came to the end of its work."""
    works: list[tuple[float, float]] = field(default_factory=list)
    """From when to when it was at work: one stretch, unless it stood still for longer than `STILL_S` in between."""


@dataclass
class Records:
    """All attempts at all runs, by run and token; those of one task are in the order of their first lines."""

    lines: int = 0
    torn: list[str] = field(default_factory=list)
    """Lines that are not whole records: their disk was full, most likely."""
    attempts: dict[tuple[str, int], Attempt] = field(default_factory=dict)
    _read: dict[str, tuple[int, int]] = field(default_factory=dict)
    """How far each task's record has been read: bytes and lines."""

    @property
    def by_run(self) -> dict[str, list[Attempt]]:
        """The attempts of each run, in the order of their first lines."""
        runs: dict[str, list[Attempt]] = {}
        for attempt in self.attempts.values():
            runs.setdefault(attempt.run, []).append(attempt)
        return runs

    def read(self, folder: Path) -> None:
        """Take in what was written since the last time."""
        for path in sorted(folder.iterdir()) if folder.exists() else ():
            at, number = self._read.get(path.name, (0, 0))
            with path.open("rb") as file:
                file.seek(at)
                whole = file.read().rpartition(b"\n")[0]
            if not whole:
                continue
            lines = whole.decode().split("\n")
            for line in lines:
                try:
                    self.take(path.name, number, line)
                except ValueError:
                    self.torn.append(f"{path.name}, line {number}: not a whole record: {line[:200]!r}")
                number += 1
            self._read[path.name] = (at + len(whole) + 1, number)

    def take(self, task: str, position: int, line: str) -> None:
        """One line of a task's record."""
        run, token, node, fire_at, at, what, step = line.split(" ")
        key, at_s = (run, int(token)), float(at)
        attempt = self.attempts.get(key)
        if attempt is None:
            due = None if fire_at == "-" else datetime.fromisoformat(fire_at)
            attempt = Attempt(task, run, int(token), node, due, position, position, at_s, at_s)
            self.attempts[key] = attempt
        if attempt.works and at_s - attempt.last_s <= STILL_S:
            attempt.works[-1] = (attempt.works[-1][0], at_s)
        else:
            attempt.works.append((at_s, at_s))
        attempt.last, attempt.last_s = position, at_s
        self.lines += 1
        match what:
            case "begin":
                attempt.begin = attempt.saving = attempt.saved = int(step)
            case "saving":
                attempt.saving = int(step)
            case "saved":
                attempt.saved = int(step)
            case "end":
                attempt.ended = True
