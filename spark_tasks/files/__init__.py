"""Files as a source: listing them, finding new ones, and reading their rows. `ingest` uses this, too."""
