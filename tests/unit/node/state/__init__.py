"""The replicated state: entries applied, packed, refused; snapshots; windows."""
