"""Delta tables as source and sink, and plain Parquet files as sink, whose ledger is a Delta table."""
