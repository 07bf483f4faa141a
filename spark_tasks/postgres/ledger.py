"""The ledger of the batches in a PostgreSQL sink: the tables `rota_sinks` and `rota_batches` beside the target table.

`rota_sinks` has one row for each task and table, with the token of the attempt that holds it. A commit locks that row
and reads it, so of two attempts one waits for the other, and the one that was overtaken commits nothing.
"""

import json
from typing import Final

from spark_tasks.contracts.names import literal, name
from spark_tasks.contracts.sink import About, Visible, is_in
from spark_tasks.postgres.session import TEXT_FORMS, QueryFailed, Session
from spark_tasks.table.ledger import Mark

KEPT: Final = 1000
"""The number of newest batches of a task that `rota_batches` keeps."""

LOCK_S: Final = 90
"""How long a statement waits for another attempt's transaction, in seconds. Longer than `IDLE_S`."""

IDLE_S: Final = 60
"""After this many seconds the server ends a transaction whose client is silent, because it is frozen or
disconnected.
"""


class BatchLedger:
    """The batches of `task` in the table `target` (SCHEMA.TABLE), kept in `schema`."""

    def __init__(self, schema: str, task: str, target: str) -> None:
        self.sinks = f"{name(schema)}.rota_sinks"
        self.batches = f"{name(schema)}.rota_batches"
        self.mine = f"task = {literal(task)} AND target = {literal(target)}"
        self.row = f"{literal(task)}, {literal(target)}"
        self.target = target

    def create(self, session: Session) -> None:
        """Create the two tables if they do not exist, and commit."""
        there = self.is_there(session)
        session.commit()
        if there:
            return
        for again in (True, False):
            try:
                session.run(
                    f"CREATE TABLE IF NOT EXISTS {self.sinks} (task text, target text, token bigint NOT NULL, "
                    "PRIMARY KEY (task, target))",
                    f"CREATE TABLE IF NOT EXISTS {self.batches} (task text, target text, batch bigint, "
                    "token bigint NOT NULL, run_id text NOT NULL, cursor jsonb, rows bigint NOT NULL, "
                    "deleted bigint NOT NULL, committed_at timestamptz NOT NULL DEFAULT now(), "
                    "PRIMARY KEY (task, target, batch))",
                )
                session.commit()
                return
            except QueryFailed:
                # If two attempts create the tables at once, one of them gets a unique violation of the catalogue.
                session.rollback()
                if not again:
                    raise

    def is_there(self, session: Session) -> bool:
        """Whether the two tables exist."""
        found = (f"to_regclass({literal(table)}) IS NOT NULL" for table in (self.sinks, self.batches))
        return bool(session.rows(f"SELECT {' AND '.join(found)}")[0][0])

    def last(self, session: Session) -> Visible | None:
        """Return the last committed batch; None if no batch was committed."""
        found = session.rows(
            f"SELECT batch, token, run_id, cursor::text FROM {self.batches} WHERE {self.mine} "
            "ORDER BY batch DESC LIMIT 1"
        )
        if not found:
            return None
        batch, token, run_id, cursor = found[0]
        return Visible(Mark(batch, token), run_id, None if cursor is None else json.loads(cursor))

    def has_run(self, session: Session, run_id: str) -> bool:
        """Whether one of the newest `KEPT` batches is of that run."""
        run = f"run_id = {literal(run_id)}"
        return bool(session.rows(f"SELECT 1 FROM {self.batches} WHERE {self.mine} AND {run} LIMIT 1"))

    def holder(self, session: Session, lock: bool = False) -> int | None:
        """Return the token of the holder; with `lock`, its row stays locked until the transaction ends."""
        found = session.rows(f"SELECT token FROM {self.sinks} WHERE {self.mine}{' FOR UPDATE' if lock else ''}")
        return int(found[0][0]) if found else None

    def claim(self, session: Session, token: int, instead_of: int | None) -> bool:
        """Make the attempt with `token` the holder in place of `instead_of`, and commit. Returns False if another
        attempt is the holder.
        """
        _bound(session)
        session.run(f"INSERT INTO {self.sinks} VALUES ({self.row}, {token}) ON CONFLICT DO NOTHING")
        there = self.holder(session, lock=True)
        taken = there in {token, instead_of}
        if taken:
            session.run(f"UPDATE {self.sinks} SET token = {token} WHERE {self.mine}")
            session.commit()
        else:
            session.rollback()
        return taken

    def check(self, session: Session, mark: Mark) -> bool:
        """Lock the ledger for this transaction, and return whether this attempt has committed the batch already.

        Raises `SinkOvertaken`, and `SinkUnfit` if an earlier batch is missing.
        """
        _bound(session)
        holder = self.holder(session, lock=True)
        return is_in(mark, self.last(session), holder, self.target)

    def add(self, session: Session, mark: Mark, about: About, rows: int, deleted: int) -> None:
        """Record the batch as committed. The record takes effect when the transaction is committed."""
        cursor = "NULL" if about.cursor is None else f"{literal(json.dumps(about.cursor))}::jsonb"
        session.run(
            f"INSERT INTO {self.batches} (task, target, batch, token, run_id, cursor, rows, deleted) VALUES "
            f"({self.row}, {mark.batch}, {mark.token}, {literal(about.run_id)}, {cursor}, {rows}, {deleted})",
            f"DELETE FROM {self.batches} WHERE {self.mine} AND batch <= {mark.batch - KEPT}",
        )


def _bound(session: Session) -> None:
    """Limit how long this transaction waits for others, and how long others wait for it if its client is frozen.

    Each of its statements sees all commits before it, whatever the role's default isolation level is.
    """
    session.run(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
        f"SET LOCAL lock_timeout = '{LOCK_S}s'",
        f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE_S}s'",
        TEXT_FORMS,
    )
