"""Snapshots that the driver holds open, so that all readers of a batch see the database at one moment."""

from spark_tasks.postgres.session import TEXT_FORMS, Session


class Snapshot:
    """A read-only transaction that is held open; `name` is what others import with `SET TRANSACTION SNAPSHOT`."""

    def __init__(self, uri: str) -> None:
        self.session = Session(uri)
        try:
            self.session.run(
                "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
                # It is idle while others read, and the server must not end it for that.
                "SET LOCAL idle_in_transaction_session_timeout = 0",
                # Cursors are kept as text, which must mean the same later.
                TEXT_FORMS,
            )
            self.name = str(self.session.rows("SELECT pg_export_snapshot()")[0][0])
        except BaseException:
            self.session.close()
            raise


class BatchSnapshots:
    """The snapshots of one batch: one for each database, however many sources read it."""

    def __init__(self) -> None:
        self._held: dict[str, Snapshot] = {}

    def of(self, uri: str) -> Snapshot:
        """The snapshot of the database at `uri` (with its password), taken at the first call."""
        if uri not in self._held:
            self._held[uri] = Snapshot(uri)
        return self._held[uri]

    def release(self) -> None:
        """End them: the next call of `of` takes new ones."""
        held, self._held = self._held, {}
        for snapshot in held.values():
            snapshot.session.close()
