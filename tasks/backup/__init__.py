"""Backups: the kind `backup`, and the plain functions that list, verify and restore what it made."""
