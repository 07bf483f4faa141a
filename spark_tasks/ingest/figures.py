"""The figures of a run: what it has committed so far."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from spark_tasks.table.ledger import Page

LATEST_MAX: Final = 50
"""How many batches are listed one by one."""


@dataclass
class Figures:
    """The sums over all attempts at this run of what they committed to the table."""

    #: The number of rows.
    rows: int = 0
    #: The number of source files.
    files: int = 0
    #: The number of batches.
    batches: int = 0
    #: The number of rows that went to the quarantine.
    quarantined: int = 0
    #: The number of rows that were dropped.
    dropped: int = 0
    #: The size of the source files, in bytes.
    bytes: int = 0

    failed: Counter[str] = field(default_factory=Counter)
    """The rows of which an expectation is not true, by its name."""

    #: The figures of the latest `LATEST_MAX` batches, by number.
    _listed: dict[int, dict[str, int]] = field(default_factory=dict)

    def latest(self) -> list[dict[str, int]]:
        """The latest batches, oldest first: the number of each, its files, their bytes, and its rows."""
        return [self._listed[batch] for batch in sorted(self._listed)]

    def add(self, page: Page) -> None:
        """Add a batch."""
        size_bytes = sum(size_bytes for _, size_bytes in page.files)
        batch = {"batch": page.mark.batch, "files": len(page.files), "bytes": size_bytes, "rows": page.rows}
        self._listed[page.mark.batch] = batch
        if len(self._listed) > LATEST_MAX:
            del self._listed[min(self._listed)]
        self.rows += page.rows
        self.files += len(page.files)
        self.batches += 1
        self.quarantined += page.quarantined
        self.dropped += page.dropped
        self.bytes += size_bytes
        self.failed.update(page.failed)
