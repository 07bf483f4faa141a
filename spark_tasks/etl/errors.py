"""The errors of an ETL task, beside those that its source, its sink and its transform raise."""

from tasks.kind import Away, Failed, Unretryable


class EtlStopped(Exception):
    """The attempt was asked to stop. The batches that it has committed stay in the sink."""


class SinkReplaced(Unretryable):
    """The sink lacks a batch that this run has committed to it: it is another one, or an older copy."""


class CursorUnfit(Unretryable, Failed):
    """The cursor cannot be set: the source is read whole, the text is no cursor, or the sink cannot set one."""


class BatchFailed(Failed):
    """Spark could not carry out a batch. Nothing of the batch is visible."""


class BatchAway(Away, BatchFailed):
    """As `BatchFailed`, because a source or the sink does not answer any more."""


class BatchUnfit(Unretryable, BatchFailed):
    """As `BatchFailed`, and another attempt would meet the same row or value again."""
