"""A PostgreSQL table that changes while it is read, and a pure check of what a reader made of it.

Each writer inserts, updates and marks as deleted rows of its own. Some of its transactions stay open for a while and
commit late, with a cursor (`at`, the transaction's beginning) that others have passed by then; some write in
subtransactions. Each change of a row gives it the next version.
"""

import random
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from spark_tasks.postgres.session import Session

COLUMNS: Final = "id int PRIMARY KEY, version int NOT NULL, gone boolean NOT NULL, at timestamptz NOT NULL"

Row = tuple[int, int]
"""A row's id and version."""


@dataclass
class ChangingRows:
    """Writers that change `table` of the database at `uri` (with its password) until `stop`.

    `late_s` is how long a transaction is open at most. The same `seed` draws the same changes.
    """

    uri: str
    table: str
    seed: int
    late_s: float = 1.0
    writers: int = 3
    pause_s: float = 0.02
    changes: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def create(self) -> None:
        """Make the table, with an index on the cursor."""
        opened = Session(self.uri)
        opened.run(f"CREATE TABLE {self.table} ({COLUMNS})", f"CREATE INDEX ON {self.table} (at)")
        opened.commit()
        opened.close()

    def start(self) -> None:
        """Start the writers."""
        for number in range(self.writers):
            writer = threading.Thread(target=self._write, args=(number,), name=f"writer-{number}")
            self._threads.append(writer)
            writer.start()

    def stop(self) -> None:
        """Stop the writers; all that they wrote is committed or rolled back then."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _write(self, number: int) -> None:
        draw = random.Random(f"{self.seed}/{number}")
        opened = Session(self.uri)
        mine: list[int] = []
        while not self._over.is_set():
            there = list(mine)
            for _ in range(draw.randint(1, 4)):
                self._change(draw, opened, number, there)
            if draw.random() < 0.3:
                self._over.wait(draw.random() * self.late_s)
            if draw.random() < 0.1:
                opened.rollback()
            else:
                opened.commit()
                mine = there
                self.changes += 1
            self._over.wait(draw.random() * self.pause_s)
        opened.close()

    def _change(self, draw: random.Random, opened: Session, number: int, there: list[int]) -> None:
        nested = draw.random() < 0.2
        if nested:
            opened.run("SAVEPOINT nested")
        if not there or draw.random() < 0.5:
            key = len(there) * self.writers + number
            there.append(key)
            opened.run(f"INSERT INTO {self.table} VALUES ({key}, 1, false, now())")
        else:
            gone = "true" if draw.random() < 0.2 else "gone"
            opened.run(
                f"UPDATE {self.table} SET version = version + 1, gone = {gone}, at = now() "
                f"WHERE id = {draw.choice(there)}"
            )
        if nested:
            opened.run("RELEASE nested")


def wrong_versions(
    source: Mapping[int, int], read: Iterable[Row], removed: Mapping[int, int] = MappingProxyType({})
) -> list[str]:
    """What is wrong with the versions that were read of rows whose last versions are `source` (pure).

    Each row's last version must be there, none may be there twice, and none that the source never had. `removed` are
    the last versions of rows that are gone from the source: these may have been missed.

    >>> wrong_versions({1: 2, 2: 1}, [(1, 1), (1, 2), (2, 1)])
    []
    >>> wrong_versions({1: 2, 2: 1}, [(1, 1), (1, 1), (2, 1)])
    ['row 1: version 2 is missing', 'row 1: version 1 is there 2 times']
    >>> wrong_versions({1: 1}, [(1, 1), (1, 2)])
    ['row 1: version 2 never was']
    >>> wrong_versions({}, [(1, 1), (2, 1), (2, 1)], removed={1: 2, 2: 1})
    ['row 2: version 1 is there 2 times']
    """
    there, ever = Counter(read), {**removed, **source}
    found = [
        f"row {key}: version {version} is missing" for key, version in sorted(source.items()) if not there[key, version]
    ]
    found += [
        f"row {key}: version {version} is there {count} times"
        for (key, version), count in sorted(there.items())
        if count > 1
    ]
    found += [f"row {key}: version {version} never was" for key, version in sorted(there) if version > ever.get(key, 0)]
    return found
