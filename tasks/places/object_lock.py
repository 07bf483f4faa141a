"""Versions of objects in an S3 bucket that nobody can change or delete before a time (S3 Object Lock).

Who may only put objects, such as a stolen member, can add versions to a name, and remove none. So a reader that wants
what was written first reads the oldest version of a name, or the version whose id was recorded.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar

T = TypeVar("T")

_AT_ONCE: Final = 32
"""The most requests that are under way at once."""

MODE: Final = "COMPLIANCE"
"""In this mode nobody can shorten the time, not even the owner of the bucket."""


class StillLocked(Exception):
    """Objects cannot be removed yet, because their lock has not expired."""


class LockTime(NamedTuple):
    """How long objects that are written now stay locked, and which locks are renewed."""

    #: New objects, and renewed ones, are locked until then.
    until: datetime
    #: A lock that ends before this is renewed.
    renew_before: datetime

    @classmethod
    def of(cls, days: int | None, now: datetime) -> "LockTime | None":
        """Return the lock of this many days. Half of it may pass before it is renewed. None: no lock."""
        if days is None:
            return None
        begin = now.replace(microsecond=0)
        return cls(begin + timedelta(days=days), begin + timedelta(days=days / 2))

    def options(self) -> dict[str, Any]:
        """Return s3fs's options that lock each object that is written."""
        return {
            "version_aware": True,
            "skip_instance_cache": True,  # the time of the lock changes
            "s3_additional_kwargs": {"ObjectLockMode": MODE, "ObjectLockRetainUntilDate": self.until},
        }


class ObjectVersion(NamedTuple):
    """A version of an object."""

    #: The object's path, with the bucket first.
    path: str
    #: The id of the version.
    version: str
    #: When it was written, as far as it is known.
    written: datetime = datetime.min.replace(tzinfo=UTC)


