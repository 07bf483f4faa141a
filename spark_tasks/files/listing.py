"""Lists the files that an ingest's globs match, and finds which of them are new.

A file is identified by its path, in one spelling (`canonical`). Files are sorted by their paths, so that every attempt
cuts the same files into the same batches. Names that begin with `.` or `_` are skipped, as Spark skips them, and so are
folders with such names that a wildcard matches: write a file under such a name, or in such a folder, and rename it when
it is complete.

The new files are cut into batches, by their number and their bytes. The cut depends only on the order and the sizes of
the files, and a batch does not depend on the files after it. So an attempt that continues after batch 3 cuts the
remaining files in the same way as the previous attempt.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from spark_tasks.storage.errors import StoreAway, away_errors_at
from spark_tasks.storage.packing import packed
from spark_tasks.storage.url import is_local, without_protocol
from tasks.access import EVERYTHING, Access, addresses, check_address, check_protocol
from tasks.errors import Unretryable
from tasks.file_guard import FileGuard


def _absolute(url: str) -> str:
    if check_protocol(url) == "" and not without_protocol(url).startswith("/"):
        raise ValueError("a local path must begin with '/': a worker's current folder is its scratch folder")
    return url


GlobUrl = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_absolute)]
"""A glob in params: an absolute path, or an fsspec URL."""


class NoSourceFiles(Unretryable):
    """A source does not exist: its folder is not on this member, or there is no such bucket."""


class SourceChanged(Exception):
    """A file has changed since it was listed, or since it was ingested."""


@dataclass(frozen=True, order=True)
class Source:
    """A file to read: its path (a URL if it is not local), and its size when it was listed."""

    path: str
    size_bytes: int


@dataclass(frozen=True)
class NewAndChanged:
    """The files that are new, and those that have changed since they were ingested."""

    new: tuple[Source, ...]
    changed: tuple[Source, ...]


def canonical(url: str) -> str:
    """Return the canonical spelling of a file's path, which does not depend on how the glob that found it was written.

    A remote URL is not changed: in an object store `a//b` and `a/b` are two objects.

    >>> canonical("/data//./x.csv"), canonical("file:///data/x.csv"), canonical("s3://bucket/a//b.csv")
    ('/data/x.csv', '/data/x.csv', 's3://bucket/a//b.csv')
    """
    if not is_local(url):
        return url
    path = _tidy(without_protocol(url))
    if ".." not in path.split("/"):
        return path
    walked = Path("/")
    for part in path.split("/")[1:]:
        # After a symlink, `..` is the parent of its target.
        walked = walked / part if part != ".." else (walked.resolve() if walked.is_symlink() else walked).parent
    return str(walked)


def _tidy(path: str) -> str:
    """Return `path` without empty parts and `.`, which have no meaning. `..` stays, because it may follow a symlink."""
    return re.sub(r"/(\.?/)+", "/", path)


def listing(globs: Iterable[str], access: Access = EVERYTHING) -> tuple[Source, ...]:
    """Return the files that `globs` find, each once, sorted by their paths.

    Raises `NoSourceFiles` if a local glob's folder does not exist or may not be listed, since a member without the
    mount must not report "nothing new"; `AccessRefused` for a folder, a file or a host that `access` does not allow;
    and `StoreAway`.
    """
    found: dict[str, Source] = {}
    guard = FileGuard(access, "source")
    for url in globs:
        if is_local(url):
            sources = list(_local(_tidy(without_protocol(url)), guard))
        else:
            with away_errors_at(url):
                sources = list(_remote(url, access))
        found.update((source.path, source) for source in sources)
    return tuple(sorted(found.values()))


def check_globs(globs: Iterable[str], access: Access) -> None:
    """Raise `AccessRefused` unless `access` allows the folders and hosts in `globs`. Reads none of their files."""
    guard = FileGuard(access, "source")
    for url in globs:
        if is_local(url):
            guard.resolve(fixed_folder(_tidy(without_protocol(url))))
        else:
            _check_remote(url, access)


def check_allowed(sources: Iterable[Source], access: Access) -> None:
    """Raise `AccessRefused` unless `access` allows each file: a symlink may have changed since the files were
    listed.
    """
    guard = FileGuard(access, "source")
    for source in sources:
        if is_local(source.path):
            guard.resolve(source.path)
        else:
            _check_remote(source.path, access)


def _check_remote(url: str, access: Access) -> None:
    for address in addresses(url, {}):
        check_address(access, "source", address, url)


def _local(pattern: str, guard: FileGuard) -> Iterator[Source]:
    from spark_tasks.files.local_files import LocalFiles  # a node imports this module, and does not need fsspec

    folder = Path(fixed_folder(pattern))
    guard.resolve(folder)
    if not folder.is_dir():
        raise NoSourceFiles(f"{folder} is not a folder on this member: mount it here, or set the task's `group`")
    if not set(pattern) & set("*?[") and Path(pattern).is_dir():
        raise NoSourceFiles(f"{pattern} is a folder: name its files, as {pattern.rstrip('/')}/*")
    files = LocalFiles()
    found = files.glob(pattern)
    for unlisted, error in files.unlisted.items():
        if _covers(pattern, unlisted) and not _is_hidden(unlisted, pattern):
            raise _left_out(unlisted, error)
    for name in found:
        if not _is_hidden(name, pattern) and Path(name).is_file():
            guard.resolve(name)
            with suppress(FileNotFoundError):  # it was removed since
                yield Source(canonical(name), Path(name).stat().st_size)


def _left_out(folder: str, error: OSError) -> Exception:
    """Return the error of a folder that cannot be listed: without its files a table would be replaced by fewer rows."""
    said = f"{folder} cannot be listed ({error.strerror}), so its files would be left out"
    if isinstance(error, PermissionError):
        return NoSourceFiles(f"{said}: let the user that runs this task read it, or narrow the glob")
    return StoreAway(f"{said}: check the file system it is on")


def _covers(pattern: str, folder: str) -> bool:
    """Whether files below `folder` can match `pattern`.

    >>> _covers("/data/20*/*/f.csv", "/data/2013/01"), _covers("/data/20*/f.csv", "/data/lost+found")
    (True, False)
    >>> _covers("/data/**/f.csv", "/data/a/b/c")
    True
    """
    from fsspec.utils import glob_translate

    above = pattern.split("/")[: folder.count("/") + 1]
    if "**" in above:
        above = above[: above.index("**") + 1]
    return re.match(glob_translate("/".join(above)), folder) is not None


def fixed_folder(pattern: str) -> str:
    """Return the folder above the first wildcard of `pattern`.

    >>> fixed_folder("/data/2013/*/f-*.csv"), fixed_folder("/data/one.csv")
    ('/data/2013', '/data')
    """
    return "/".join(pattern.split("/")[: _fixed_parts(pattern)]) or "/"


def _fixed_parts(pattern: str) -> int:
    parts = pattern.split("/")
    return next((index for index, part in enumerate(parts) if set(part) & set("*?[")), len(parts) - 1)


def _is_hidden(name: str, pattern: str) -> bool:
    """Whether the name of the file or folder, or of a folder above it from the first wildcard of `pattern` on, begins
    with `.` or `_`.
    """
    below = name.split("/")[_fixed_parts(pattern) :]
    return any(part.startswith((".", "_")) and part != ".." for part in below)


def _remote(url: str, access: Access) -> Iterator[Source]:
    import fsspec

    check_protocol(url)
    _check_remote(url, access)
    filesystem, pattern = fsspec.core.url_to_fs(url)
    filesystem.invalidate_cache()
    found = filesystem.glob(pattern, detail=True)
    root = pattern.partition("/")[0]
    if not found and url.startswith(("s3://", "s3a://")) and not filesystem.exists(root):
        raise NoSourceFiles(
            f"the bucket {root!r} of the source {url} does not exist: correct the URL, or make the bucket"
        )
    if not set(pattern) & set("*?[") and any(details["type"] == "directory" for details in found.values()):
        raise NoSourceFiles(f"{url} is a folder: name its files, as {url.rstrip('/')}/*")
    for name, details in found.items():
        if details["type"] == "file" and not _is_hidden(name, pattern):
            yield Source(filesystem.unstrip_protocol(name), int(details["size"]))


def new_and_changed(found: Sequence[Source], taken: Mapping[str, int]) -> NewAndChanged:
    """Return the files of `found` that are not in the table, and those with another size there. `taken` has the sizes
    of the table's files, by path.

    >>> new_and_changed([Source("a", 1), Source("b", 2), Source("c", 3)], {"a": 1, "b": 9})
    NewAndChanged(new=(Source(path='c', size_bytes=3),), changed=(Source(path='b', size_bytes=2),))
    """
    new = tuple(source for source in found if source.path not in taken)
    changed = tuple(source for source in found if taken.get(source.path, source.size_bytes) != source.size_bytes)
    return NewAndChanged(new, changed)


BATCH_FILES: Final = 500
"""The most files in a batch by default: while a batch is read, all its local files are open."""

BATCH_BYTES: Final = 2**30
"""The most bytes in a batch by default: a failover repeats at most one batch, about a minute's work of two cores."""


def batches(
    sources: Sequence[Source], files_max: int = BATCH_FILES, bytes_max: int = BATCH_BYTES
) -> list[tuple[Source, ...]]:
    """Cut `sources`, in their order, into as few batches as both limits allow.

    A file of more than `bytes_max` is a batch of its own. The size of a compressed file is its compressed size.

    >>> [len(batch) for batch in batches([Source(str(n), 3 * 2**20) for n in range(72)])]
    [72]
    >>> [len(batch) for batch in batches([Source("a", 5), Source("b", 6), Source("c", 40), Source("d", 1)], 9, 10)]
    [1, 1, 1, 1]
    """
    return list(packed(sources, bytes_max, files_max))
