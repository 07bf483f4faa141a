"""A place where tasks keep files, such as backups and tables: a folder at any fsspec URL.

An object store shows an object only once it is complete, but a local file system shows parts of a file. So every local
file is synced to disk, and a small file that readers rely on is written under a temporary name and renamed.
"""

import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from copy import copy
from datetime import UTC, datetime
from functools import cache
from pathlib import Path, PurePosixPath
from secrets import token_hex
from typing import IO, Any, cast
from urllib.parse import urlsplit

from tasks.access import Access, addresses, check_address, check_options, check_protocol
from tasks.errors import Failed, Unretryable
from tasks.file_guard import FileGuard
from tasks.places.fsync import sync, sync_names, write_new
from tasks.places.object_lock import LockTime, ObjectVersion, StillLocked, VersionedBucket
from tasks.places.sftp import rename_to_new, sftp_options
from tasks.places.upload import PART_BYTES, Upload
from tasks.reach import Reach, remote
from tasks.secret import SecretEnv, SecretFile


class BadDestination(Failed):
    """No installed file system supports the URL, or the folder cannot be this task's destination."""


class NoBucket(Unretryable):
    """The bucket or container of a destination does not exist."""


class NoObjectLock(Unretryable):
    """What is written to a destination is to be locked, and its bucket cannot lock it."""


def local_path(url: str) -> PurePosixPath | None:
    """Return the path of a local folder, from its URL alone; None for a remote one.

    >>> local_path("file:///mnt/a/../backups"), local_path("s3://backups")
    (PurePosixPath('/mnt/backups'), None)
    """
    protocol, _, path = url.rpartition("://")
    return PurePosixPath(posixpath.normpath("/" + path.lstrip("/"))) if protocol in {"", "file", "local"} else None


def is_sftp(url: str) -> bool:
    """Whether the file system at `url` is reached by SFTP."""
    return url.partition("://")[0] in {"sftp", "ssh"}


def place_reach(field: str, url: str, options: Mapping[str, Any]) -> Reach:
    """Return the `Reach` of a place that the params name in `field`: a folder, made for its owner only, or a URL.

    >>> place_reach("destination", "file:///mnt/backups", {}).path, place_reach("wal", "s3://logs", {}).addresses
    ('/mnt/backups', ('s3://logs',))
    """
    folder = local_path(url)
    if folder is None:
        return remote(field, "destination", url, options)
    return Reach(field, "destination", url, str(folder), private=True)


def check_url(url: str) -> None:
    """Raise `ValueError` if `url` cannot be a destination. Checks the text only, and touches no file."""
    if "\0" in url:
        raise ValueError("contains a NUL character, which no path and no URL may have")
    protocol = check_protocol(url)
    separator, path = url.partition("://")[1:] if "://" in url else ("", url)
    if protocol == "" and not path.startswith("/"):
        raise ValueError("a local path must begin with '/': a worker's current folder is its scratch folder")
    if separator and urlsplit(url).password is not None:
        raise ValueError(
            "the URL must not contain a password, because it is replicated and shown: remove it, and give a reference "
            'to a secret in `options`, as {"password": {"secret": NAME}} ("secret" for s3://)'
        )


def check_place(url: str, options: Mapping[str, Any]) -> None:
    """Raise `ValueError` for options that a task may not set, and for an SFTP server without its public key.

    Checks the text only, before any secret is resolved.
    """
    check_options(url, options)
    if is_sftp(url):
        sftp_options(options)


def resolved(options: Mapping[str, Any], secret: Callable[[Any], str]) -> dict[str, Any]:
    """fsspec's options, each reference replaced by the value that `secret` returns. Raises what `secret` raises."""
    return {
        name: secret(value) if isinstance(value, SecretFile | SecretEnv) else value for name, value in options.items()
    }


@cache
def _s3_session() -> Any:
    """Return the session of all clients of S3. Each session reads a description of S3's API, which takes 16 MB."""
    from aiobotocore.session import AioSession  # type: ignore[import-untyped]

    return AioSession()


def _exists(error: OSError) -> bool:
    """Whether an error says that a file that was to be new exists. s3fs knows only how AWS says so."""
    answer = getattr(error.__cause__, "response", {})
    return isinstance(error, FileExistsError) or answer.get("Error", {}).get("Code") == "PreconditionFailed"


def _discard_upload(file: Any) -> None:
    """Abort the upload of a file whose writer failed. Otherwise closing the file would complete it."""
    from fsspec.spec import AbstractBufferedFile

    if isinstance(file, AbstractBufferedFile):
        file.closed = True
        with suppress(Exception):  # the writer's error is raised; parts that stay are removed by a later run
            file.discard()


