"""What a run has committed so far."""

from dataclasses import dataclass, field

from spark_tasks.table.ledger import Page


@dataclass
class Figures:
    """What all attempts at this run have committed to the table."""

    rows: int = 0
    files: int = 0
    batches: int = 0
    skipped: int = 0

    malformed: list[str] = field(default_factory=list)
    """The files that keep the rows that were skipped."""

    def add(self, page: Page, malformed: str) -> None:
        """Add a batch; `malformed` is where its skipped rows are kept, if there are any."""
        self.rows += page.rows
        self.files += len(page.files)
        self.batches += 1
        self.skipped += page.skipped
        self.malformed += [malformed] if page.skipped else []
