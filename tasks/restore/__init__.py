"""The kind `restore`: restores a backup into a new place, on a member."""