class Place:
    """A folder at `url`. `options` are fsspec's, with secrets resolved.

    `access` says which paths and hosts a node's tasks may reach; None: all that this process may reach. `lock`: files
    that are written are locked, in an S3 bucket with Object Lock. `removes`: False makes removing do nothing, because
    another task does it. Raises `AccessRefused` and `BadDestination`.
    """

    def __init__(
        self,
        url: str,
        options: dict[str, Any] | None = None,
        access: Access | None = None,
        lock: LockTime | None = None,
        removes: bool = True,
    ) -> None:
        self.url = url.rstrip("/")
        self._options = options or {}
        self._access = access
        self._lock = lock
        self._removes = removes
        self._keeps_versions: list[bool] = []
        """What `keeps_versions` has found, which folders in this one share."""
        self.versions: dict[str, str] = {}
        """The ids of the versions of files that were written through this object, if the storage keeps versions."""
        try:
            self._check_remote()
            self._files, self._path = self._opened({} if lock is None else lock.options())
        except (ImportError, ValueError) as error:
            raise BadDestination(f"{self.url}: {error}. For s3:// install rota[s3], for sftp:// rota[sftp]") from None
        if self.is_local and access is not None:
            # Use the resolved path from here on, so that a link that is changed later has no effect.
            self._path = str(FileGuard(access, "destination").resolve(self._path))
        self._files.invalidate_cache()

    def _opened(self, more: Mapping[str, Any]) -> tuple[Any, str]:
        """Return fsspec's file system and the folder's path in it. `more`: options beside those of this place."""
        import fsspec  # not at the top of the module: a node imports this module, and does not need fsspec

        options = {**self._options, **more}
        if is_sftp(self.url):
            options = sftp_options(options)
        elif check_protocol(self.url) in {"s3", "s3a"} and "profile" not in options:
            options["session"] = _s3_session()
        files, path = fsspec.core.url_to_fs(self.url, **options)
        return files, str(path)

    def _check_remote(self) -> None:
        """Raise `AccessRefused` for a host, `ValueError` for an option that tasks may not name. Connects to nothing."""
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
        """Whether this folder is local and is `folder` or in it, with links followed."""
        return self.is_local and Path(self._path).resolve().is_relative_to(folder.resolve())

    def is_same(self, other: "Place") -> bool:
        """Whether this is the folder of another Place, with links followed if both are local."""
        if self.is_local and other.is_local:
            return Path(self._path).resolve() == Path(other._path).resolve()
        endpoints = [each._options.get("endpoint_url") for each in (self, other)]
        return (self._protocols, self._path, endpoints[0]) == (other._protocols, other._path, endpoints[1])

    @property
    def options(self) -> dict[str, Any]:
        """A copy of fsspec's options, with secrets resolved. Never log it."""
        return dict(self._options)

    @property
    def files(self) -> Any:
        """fsspec's file system."""
        return self._files

    @property
    def path(self) -> str:
        """The folder's path in `files`: resolved if it is local; with the bucket first in an object store."""
        return str(self._path)

    def shown(self, name: str) -> str:
        """Return the path of a file in this folder, or its URL if it is not local."""
        return f"{self._path if self.is_local else self.url}/{name}"

    def inside(self, name: str) -> "Place":
        """Return the folder `name` in this one."""
        if self.is_local:
            return Place(f"{self.url}/{name}", self._options, self._access, self._lock, self._removes)
        found = copy(self)  # it shares the connections
        found.url, found._path, found.versions = f"{self.url}/{name}", f"{self._path}/{name}", {}
        found._files.invalidate_cache()
        return found

    @property
    def lock(self) -> LockTime | None:
        """How long files that are written now stay locked; None: they are not locked."""
        return self._lock

    @property
    def removes(self) -> bool:
        """Whether this process removes files here; False: another task does."""
        return self._removes

    @property
    def keeps_versions(self) -> bool:
        """Whether this is in an S3 bucket that can lock versions."""
        if not self._keeps_versions:
            self._keeps_versions.append("s3" in self._protocols and VersionedBucket(self._files, self._path).locks())
        return self._keeps_versions[0]

    @property
    def _protocols(self) -> tuple[str, ...]:
        named = getattr(self._files, "protocol", ())
        return (named,) if isinstance(named, str) else tuple(named)

    @property
    def bucket(self) -> VersionedBucket:
        """The versions of the files in this folder. Only if it `keeps_versions`."""
        return VersionedBucket(self._files, self._path)

    def folders(self) -> list[str]:
        """Return the sorted names of the folders in this one; an empty list if this folder does not exist."""
        if self.keeps_versions:
            return self.bucket.folders()
        try:
            found = self._files.ls(self._path, detail=True)
        except FileNotFoundError:
            return []
        return sorted(entry["name"].rstrip("/").rpartition("/")[2] for entry in found if entry["type"] == "directory")

    def names(self, folder: str) -> list[str]:
        """List the names of the files and folders in the subfolder `folder`, sorted; empty if it does not exist."""
        self._files.invalidate_cache()
        try:
            found = self._files.ls(f"{self._path}/{folder}", detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found)

    def size_bytes(self, name: str) -> int | None:
        """Return the present size of a file; None if the storage does not say. Raises `FileNotFoundError`."""
        self._files.invalidate_cache()
        found = self._files.info(f"{self._path}/{name}")["size"]
        return None if found is None else int(found)

    def last_written(self) -> datetime | None:
        """When the newest file in this folder was written; None if it has no files or the storage does not say."""
        times: list[datetime] = []
        try:
            for path in self._files.ls(self._path, detail=False):
                with suppress(FileNotFoundError):  # it was removed or renamed in the meantime
                    times.append(self._files.modified(path))
        except (FileNotFoundError, NotImplementedError):
            return None
        return max((time if time.tzinfo else time.replace(tzinfo=UTC) for time in times), default=None)

    def read(self, name: str) -> bytes | None:
        """Return the content of a small file; None if it does not exist."""
        try:
            content: bytes = self._files.cat_file(f"{self._path}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        return content

    def read_oldest(self, name: str) -> bytes | None:
        """Return the content of a small file as it was first written; None if it does not exist.

        Where versions are kept, whoever may only write can add versions, and this ignores them.
        """
        if not self.keeps_versions:
            return self.read(name)
        found = self.bucket.versions(name)[:1]
        return self.bucket.read(found)[0] if found else None

    def oldest(self, folder: str) -> "OldestFiles":
        """Return the small files in the subfolder `folder` as they were first written, like `read_oldest`."""
        versions = self.bucket.oldest(folder) if self.keeps_versions else None
        return OldestFiles(self, folder, self.names(folder) if versions is None else sorted(versions), versions)

    def version_of(self, name: str) -> str | None:
        """Return the id of the present version of a file; None if the storage keeps no versions that it can lock."""
        if not self.keeps_versions:
            return None
        found = self.bucket.versions(name)
        return found[-1].version if found else None

    def read_many(self, names: Iterable[str]) -> dict[str, bytes]:
        """Read small files, in parallel if the storage can. Returns their content by name, without missing files."""
        paths = {f"{self._path}/{name}": name for name in names}
        if not paths:
            return {}
        found: dict[str, Any] = self._files.cat(list(paths), on_error="return")
        for content in found.values():
            if isinstance(content, Exception) and not isinstance(content, FileNotFoundError):
                raise content
        return {paths[path]: content for path, content in found.items() if isinstance(content, bytes)}

    @contextmanager
    def reading(self, name: str, version: str | None = None) -> Iterator[IO[bytes]]:
        """Open a file for reading as a stream: its present content, or that `version`. Raises `FileNotFoundError`."""
        files, path = self._files, f"{self._path}/{name}"
        if version is not None:
            files, _ = self._opened({"version_aware": True})
            path = f"{path}?versionId={version}"
        # s3fs's own choice of 50 MiB would be held in memory twice.
        blocks = {"block_size": PART_BYTES} if check_protocol(self.url) in {"s3", "s3a"} else {}
        with files.open(path, "rb", **blocks) as file:
            yield file

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file for writing as a stream. When the block ends, the file is on the disk or uploaded."""
        path = f"{self._path}/{name}"
        if self.is_local:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        elif is_sftp(self.url):
            self._files.makedirs(posixpath.dirname(path), exist_ok=True)
        in_parts = check_protocol(self.url) in {"s3", "s3a"}
        # s3fs's own choice of 50 MiB would be held in memory several times.
        parts = {"block_size": PART_BYTES} if in_parts else {}
        with self._missing_bucket_named(), self._files.open(path, "wb", **parts) as file:
            try:
                with Upload(file) if in_parts else nullcontext(file) as out:
                    yield cast(IO[bytes], out)
            except BaseException:
                _discard_upload(file)
                raise
        if (version := getattr(file, "version_id", None)) is not None:
            self.versions[name] = version
            if self._lock is not None and file.parts:
                # Some stores, such as Ceph 16, ignore the lock of what is uploaded in parts.
                self.bucket.lock([ObjectVersion(path, version)], self._lock.until)
        if self.is_local:
            sync(Path(path))
            self._sync_names(name)

    @contextmanager
    def _missing_bucket_named(self) -> Iterator[None]:
        """Turn an object store's `FileNotFoundError` into `NoBucket`: it has no folders, so the bucket is missing."""
        try:
            yield
        except FileNotFoundError as error:
            if self.is_local or error.filename is not None:  # a local file, such as one of the source's
                raise
            bucket = self._path.partition("/")[0]
            raise NoBucket(
                f"{self.url}: the bucket {bucket!r} does not exist ({error}): make it, or correct the URL"
            ) from error

    def write_whole(self, name: str, content: bytes, writer: str = "") -> None:
        """Write a small file so that no reader sees only a part of it.

        Concurrent writers of one file must each pass another `writer`, which is a part of the temporary file's name.
        """
        path = f"{self._path}/{name}"
        if is_sftp(self.url):
            self._files.mv(self._write_aside_there(path, content), path)
            return
        if not self.is_local:
            with self._missing_bucket_named():
                self._files.pipe_file(path, content)
            return
        self._write_aside(f"{path}.{writer}.partial" if writer else f"{path}.partial", content).replace(path)
        self._sync_names(name)

    def write_new(self, name: str, content: bytes) -> bool:
        """Write a small file as `write_whole` does. Returns False if a file of that name exists; it is not changed.

        Of several concurrent writers, one succeeds. An object store must support conditional writes for this; where
        this place has a `lock`, the oldest version of the file decides instead, which is what `oldest` reads.
        """
        path = f"{self._path}/{name}"
        if is_sftp(self.url):
            aside = self._write_aside_there(path, content)
            if rename_to_new(self._files, aside, path):
                return True
            self._files.rm_file(aside)
            return False
        try:
            if not self.is_local:
                with self._missing_bucket_named():
                    made = self._files.pipe_file(path, content, mode="create")
                # Not all stores refuse a second version, and none does after a deletion, which leaves the first one.
                return self._lock is None or self.bucket.versions(name)[0].version == made["VersionId"]
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            write_new(Path(path), content)
        except OSError as error:
            if not _exists(error):
                raise
            return False
        self._sync_names(name)
        return True

    def _write_aside_there(self, path: str, content: bytes) -> str:
        """Write a file that is renamed to `path` next. Returns its path, which no other writer has."""
        aside = f"{path}.{token_hex(8)}.partial"
        self._files.makedirs(posixpath.dirname(path), exist_ok=True)
        self._files.pipe_file(aside, content)
        return aside

    @staticmethod
    def _write_aside(path: str, content: bytes) -> Path:
        aside = Path(path)
        aside.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(content)
        sync(aside)
        return aside

    def _sync_names(self, name: str) -> None:
        sync_names(Path(f"{self._path}/{name}").parent, top=Path(self._path))

    def move(self, name: str, to: str, into: "Place | None" = None) -> bool:
        """Rename a file in this folder, or move it `into` another one. Returns False if there is no file `name`.

        An existing file `to` is replaced. In an object store the file is copied, and then the old one is removed. The
        other folder must be on the same file system or in the same object store.
        """
        target = into or self
        here, there = f"{self._path}/{name}", f"{target.path}/{to}"
        try:
            if self.is_local:
                Path(there).parent.mkdir(parents=True, exist_ok=True)
                Path(here).replace(there)
            elif is_sftp(self.url):
                self._files.makedirs(posixpath.dirname(there), exist_ok=True)
                self._files.mv(here, there)
            else:
                self._files.invalidate_cache()
                self._files.cp_file(here, there)
                self._files.rm_file(here)
        except FileNotFoundError:
            return False
        if self.is_local:
            target._sync_names(to)
        return True

    def remove(self, name: str) -> bool:
        """Remove a file, if it exists; where versions are kept, all of them. Returns False if a lock keeps it."""
        if not self._removes:
            return False
        if self.keeps_versions:
            with suppress(StillLocked):
                self._remove_versions(name)
                return True
            return False
        with suppress(FileNotFoundError):
            self._files.rm_file(f"{self._path}/{name}")
        return True

    def remove_files(self, folder: str, names: Collection[str]) -> int:
        """Remove files in the subfolder `folder`; where versions are kept, as far as no lock keeps them.

        Returns how many files, or versions of them, were removed.
        """
        if not self._removes or not names:
            return 0
        if self.keeps_versions:
            going = (one for one in self.bucket.versions(f"{folder}/") if one.path.rpartition("/")[2] in names)
            return self.bucket.remove_unlocked([one for one in going if one.path.rpartition("/")[0].endswith(folder)])
        for name in names:
            self.remove(f"{folder}/{name}")
        return len(names)

    def remove_folder(self) -> None:
        """Remove this folder and everything in it, if it exists; where versions are kept, all of them.

        Raises `StillLocked`.
        """
        if not self._removes:
            return
        if self.keeps_versions:
            self._remove_versions()
            return
        try:
            self._files.rm(self._path, recursive=True)
        except FileNotFoundError:
            return

    def remove_uploads(self, chosen: Callable[[str], bool]) -> None:
        """Abort the uploads to S3 that were never completed, in the folders in this one that `chosen` returns True for.

        The store keeps the parts of such an upload, and lists them with no object.
        """
        if "s3" not in self._protocols or not self._removes:
            return
        bucket, _, key = self._path.partition("/")
        more: dict[str, str] = {}
        while True:
            answer = self._files.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=f"{key}/", **more)
            for one in answer.get("Uploads", []):
                if chosen(one["Key"].removeprefix(f"{key}/").partition("/")[0]):
                    named = {"Key": one["Key"], "UploadId": one["UploadId"]}
                    self._files.call_s3("abort_multipart_upload", Bucket=bucket, **named)
            if not answer.get("IsTruncated"):
                return
            more = {"KeyMarker": answer["NextKeyMarker"], "UploadIdMarker": answer["NextUploadIdMarker"]}

    def lock_ends_soon(self, name: str) -> bool:
        """Whether the lock of a file's oldest version is to be renewed now. Only if this place has a `lock`."""
        assert self._lock is not None, "nothing is locked here"
        until = self.bucket.locked_until(self.bucket.versions(name)[0])
        return until is None or until < self._lock.renew_before

    def renew(self, versions: Mapping[str, str | None]) -> None:
        """Lock files anew: a version of each, by their names; None: the oldest. Only if this place has a `lock`."""
        assert self._lock is not None, "nothing is locked here"
        found = [
            self.bucket.versions(name)[0] if version is None else ObjectVersion(f"{self._path}/{name}", version)
            for name, version in versions.items()
        ]
        self.bucket.lock(found, self._lock.until)

    def check_lock(self) -> None:
        """Raise `NoObjectLock` if this place has a `lock`, and its bucket no Object Lock."""
        if self._lock is not None and not self.keeps_versions:
            raise NoObjectLock(
                f"{self.url}: `lock_days` needs a bucket that was made with Object Lock, and a key with "
                "s3:GetBucketObjectLockConfiguration"
            )

    def lock_until(self, lock: LockTime) -> None:
        """Lock what is written from now on until another time. Only if this place has a `lock`."""
        assert self._lock is not None, "nothing is locked here"
        self._lock = lock
        self._files.s3_additional_kwargs.update(lock.options()["s3_additional_kwargs"])

    def _remove_versions(self, name: str = "") -> None:
        """Remove all versions of a file, or of all files in this folder. Raises `StillLocked`."""
        bucket = self.bucket
        found = sorted(bucket.versions(name), key=lambda one: one.written)
        now = datetime.now(UTC)
        until = max((end for one in found if (end := bucket.locked_until(one)) is not None), default=now)
        if until > now:
            raise StillLocked(f"{self.shown(name).rstrip('/')} is locked until {until:%Y-%m-%d %H:%M} UTC")
        for one in reversed(found):  # what was written last goes first, such as the manifest of a backup
            bucket.remove(one)
        bucket.remove_markers(name)


class OldestFiles:
    """The small files in a folder, as they were first written: whoever may only write can add versions, and no others.

    `names` are sorted. `versions` are their oldest ones; None: the storage keeps none, and the present ones are read.
    """

    def __init__(
        self, place: Place, folder: str, names: Sequence[str], versions: Mapping[str, ObjectVersion] | None
    ) -> None:
        self.names = names
        self.versions = versions
        self._place = place
        self._folder = folder

    def read(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return the content of those of `names` that exist, by name."""
        if self.versions is None:
            found = self._place.read_many(f"{self._folder}/{name}" for name in names)
            return {path.rpartition("/")[2]: content for path, content in found.items()}
        there = [name for name in names if name in self.versions]
        contents = self._place.bucket.read([self.versions[name] for name in there])
        return dict(zip(there, contents, strict=True))
