"""`python -m tasks.wal.fetch CONFIG FILE TARGET`: a restore_command for PostgreSQL that reads the archive by itself.

CONFIG is the file that `write_config` made. Exit code 0: the file is at TARGET. 1: the archive does not have the file,
and recovery ends there. 255: an error; above 125 the server stops instead of mistaking an error for the end of the log
("Recovering Using a Continuous Archive Backup" in PostgreSQL's manual).
"""

import json
import os
import shlex
import sys
import traceback
from pathlib import Path
from typing import Any, Final

from tasks.backup.archive import Content, quiet, stored_content
from tasks.places.fsync import sync
from tasks.places.place import Place
from tasks.postgres.wal_position import HISTORY_NAME, SEGMENT_NAME, WalPosition, segment_name, segment_position
from tasks.wal.archive import read_archive
from tasks.wal.pages import Counted, StoredWal

FOUND: Final = 0
NOT_THERE: Final = 1
FAILED: Final = 255

_CHUNK_BYTES: Final = 1 << 20


def write_config(path: Path, url: str, options: dict[str, Any], counted: Counted) -> str:
    """Write the config for the archive of one system at `url`. Returns the restore_command.

    The config lists the objects that count now, so that fetching a segment need not read all pages. It also has
    `options` with the values of their secrets, so only its owner may read it.
    """
    objects = [*counted.segments.values(), *counted.histories.values()]
    known = {_name(stored, counted.segment_bytes): stored.model_dump(mode="json") for stored in objects}
    content = json.dumps({"url": url, "options": options, "segment_bytes": counted.segment_bytes, "known": known})
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(content)
    program = shlex.join([sys.executable, "-m", "tasks.wal.fetch", str(path)])
    return f"{program.replace('%', '%%')} %f %p"


def _name(stored: StoredWal, segment_bytes: int) -> str:
    if stored.type == "history":
        return f"{stored.timeline:08X}.history"
    return segment_name(stored.timeline, stored.start, segment_bytes)


def fetch_wal(config: dict[str, Any], name: str, target: Path) -> bool:
    """Put a segment or history file of the archive at `target`. Returns False if the archive does not have it.

    A segment of which only pieces are stored is filled up with zeros: the server reads it up to its last whole record.
    Raises `Damaged`, and the storage's errors.
    """
    place = Place(config["url"], config["options"])
    if name in config["known"]:
        return _write(place, target, [StoredWal.model_validate(config["known"][name])], 0)
    counted = read_archive(place)
    if (history := HISTORY_NAME.fullmatch(name)) is not None:
        stored = counted.histories.get(int(history[1], 16))
        return stored is not None and _write(place, target, [stored], 0)
    if SEGMENT_NAME.fullmatch(name) is None or not counted.segment_bytes:
        return False  # such as a backup's label or a partial segment, which are never archived
    begins = segment_position(name, counted.segment_bytes)
    if begins in counted.segments:
        return _write(place, target, [counted.segments[begins]], counted.segment_bytes)
    pieces = _leading(counted, begins)
    return bool(pieces) and _write(place, target, pieces, counted.segment_bytes)


def _leading(counted: Counted, begins: WalPosition) -> list[StoredWal]:
    """Return the pieces that cover the segment without a hole from its beginning."""
    upto = counted.covered_to(begins)
    pieces = sorted(counted.pieces.get(begins, ()), key=lambda piece: piece.start)
    return [piece for piece in pieces if piece.end <= upto]


def _write(place: Place, target: Path, parts: list[StoredWal], size_bytes: int) -> bool:
    aside = target.with_name(f"{target.name}.partial")
    with aside.open("wb") as file:
        first = parts[0].start
        for part in parts:
            file.seek(part.start - first)
            content = Content(stored_content(place, part.file, quiet))
            while chunk := content.read(_CHUNK_BYTES):
                file.write(chunk)
        file.truncate(max(size_bytes, file.tell()))
    sync(aside)
    aside.replace(target)
    return True


def main(config: str, name: str, target: str) -> int:
    """Fetch one file. Returns the exit code."""
    try:
        found = fetch_wal(json.loads(Path(config).read_text()), name, Path(target))
    except Exception:  # noqa: BLE001  the server must not mistake any error for the end of the log
        traceback.print_exc()
        return FAILED
    return FOUND if found else NOT_THERE


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
