"""Makes the files of a batch readable for Spark: fetches remote files, and opens and checks local ones."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from spark_tasks.files.faults import BadFile
from spark_tasks.files.listing import Source, SourceChanged
from spark_tasks.spark.seen import check_seen
from spark_tasks.storage.errors import away_errors_at
from spark_tasks.storage.url import is_local
from tasks.file_guard import FileGuard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def staged(batch: Sequence[Source], folder: Path, pins: FileGuard | None = None) -> Iterator[dict[Path, Source]]:
    """Make the files of a batch readable for Spark within the block. Yields the paths to read, and their sources.

    Remote files are fetched into `folder`, and removed at the end of the block: the whole source may not fit on this
    disk. Raises `BadFile` for a file that is gone.

    With `pins`, local files are opened and checked here, and the paths are links in `folder` to the open files. So
    Spark reads the files that were checked, even if they are renamed or replaced by links afterwards. Raises
    `AccessRefused`.
    """
    with ExitStack() as opened:
        try:
            yield _fetched(batch, folder, pins, opened)
        finally:
            if folder.exists():
                shutil.rmtree(folder)


def _pinned(source: Source, place: Path, guard: FileGuard, opened: ExitStack) -> None:
    """Make `place` a link to the file of `source`, which stays open until `opened` is closed."""
    try:
        # Without blocking: opening a named pipe would wait for a writer.
        descriptor = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise _gone(source) from None
    opened.callback(os.close, descriptor)
    guard.check_opened(descriptor, source.path)
    place.symlink_to(f"/proc/{os.getpid()}/fd/{descriptor}")


def _fetched(batch: Sequence[Source], folder: Path, pins: FileGuard | None, opened: ExitStack) -> dict[Path, Source]:
    import fsspec

    places: dict[Path, Source] = {}
    for number, source in enumerate(batch):
        if is_local(source.path):
            place = Path(source.path)
            if pins is not None:
                place = folder / f"{number:06d}-{place.name[-60:]}"  # the suffix says how it is compressed
                folder.mkdir(parents=True, exist_ok=True)
                _pinned(source, place, pins, opened)
            places[place] = source
            continue
        filesystem, name = fsspec.core.url_to_fs(source.path)
        place = folder / f"{number:06d}-{PurePosixPath(name).name}"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with away_errors_at(source.path):
                filesystem.get_file(name, str(place))
        except FileNotFoundError:
            raise _gone(source) from None
        places[place] = source
    return places


def _gone(source: Source) -> BadFile:
    return BadFile(
        source.path, SourceChanged(f"{source.path} was there when the files were listed, and is gone: left out")
    )


def check_unchanged(places: Mapping[Path, Source]) -> None:
    """Raise `BadFile` if a file's size is not the listed one, because then a program is still writing it."""
    for place, source in places.items():
        try:
            size_bytes = place.stat().st_size
        except FileNotFoundError:
            size_bytes = -1
        if size_bytes != source.size_bytes:
            raise BadFile(
                source.path,
                SourceChanged(
                    f"{source.path} had {source.size_bytes} bytes when it was listed and has {max(size_bytes, 0)} now: "
                    "write files under a name that begins with '.', and rename them when they are complete"
                ),
            )


def check_places_seen(spark: "SparkSession", places: Mapping[Path, Source]) -> None:
    """Raise `seen.NotSeen` unless the executors of a cluster see the files at `places`."""
    check_seen(spark, places, {place: source.path for place, source in places.items() if str(place) != source.path})


def for_spark(place: Path) -> str:
    r"""Return `place` as a path for Spark, with the characters escaped that Spark would read as wildcards.

    >>> for_spark(Path("/data/h[1].csv"))
    '/data/h\\[1\\].csv'
    """
    return "".join(f"\\{char}" if char in "\\*?[]{}" else char for char in str(place))
