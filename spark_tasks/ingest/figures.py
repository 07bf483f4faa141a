"""What a run has committed so far."""

from collections import Counter
from dataclasses import dataclass, field

from spark_tasks.table.ledger import Page


@dataclass
class Figures:
    """What all attempts at this run have committed to the table."""

    rows: int = 0
    files: int = 0
    batches: int = 0
    quarantined: int = 0
    dropped: int = 0
    bytes: int = 0

    failed: Counter[str] = field(default_factory=Counter)
    """The rows of which an expectation is not true, by its name."""

    def add(self, page: Page) -> None:
        """Add a batch."""
        self.rows += page.rows
        self.files += len(page.files)
        self.batches += 1
        self.quarantined += page.quarantined
        self.dropped += page.dropped
        self.bytes += sum(size_bytes for _, size_bytes in page.files)
        self.failed.update(page.failed)
