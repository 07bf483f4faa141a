"""Where tasks keep files: folders at any fsspec URL, syncing of local files, and the mounts below them."""
