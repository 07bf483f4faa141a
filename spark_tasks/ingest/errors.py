"""How an ingest fails."""

from tasks.kind import Failed, Unretryable


class IngestStopped(Exception):
    """The attempt was asked to stop. The batches that it has committed stay in the table."""


class TableReplaced(Unretryable):
    """The table contains less than this run has committed to it: it is another table, or an older copy."""


class FilesRefused(Failed):
    """Some of the new files were not ingested; all others were."""


class FilesUnfit(Unretryable, FilesRefused):
    """As `FilesRefused`, and another attempt would refuse the same files."""


class IngestFailed(Failed):
    """Spark could not carry out a batch, for a reason outside the files. No row of the batch is in the table."""


class CountsDiffer(Exception):
    """A batch has not written or left out as many rows as it has read. It was not committed."""
