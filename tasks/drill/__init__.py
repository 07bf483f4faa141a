"""The kind `drill`: restores backups on trial, so that it is known that they restore."""
