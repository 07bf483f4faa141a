"""Sessions on a PostgreSQL server by ADBC: rows as Arrow, errors in one sentence, snapshots that others can join."""
