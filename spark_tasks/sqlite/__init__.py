"""SQLite files as source and sink."""
