"""PostgreSQL as source and sink, by ADBC: rows as Arrow, under snapshots that all readers of a batch share."""
