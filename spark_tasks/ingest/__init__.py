"""The kind `ingest`: files into a Delta table, every row exactly once."""
