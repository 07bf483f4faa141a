"""Backups: the kind `backup`, and the functions that list, verify and restore its backups."""
