"""Writes the packs of a folder as objects of a backup; those of an earlier attempt are kept.

The first pack is `folder.tar.zst`, the only one of most folders. Of several, the others are `pack-000002.tar.zst` and
so on, and beside each lies its index, `pack-000002.index.zst`. It is an object too, and no part of the manifest: names
of files are content, which may be encrypted, and there may be millions of them.
"""

import re
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import zip_longest
from typing import Final

from tasks.backup.archive import Damaged
from tasks.backup.flow import Flow
from tasks.backup.manifest import printable
from tasks.backup.objects import NewObjects
from tasks.backup.tree.pack_index import PackIndex
from tasks.backup.tree.plan import PlannedPart
from tasks.backup.tree.read_tree import TreeReader
from tasks.backup.tree.walk import HiddenFiles

_AT_ONCE: Final = 2
"""While one pack is completed, the next one can begin."""

_FIRST: Final = "folder"
_NAME: Final = re.compile(rf"(?:{_FIRST}|pack-([0-9]{{6,}}))\.tar\.zst")


def pack_name(number: int) -> str:
    """Return the name of the object that is a pack.

    >>> pack_name(1), pack_name(2), number_of("pack-000002.tar.zst"), number_of("folder.tar.zst")
    ('folder.tar.zst', 'pack-000002.tar.zst', 2, 1)
    """
    return f"{_stem(number)}.tar.zst"


def index_name(pack: str) -> str:
    """Return the name of the object that is the index of a pack, by the pack's name.

    >>> index_name("pack-000002.tar.zst")
    'pack-000002.index.zst'
    """
    return f"{pack.removesuffix('.tar.zst')}.index.zst"


def _stem(number: int) -> str:
    return _FIRST if number == 1 else f"pack-{number:06}"


def number_of(name: str) -> int | None:
    """Return the number of the pack that is the object `name`; None if that is no pack.

    Earlier versions named the first of several packs as the others.
    """
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1] or 1)


def earlier_packs(out: NewObjects) -> dict[int, PackIndex]:
    """Return the indexes of the packs that earlier attempts have completed, by number."""
    found = {}
    for name in list(out.kept):
        number = number_of(name)
        if number is not None and name == pack_name(number) and index_name(name) in out.kept:
            try:
                found[number] = PackIndex.read(out.read_kept(index_name(name)))
            except (ValueError, Damaged):
                continue  # damaged, or a later version wrote it; the pack is made again
    return found


class PackWriter:
    """Writes packs of the tree below the open folder `top` (the other arguments are those of `TreeReader`)."""

    def __init__(self, out: NewObjects, top: int, shown: str, real: str, own: HiddenFiles) -> None:
        self._out = out
        self._reader = TreeReader(top, shown, real, own, self._begin)
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="pack")
        self._storing: list[tuple[_StoredPack, Future[None]]] = []

    def write(self, parts: Sequence[PlannedPart]) -> None:
        """Read the parts, or keep their packs. Raises the errors of `TreeReader` and of the storage."""
        with self._threads:
            try:
                for part, following in zip_longest(parts, parts[1:]):
                    if part.kept and part.is_linked(self._reader.firsts):
                        self._keep(part)
                    else:
                        last = None if following is None else following.first - 1
                        self._reader.read(part.part, part.first, last)
                self._wait(0)
            except BaseException as error:
                for pack, _ in self._storing:
                    pack.flow.end(error)
                raise

    def _keep(self, part: PlannedPart) -> None:
        name = pack_name(part.first)
        self._out.keep(name)
        self._out.keep(index_name(name))
        for each, path in part.names:
            self._reader.firsts.setdefault(each, path)

    def _begin(self, number: int) -> "_StoredPack":
        self._wait(_AT_ONCE - 1)
        pack = _StoredPack(self._out, pack_name(number))
        self._storing.append((pack, self._threads.submit(pack.store)))
        return pack

    def _wait(self, at_most: int) -> None:
        """Wait until `at_most` packs are being stored. Raises their errors."""
        while len(self._storing) > at_most:
            self._storing[0][1].result()
            del self._storing[0]


class _StoredPack:
    """A pack on its way from the reader, which calls `write` and `end`, to the storage, by a thread of its own."""

    def __init__(self, out: NewObjects, name: str) -> None:
        self.flow = Flow()
        self._out = out
        self._name = name
        self._index: Sequence[bytes] = ()
        self._remarks: list[str] = []

    def write(self, chunk: bytes) -> None:
        """Pass the next bytes on. Raises the storage's errors."""
        self.flow.write(chunk)

    def end(self, index: Sequence[bytes], remarks: list[str]) -> None:
        """Pass on the index and the remarks of the pack, which is complete."""
        self._index, self._remarks = index, remarks
        self.flow.end()

    def store(self) -> None:
        """Store the pack and its index. Raises the storage's errors, which the next `write` raises too."""
        try:
            with self._out.writing(self._name) as writer:
                while chunk := self.flow.chunk():
                    writer.write(chunk)
                writer.about(remarks=tuple(map(printable, self._remarks)))
            if self._index:
                self._out.note_whole(self._name)
                with self._out.writing(index_name(self._name), whole=True, for_next=True) as writer:
                    for piece in self._index:
                        writer.write(piece)
        except BaseException as error:
            self.flow.abandon(error)
            raise
