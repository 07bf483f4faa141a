"""Parts of `bench.ingest`: rows, the plain scripts that tasks are measured beside, and processes that are timed."""
