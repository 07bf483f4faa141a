"""Where backups are kept: a folder at any fsspec URL.

An object store shows an object once it is whole. A local file system does not, so there a file is synced to
disk, and the one that makes everything else count is written aside and renamed.
"""

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final
from urllib.parse import urlsplit

from tasks.access import Access, addresses, check_address, check_options, check_protocol
from tasks.durable import sync
from tasks.errors import Failed, Unretryable
from tasks.opened import Guard

KEEPS_NOTHING: Final = {
    "memory": "it is gone when the run ends",
    **dict.fromkeys(("http", "https"), "nothing can be written there"),
}
"""The file systems that a task may name as a source and that are no place for a backup, and why."""


class BadDestination(Failed):
    """A URL that no installed file system takes, or a folder that is no place for this backup."""


class NoBucket(Unretryable):
    """The bucket or container of a destination is not there."""


def local_path(url: str) -> PurePosixPath | None:
    """The path of a folder on this machine, by its URL alone; None for one elsewhere.

    >>> local_path("file:///mnt/a/../backups"), local_path("s3://backups")
    (PurePosixPath('/mnt/backups'), None)
    """
    protocol, _, path = url.rpartition("://")
    return PurePosixPath(posixpath.normpath("/" + path.lstrip("/"))) if protocol in {"", "file", "local"} else None


def checked(url: str) -> str:
    """`url`, if backups may be kept there as far as it tells. Raises `ValueError`. Touches no file."""
    if "\0" in url:
        raise ValueError("a NUL is in it, which no path and no URL can have")
    protocol = check_protocol(url)
    separator, path = url.partition("://")[1:] if "://" in url else ("", url)
    if protocol in KEEPS_NOTHING:
        raise ValueError(
            f"{protocol}:// cannot keep a backup ({KEEPS_NOTHING[protocol]}): give a folder or an s3:// URL"
        )
    if protocol == "" and not path.startswith("/"):
        raise ValueError("a local path must begin with '/': the worker has a working folder of its own")
    if separator and urlsplit(url).password is not None:
        raise ValueError(
            "a password does not belong in the URL, which is replicated and shown: leave it out, and give a reference "
            'to a secret in `options`, as {"password": {"secret": NAME}} ("secret" for s3://)'
        )
    return url


class Place:
    """A folder at `url`. `options` are fsspec's, secrets resolved.

    `access` is what a node's tasks may reach; None: whatever the caller of this process may. Raises `Refused` and
    `BadDestination`.
    """

    def __init__(self, url: str, options: dict[str, Any] | None = None, access: Access | None = None) -> None:
        import fsspec  # here, so that a node does not import it only to know the kind `backup`

        self.url = url.rstrip("/")
        self._options = options or {}
        self._access = access
        try:
            self._check_remote()
            self._files, self._path = fsspec.core.url_to_fs(self.url, **self._options)
        except (ImportError, ValueError) as error:
            raise BadDestination(f"{self.url}: {error}. For s3:// install rota[s3]") from None
        if self.is_local and access is not None:
            # What is opened from here on is where the links led just now.
            self._path = str(Guard(access, "destination").resolve(self._path))
        self._files.invalidate_cache()

    def _check_remote(self) -> None:
        """Raises `Refused` for a host that is not allowed, and `ValueError`; nothing has been asked of it by then."""
        if self._access is None:
            return
        check_options(self.url, self._options)
        if check_protocol(self.url) != "":
            for address in addresses(self.url, self._options):
                check_address(self._access, "destination", address, self.url)

    @property
    def is_local(self) -> bool:
        """Whether the folder is on this machine's file system."""
        from fsspec.implementations.local import LocalFileSystem

        return isinstance(self._files, LocalFileSystem)

    def is_within(self, folder: Path) -> bool:
        """Whether this folder is `folder` or in it, on this machine's disk and with links followed."""
        return self.is_local and Path(self._path).resolve().is_relative_to(folder.resolve())

    def inside(self, name: str) -> "Place":
        """The folder `name` in this one."""
        return Place(f"{self.url}/{name}", self._options, self._access)

    def folders(self) -> list[str]:
        """The names of the folders in this one, in their order; none if it is not there."""
        try:
            found = self._files.ls(self._path, detail=True)
        except FileNotFoundError:
            return []
        return sorted(entry["name"].rstrip("/").rpartition("/")[2] for entry in found if entry["type"] == "directory")

    def size_bytes(self, name: str) -> int | None:
        """The size of a file as it is now; None where the storage does not say. Raises `FileNotFoundError`."""
        self._files.invalidate_cache()
        found = self._files.info(f"{self._path}/{name}")["size"]
        return None if found is None else int(found)

    def last_written(self) -> datetime | None:
        """When the newest of the files in this folder was written; None without one, or where that is not told."""
        times: list[datetime] = []
        try:
            for path in self._files.ls(self._path, detail=False):
                with suppress(FileNotFoundError):  # it has just gone, or been renamed
                    times.append(self._files.modified(path))
        except (FileNotFoundError, NotImplementedError):
            return None
        return max((time if time.tzinfo else time.replace(tzinfo=UTC) for time in times), default=None)

    def read(self, name: str) -> bytes | None:
        """The content of a small file; None if it is not there."""
        try:
            content: bytes = self._files.cat_file(f"{self._path}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        return content

    @contextmanager
    def reading(self, name: str) -> Iterator[IO[bytes]]:
        """A file, opened to be read as a stream. Raises `FileNotFoundError`."""
        with self._files.open(f"{self._path}/{name}", "rb") as file:
            yield file

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """A file, opened to be written as a stream; on disk, or uploaded, when the block ends."""
        path = f"{self._path}/{name}"
        if self.is_local:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        with self._absence_told(), self._files.open(path, "wb") as file:
            yield file
        if self.is_local:
            sync(Path(path))

    @contextmanager
    def _absence_told(self) -> Iterator[None]:
        """In an object store there are no folders to be made: what is not there when one writes is the bucket."""
        try:
            yield
        except FileNotFoundError as error:
            if self.is_local or error.filename is not None:  # a file of this machine, so of the source
                raise
            bucket = self._path.partition("/")[0]
            raise NoBucket(
                f"{self.url}: there is no bucket {bucket!r} ({error}): make it, or correct the task's destination"
            ) from error

    def write_whole(self, name: str, content: bytes) -> None:
        """Write a small file so that whoever sees it sees all of it."""
        path = f"{self._path}/{name}"
        if not self.is_local:
            with self._absence_told():
                self._files.pipe_file(path, content)
            return
        aside = Path(f"{path}.partial")
        aside.write_bytes(content)
        sync(aside)
        aside.replace(path)
        for folder in (Path(self._path), Path(self._path).parent):
            sync(folder)

    def remove(self, name: str) -> None:
        """Remove a file; nothing happens if it is not there."""
        path = f"{self._path}/{name}"
        try:
            self._files.rm_file(path)
        except FileNotFoundError:
            return

    def remove_folder(self) -> None:
        """Remove this folder and all that is in it; nothing happens if it is not there."""
        try:
            self._files.rm(self._path, recursive=True)
        except FileNotFoundError:
            return
