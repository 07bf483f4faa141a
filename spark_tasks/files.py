"""Which files an ingest reads: what its globs find, and what of that is new.

A file is known by its path. The order is that of the paths, so that every attempt cuts the same files into the
same batches. Names that begin with `.` or `_` are passed over, as Spark passes over them: write a file under
such a name and rename it when it is whole.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import fsspec


class NoSource(Exception):
    """A source cannot be read: its folder is not on this member, or its files are gone."""


class SourceChanged(Exception):
    """A file is not what it was when it was listed, or when it was ingested."""


@dataclass(frozen=True, order=True)
class Source:
    """A file to read: its path (a URL where it is not local) and its size as it was listed."""

    path: str
    size_bytes: int


@dataclass(frozen=True)
class News:
    """What an attempt has to do: the files that are new, and those that were ingested and have changed since."""

    new: tuple[Source, ...]
    changed: tuple[Source, ...]


def is_local(url: str) -> bool:
    """Whether `url` is a path of this machine.

    >>> is_local("/data/*.csv"), is_local("file:///data/*.csv"), is_local("s3://bucket/*.csv")
    (True, True, False)
    """
    return "://" not in url or url.startswith(("file://", "local://"))


def local_path(url: str) -> str:
    """The path of a local URL.

    >>> local_path("file:///data/flights"), local_path("/data/flights")
    ('/data/flights', '/data/flights')
    """
    return url.partition("://")[2] if "://" in url else url


def listing(globs: Iterable[str]) -> tuple[Source, ...]:
    """The files that `globs` find, each once, in the order of their paths.

    Raises `NoSource` if a local glob's folder is not there: a member without the mount must not report "nothing new".
    """
    found: dict[str, Source] = {}
    for url in globs:
        for source in _local(local_path(url)) if is_local(url) else _remote(url):
            if not PurePosixPath(source.path).name.startswith((".", "_")):
                found[source.path] = source
    return tuple(sorted(found.values()))


def _local(pattern: str) -> Iterator[Source]:
    folder = Path(fixed_folder(pattern))
    if not folder.is_dir():
        raise NoSource(f"{folder} is not a folder on this member: mount it here, or set the task's group")
    for name in fsspec.filesystem("file").glob(pattern):
        if Path(name).is_file():
            yield Source(name, Path(name).stat().st_size)


def fixed_folder(pattern: str) -> str:
    """The folder above the first wildcard of `pattern`.

    >>> fixed_folder("/data/2013/*/f-*.csv"), fixed_folder("/data/one.csv")
    ('/data/2013', '/data')
    """
    parts = pattern.split("/")
    fixed = next((index for index, part in enumerate(parts) if set(part) & set("*?[")), len(parts) - 1)
    return "/".join(parts[:fixed]) or "/"


def _remote(url: str) -> Iterator[Source]:
    filesystem, pattern = fsspec.core.url_to_fs(url)
    filesystem.invalidate_cache()
    for name, details in filesystem.glob(pattern, detail=True).items():
        if details["type"] == "file":
            yield Source(filesystem.unstrip_protocol(name), int(details["size"]))


def news(found: Sequence[Source], taken: Mapping[str, int]) -> News:
    """What of `found` is new, where `taken` says which files (path -> size) are in the table.

    >>> news([Source("a", 1), Source("b", 2), Source("c", 3)], {"a": 1, "b": 9})
    News(new=(Source(path='c', size_bytes=3),), changed=(Source(path='b', size_bytes=2),))
    """
    new = tuple(source for source in found if source.path not in taken)
    changed = tuple(source for source in found if taken.get(source.path, source.size_bytes) != source.size_bytes)
    return News(new, changed)


def batches(sources: Sequence[Source], batch_files: int) -> list[tuple[Source, ...]]:
    """`sources` in their order, `batch_files` at a time."""
    return [tuple(sources[at : at + batch_files]) for at in range(0, len(sources), batch_files)]


def staged(batch: Sequence[Source], folder: Path) -> dict[Path, Source]:
    """Where Spark finds the files of a batch: local ones where they are, others fetched into `folder` first.

    Raises `NoSource` if one is gone.
    """
    places: dict[Path, Source] = {}
    for number, source in enumerate(batch):
        if is_local(source.path):
            places[Path(source.path)] = source
            continue
        filesystem, name = fsspec.core.url_to_fs(source.path)
        place = folder / f"{number:06d}-{PurePosixPath(name).name}"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            filesystem.get_file(name, str(place))
        except FileNotFoundError:
            raise NoSource(f"{source.path} was there when the files were listed and is gone") from None
        places[place] = source
    return places


def check_unchanged(places: Mapping[Path, Source]) -> None:
    """Raises `SourceChanged` if a file's size is no longer what was listed: somebody is still writing it."""
    for place, source in places.items():
        try:
            size_bytes = place.stat().st_size
        except FileNotFoundError:
            size_bytes = -1
        if size_bytes != source.size_bytes:
            raise SourceChanged(
                f"{source.path} had {source.size_bytes} bytes when it was listed and has {max(size_bytes, 0)} now: "
                "write files under a name that begins with '.', and rename them when they are whole"
            )


def for_spark(place: Path) -> str:
    r"""`place` as Spark takes it: what its own globs would read as a wildcard is escaped.

    >>> for_spark(Path("/data/h[1].csv"))
    '/data/h\\[1\\].csv'
    """
    return "".join(f"\\{char}" if char in "\\*?[]{}" else char for char in str(place))
