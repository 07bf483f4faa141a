"""A file that is replaced as a whole, for good."""

from pathlib import Path

from tasks.fsync import sync


def write_whole(path: Path, text: str) -> None:
    """Replace a file so that after a crash it is either the old one or the new one. Raises `OSError`."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text)
    replace(partial, path)


def replace(written: Path, place: Path, *, synced: bool = False) -> None:
    """Rename a file into its place, for good: what is in it first, unless that is on the disk. Raises `OSError`.

    Else a power cut may leave the new name without its content, and nothing of the file that was there.
    """
    if not synced:
        sync(written)
    written.replace(place)
    sync(place.parent)
