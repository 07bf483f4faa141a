"""Reads files of an archive for a server that recovers, by the config that a restore leaves in its data folder.

The config lists what counted when it was made and the recovery may need, so that no page has to be read for that.
"""

import json
import os
import threading
from pathlib import Path
from typing import Any, Final

from tasks.backup.archive import Content, quiet, stored_content
from tasks.backup.encryption import Identities
from tasks.places.fsync import sync
from tasks.places.place import Place
from tasks.postgres.wal_position import HISTORY_NAME, SEGMENT_NAME, WalPosition, segment_name, segment_position
from tasks.wal.archive import chapter_segments, read_archive
from tasks.wal.counted import Counted
from tasks.wal.pages import StoredWal, WalChapter

_CHUNK_BYTES: Final = 1 << 20


def write_config(
    path: Path,
    url: str,
    options: dict[str, Any],
    counted: Counted,
    needed_from: WalPosition | None = None,
    identities: str = "",
) -> None:
    """Write the config for the archive of one system at `url`.

    The config lists the objects that count now, so that fetching a segment need not read all pages; with `needed_from`
    only those that recovery from there on needs. It also has `options` with the values of their secrets, and the
    `identities` (`Identities.text`) that decrypt the archive, so only its owner may read it.
    """
    unneeded = () if needed_from is None else counted.before(needed_from)
    skipped = {stored.file.name for stored in unneeded}
    objects = [one for one in (*counted.segments.values(), *counted.histories.values()) if one.file.name not in skipped]
    gone = [] if needed_from is None else [each for each, left in counted.chapters_before(needed_from) if not left]
    chapters = [chapter for chapter in counted.chapters if chapter not in gone]
    content = {
        "url": url,
        "options": options,
        "identities": identities,
        "segment_bytes": counted.segment_bytes,
        "known": {_name(stored, counted.segment_bytes): stored.model_dump(mode="json") for stored in objects},
        "chapters": [chapter.model_dump(mode="json") for chapter in chapters],
    }
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(content, file)


def _name(stored: StoredWal, segment_bytes: int) -> str:
    if stored.type == "history":
        return f"{stored.timeline:08X}.history"
    return segment_name(stored.timeline, stored.start, segment_bytes)


class ArchiveReader:
    """Reads the archive that a config names. Several threads may use it.

    Its methods raise `Damaged`, `NoIdentity`, and the storage's errors.
    """

    def __init__(self, config: Path) -> None:
        about = json.loads(config.read_text())
        self.segment_bytes: int = about["segment_bytes"]
        self._place = Place(about["url"], about["options"])
        held = about.get("identities")
        self._identities = Identities.of_text(held, str(config)) if held else None
        self._known: dict[str, Any] = about["known"]
        chapters = [WalChapter.model_validate(chapter) for chapter in about.get("chapters", ())]
        self._counted = Counted(segment_bytes=self.segment_bytes, chapters=chapters)
        self._chapter: tuple[WalChapter, dict[WalPosition, StoredWal]] | None = None
        self._lock = threading.Lock()

    def whole(self, name: str) -> StoredWal | None:
        """Return the entry of a segment or history file that the config or a chapter lists; None if none does."""
        if name in self._known:
            return StoredWal.model_validate(self._known[name])
        if SEGMENT_NAME.fullmatch(name) is None or not self.segment_bytes:
            return None
        begins = segment_position(name, self.segment_bytes)
        chapter = self._counted.chapter_of(begins)
        if chapter is None:
            return None
        with self._lock:
            if self._chapter is None or self._chapter[0] != chapter:
                self._chapter = chapter, chapter_segments(self._place, chapter)
            return self._chapter[1].get(begins)

    def fetch(self, name: str, target: Path) -> bool:
        """Put a segment or history file at `target`. Returns False if the archive does not have it.

        A segment of which only pieces are stored is filled up with zeros: the server reads it up to its last whole
        record.
        """
        if (known := self.whole(name)) is not None:
            return self.write(target, [known], 0)
        counted = read_archive(self._place)
        if (history := HISTORY_NAME.fullmatch(name)) is not None:
            stored = counted.histories.get(int(history[1], 16))
            return stored is not None and self.write(target, [stored], 0)
        if SEGMENT_NAME.fullmatch(name) is None or not counted.segment_bytes:
            return False  # such as a backup's label or a partial segment, which are never archived
        begins = segment_position(name, counted.segment_bytes)
        if begins in counted.segments:
            return self.write(target, [counted.segments[begins]], counted.segment_bytes)
        if (chapter := counted.chapter_of(begins)) is not None:
            return self.write(target, [chapter_segments(self._place, chapter)[begins]], counted.segment_bytes)
        pieces = _leading(counted, begins)
        return bool(pieces) and self.write(target, pieces, counted.segment_bytes)

    def write(self, target: Path, parts: list[StoredWal], size_bytes: int, *, durable: bool = True) -> bool:
        """Put the content of stored objects at `target`, filled up to `size_bytes`. Returns True."""
        aside = target.with_name(f"{target.name}.partial")
        with aside.open("wb") as file:
            first = parts[0].start
            for part in parts:
                file.seek(part.start - first)
                content = Content(stored_content(self._place, part.file, quiet, self._identities))
                while chunk := content.read(_CHUNK_BYTES):
                    file.write(chunk)
            file.truncate(max(size_bytes, file.tell()))
        if durable:
            sync(aside)
        aside.replace(target)
        return True


def _leading(counted: Counted, begins: WalPosition) -> list[StoredWal]:
    """Return the pieces that cover the segment without a hole from its beginning."""
    upto = counted.covered_to(begins)
    pieces = sorted(counted.pieces.get(begins, ()), key=lambda piece: piece.start)
    return [piece for piece in pieces if piece.end <= upto]
