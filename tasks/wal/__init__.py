"""The archive of a PostgreSQL server's write-ahead log (WAL), from which any moment can be restored."""
