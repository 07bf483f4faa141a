"""The errors of a backup, beside those that its source and its destination raise."""

from tasks.kind import Failed, Unretryable


class BackupStopped(Exception):
    """The attempt was asked to stop. It made no backup, and removed what it had written."""


class NoBackupSource(Unretryable):
    """The folder or file to back up does not exist."""


class Vanished(Failed):
    """Files that this attempt wrote were removed or changed before the backup was complete."""
