"""A folder of CSV files that are added, replaced and removed while they are read."""

import random
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROWS: Final = 3
"""A file has this many rows, with the file's version."""


@dataclass
class ChangingFiles:
    """Writers that change the CSV files (`id`, `version`) of `folder` until `stop`.

    A file is written under a name that begins with `.`, and renamed up to `late_s` later. Each version of a file has
    the same ids with the next version. `there` are the last versions of the rows in the folder, `removed` those of rows
    whose files were removed. The same `seed` draws the same changes.
    """

    folder: Path
    seed: int
    late_s: float = 0.5
    writers: int = 3
    pause_s: float = 0.2
    changes: int = 0
    there: dict[int, int] = field(default_factory=dict)
    removed: dict[int, int] = field(default_factory=dict)
    failed: list[BaseException] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Make the folder if it is missing, and start the writers."""
        self.folder.mkdir(exist_ok=True)
        for number in range(self.writers):
            writer = threading.Thread(target=self._write, args=(number,), name=f"file-writer-{number}")
            self._threads.append(writer)
            writer.start()

    def stop(self) -> None:
        """Stop the writers; all that they wrote is in the folder then. Raises what one of them raised."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        if self.failed:
            raise self.failed[0]

    def newest_s(self) -> float:
        """When the newest file was changed, in seconds since 1970."""
        return max(path.stat().st_mtime for path in self.folder.glob("*.csv"))

    def _write(self, number: int) -> None:
        draw = random.Random(f"{self.seed}/{number}")
        mine: dict[int, int] = {}
        made = 0
        try:
            while not self._over.is_set():
                what = draw.random()
                if not mine or what < 0.5:
                    mine[made * self.writers + number] = 1
                    self._put(draw, made * self.writers + number, 1)
                    made += 1
                elif what < 0.85:
                    key = draw.choice(sorted(mine))
                    mine[key] += 1
                    self._put(draw, key, mine[key])
                else:
                    key = draw.choice(sorted(mine))
                    self._remove(key, mine.pop(key))
                self.changes += 1
                self._over.wait(draw.random() * self.pause_s)
        except BaseException as error:
            self.failed.append(error)

    def _put(self, draw: random.Random, key: int, version: int) -> None:
        ids = range(key * ROWS, key * ROWS + ROWS)
        hidden = self.folder / f".{key}"
        hidden.write_text("id,version\n" + "".join(f"{each},{version}\n" for each in ids))
        if draw.random() < 0.3:
            self._over.wait(draw.random() * self.late_s)
        hidden.rename(self.folder / f"{key}.csv")
        self.there.update(dict.fromkeys(ids, version))

    def _remove(self, key: int, version: int) -> None:
        (self.folder / f"{key}.csv").unlink()
        for each in range(key * ROWS, key * ROWS + ROWS):
            del self.there[each]
            self.removed[each] = version
