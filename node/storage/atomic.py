"""Atomic, durable replacement of a file."""

from pathlib import Path

from tasks.places.fsync import sync


def write_whole(path: Path, text: str) -> None:
    """Replace a file's content. After a crash the file has either the old or the new content. Raises `OSError`."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text)
    replace(partial, path)


def replace(written: Path, place: Path, *, synced: bool = False) -> None:
    """Rename a file durably. Its content is synced first, unless it is `synced` already. Raises `OSError`.

    Without the sync, a power cut may leave the new name without its content, and the old file gone.
    """
    if not synced:
        sync(written)
    written.replace(place)
    sync(place.parent)
