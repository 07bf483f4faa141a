"""The kind `wal`: archives a PostgreSQL server's write-ahead log (WAL), so that any moment can be restored."""
