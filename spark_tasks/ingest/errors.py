"""The errors of an ingest."""

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
    """The numbers of rows that a batch has written and left out do not add up to the rows read. The batch was not
    committed.
    """
