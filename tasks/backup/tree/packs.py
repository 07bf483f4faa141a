"""Writes the packs of a folder as objects of a backup: two at once, and those of an earlier attempt are kept.

Beside the pack `pack-000001.tar.zst` lies its index, `pack-000001.index.zst`. It is an object too, and no part of the
manifest: names of files are content, which may be encrypted, and there may be millions of them.
"""

import re
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from threading import Event
from typing import Final

from tasks.backup.archive import Damaged
from tasks.backup.objects import NewObjects
from tasks.backup.tree.pack_index import Named, PackIndex
from tasks.backup.tree.pack_process import read_pack
from tasks.backup.tree.plan import Pack
from tasks.backup.tree.walk import HiddenFiles

_AT_ONCE: Final = 2
_NAME: Final = re.compile(r"pack-([0-9]{6,})\.(tar|index)\.zst")


def pack_name(number: int) -> str:
    """Return the name of the object that is a pack.

    >>> pack_name(1), index_name(1), number_of("pack-000001.tar.zst"), number_of("folder.tar.zst")
    ('pack-000001.tar.zst', 'pack-000001.index.zst', 1, None)
    """
    return f"pack-{number:06}.tar.zst"


def index_name(number: int) -> str:
    """Return the name of the object that is a pack's index."""
    return f"pack-{number:06}.index.zst"


def number_of(name: str) -> int | None:
    """Return the number of the pack that is the object `name`; None if that is no pack."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found is not None and found[2] == "tar" else None


def earlier_packs(out: NewObjects) -> dict[int, PackIndex]:
    """Return the indexes of the packs that earlier attempts have completed, by number."""
    found = {}
    for name in list(out.kept):
        number = number_of(name)
        if number is not None and index_name(number) in out.kept:
            try:
                found[number] = PackIndex.read(out.read_kept(index_name(number)))
            except (ValueError, Damaged):
                continue  # damaged, or a later version wrote it; the pack is made again
    return found


class _Stopped(Exception):
    """Another pack has failed."""


class PackWriter:
    """Writes packs of the tree below the open folder `top` (the other arguments are those of `read_pack`)."""

    def __init__(self, out: NewObjects, top: int, shown: str, real: str, own: HiddenFiles) -> None:
        self._out = out
        self._top = top
        self._shown = shown
        self._real = real
        self._own = own
        self._stop = Event()
        self._named: dict[int, Named] = {}
        self._linked: dict[int, Named] = {}

    def write(self, packs: Sequence[Pack]) -> list[str]:
        """Write or keep all packs. Returns remarks that are not in the entries of the objects.

        Raises the errors of `read_pack` and of the storage.
        """
        for pack in packs:
            if pack.kept is not None:
                self._out.keep(pack_name(pack.number))
                self._out.keep(index_name(pack.number))
                self._named[pack.number], self._linked[pack.number] = pack.kept.named, pack.kept.linked
        self._make([pack for pack in packs if pack.kept is None])
        return self._make_without_lost([replace(pack, kept=None) for pack in packs])

    def _make(self, packs: Sequence[Pack]) -> None:
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="pack") as threads:
            working = [threads.submit(self._make_one, pack) for pack in packs]
            done, _ = wait(working, return_when=FIRST_EXCEPTION)
            self._stop.set()
            failed = [error for each in done if (error := each.exception()) is not None]
            for each in working:
                each.cancel()
        for error in sorted(failed, key=lambda error: isinstance(error, _Stopped)):
            raise error
        self._stop.clear()

    def _make_one(self, pack: Pack) -> None:
        with self._out.writing(pack_name(pack.number), whole=True) as writer:

            def put(chunk: bytes) -> None:
                if self._stop.is_set():
                    raise _Stopped
                writer.write(chunk)

            notes, index = read_pack(self._top, self._shown, self._real, self._own, pack, put)
            writer.about(remarks=tuple(notes.remarks))
        with self._out.writing(index_name(pack.number), whole=True, for_next=True) as writer:
            writer.write(index)
        self._named[pack.number] = frozenset((path, inode) for path, inode in notes.named)
        self._linked[pack.number] = frozenset((path, inode) for path, inode in notes.linked)

    def _make_without_lost(self, packs: Sequence[Pack]) -> list[str]:
        """Make packs again that have links to files which vanished before their own pack was read."""
        held = frozenset[tuple[str, int]]().union(*self._named.values())
        lost = {number: linked - held for number, linked in self._linked.items() if linked - held}
        self._make([replace(pack, firsts={}) for pack in packs if pack.number in lost])
        return [
            f"{self._shown.rstrip('/')}/{path} vanished while the folder was read: its other names in "
            f"{pack_name(number)} are a file of their own"
            for number, files in sorted(lost.items())
            for path, _ in sorted(files)[:10]
        ]
