"""How a task names a PostgreSQL server: its URL, and the params of a connection."""
