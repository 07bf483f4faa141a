"""What a run has committed so far."""

from dataclasses import dataclass

from spark_tasks.table.ledger import Page


@dataclass
class Figures:
    """What all attempts at this run have committed to the table."""

    rows: int = 0
    files: int = 0
    batches: int = 0
    quarantined: int = 0

    def add(self, page: Page) -> None:
        """Add a batch."""
        self.rows += page.rows
        self.files += len(page.files)
        self.batches += 1
        self.quarantined += page.quarantined
