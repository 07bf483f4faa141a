"""Files as source: which there are, which are new, and their rows. `ingest` reads them too."""