class VersionedBucket:
    """The bucket of a folder at `path` in s3fs's file system `files`."""

    def __init__(self, files: Any, path: str) -> None:
        self._files = files
        self._bucket, _, self._key = path.partition("/")

    def locks(self) -> bool:
        """Whether the bucket can lock versions. False also if this user may not know that."""
        try:
            answer = self._files.call_s3("get_object_lock_configuration", Bucket=self._bucket)
        except OSError:
            return False  # there is no such configuration, no such bucket, or no permission to ask
        return bool(answer.get("ObjectLockConfiguration", {}).get("ObjectLockEnabled") == "Enabled")

    def folders(self) -> list[str]:
        """Return the sorted names of the folders in the folder, also those whose objects were deleted, not removed."""
        prefix, found, more = f"{self._key}/", set[str](), dict[str, str]()
        while True:
            answer = self._files.call_s3(
                "list_object_versions", Bucket=self._bucket, Prefix=prefix, Delimiter="/", **more
            )
            found |= {one["Prefix"].removeprefix(prefix).rstrip("/") for one in answer.get("CommonPrefixes", [])}
            if not answer.get("IsTruncated"):
                return sorted(found)
            more = {"KeyMarker": answer["NextKeyMarker"]}

    def versions(self, name: str = "") -> list[ObjectVersion]:
        """Return the versions of the object `name` in the folder, or of all objects in it; of each the oldest first.

        If `name` ends with a slash, it is that of a folder in this one, and all objects in that are meant.
        """
        prefix = f"{self._key}/{name}"
        found: list[ObjectVersion] = []
        more: dict[str, str] = {}
        while True:
            answer = self._files.call_s3("list_object_versions", Bucket=self._bucket, Prefix=prefix, **more)
            found += [
                ObjectVersion(f"{self._bucket}/{one['Key']}", one["VersionId"], one["LastModified"].astimezone(UTC))
                for one in answer.get("Versions", [])
                if not name or name.endswith("/") or one["Key"] == prefix
            ]
            if not answer.get("IsTruncated"):
                # S3 lists the newest version of a name first. Its time does not tell the order: where a lock is
                # renewed, Ceph's S3 API sets a new one.
                return found[::-1]
            more = {"KeyMarker": answer["NextKeyMarker"], "VersionIdMarker": answer["NextVersionIdMarker"]}

    def oldest(self, folder: str) -> dict[str, ObjectVersion]:
        """Return the oldest version of each object in a folder in this one, by its name, without those in subfolders.

        Objects that were deleted, but of which versions are left, are among them.
        """
        found: dict[str, ObjectVersion] = {}
        for one in self.versions(f"{folder}/"):
            name = one.path.removeprefix(f"{self._bucket}/{self._key}/{folder}/")
            if "/" not in name:
                found.setdefault(name, one)
        return found

    def read(self, versions: Sequence[ObjectVersion]) -> list[bytes]:
        """Return the content of versions of small objects, which are read in parallel."""

        async def content(one: ObjectVersion) -> bytes:
            answer = await self._files._call_s3("get_object", **self._named(one))
            async with answer["Body"] as body:
                found: bytes = await body.read()
            return found

        return self._each(content, versions)

    def locked_until(self, version: ObjectVersion) -> datetime | None:
        """Return until when a version is locked; None: it is not, or this user may not know."""
        until = self._files.call_s3("head_object", **self._named(version)).get("ObjectLockRetainUntilDate")
        return None if until is None else until.astimezone(UTC)

    def lock(self, versions: Sequence[ObjectVersion], until: datetime) -> None:
        """Lock versions until a time, in parallel. A lock that ends later stays. Raises `PermissionError`."""

        async def lock(one: ObjectVersion) -> None:
            retention = {"Mode": MODE, "RetainUntilDate": until}
            try:
                await self._files._call_s3("put_object_retention", Retention=retention, **self._named(one))
            except PermissionError:
                # Nobody may shorten a lock. The store says no other than that it is forbidden.
                head = await self._files._call_s3("head_object", **self._named(one))
                if (ends := head.get("ObjectLockRetainUntilDate")) is None or ends < until:
                    raise

        self._each(lock, versions)

    def _each(self, work: Callable[[ObjectVersion], Awaitable[T]], versions: Sequence[ObjectVersion]) -> list[T]:
        """Do `work` for all versions, some at once. Returns the results in their order."""
        from fsspec.asyn import sync

        async def together(some: Sequence[ObjectVersion]) -> list[T]:
            return await asyncio.gather(*map(work, some))

        found: list[T] = []
        for first in range(0, len(versions), _AT_ONCE):
            found += sync(self._files.loop, together, versions[first : first + _AT_ONCE])
        return found

    def remove(self, version: ObjectVersion) -> None:
        """Remove a version. Raises `PermissionError` if it is locked, or this user may not."""
        self._files.call_s3("delete_object", **self._named(version))

    def remove_unlocked(self, versions: Sequence[ObjectVersion]) -> int:
        """Remove those of `versions` that no lock keeps, the oldest first, in parallel. Returns their number.

        What is refused is asked for again by the next call only. So it stops once a whole part is refused: what was
        written later is locked for longer.
        """

        async def removed(one: ObjectVersion) -> bool:
            try:
                await self._files._call_s3("delete_object", **self._named(one))
            except PermissionError:
                return False
            return True

        ordered, count = sorted(versions, key=lambda one: one.written), 0
        for first in range(0, len(ordered), _AT_ONCE):
            found = sum(self._each(removed, ordered[first : first + _AT_ONCE]))
            count += found
            if not found:
                break
        return count

    def remove_markers(self, name: str = "") -> None:
        """Remove what says that the object `name`, or all objects in the folder, were deleted. No version is left."""
        answer = self._files.call_s3("list_object_versions", Bucket=self._bucket, Prefix=f"{self._key}/{name}")
        for one in answer.get("DeleteMarkers", []):
            self._files.call_s3("delete_object", Bucket=self._bucket, Key=one["Key"], VersionId=one["VersionId"])

    def _named(self, version: ObjectVersion) -> dict[str, str]:
        return {
            "Bucket": self._bucket,
            "Key": version.path.partition("/")[2],
            "VersionId": version.version,
        }
