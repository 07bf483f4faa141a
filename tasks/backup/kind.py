"""The kind `backup`: a PostgreSQL database, an SQLite file or a folder, compressed, to any fsspec URL."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from sqlite3 import sqlite_version
from typing import Annotated, Any, Final

import zstandard
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from tasks.access import Access, check_options
from tasks.backup import archive, lineage, manifest, retention
from tasks.backup.destination import checked
from tasks.backup.manifest import FileEntry, Manifest
from tasks.backup.sources import folder, postgres, sqlite
from tasks.backup.sources.in_place import closed_to_others
from tasks.file_guard import FileGuard
from tasks.kind import Context, Failed, Fenced, Unretryable
from tasks.place import BadDestination, Place, local_path, resolved
from tasks.reach import Reach, remote
from tasks.secret import Reference
from tasks.source_identity import AcceptedSources, identity_id

INSIDE: Final = "the destination is inside the folder to back up"

RESULT: Final = {
    "url": "the backup's URL",
    "bytes": "the size of the content",
    "stored_bytes": "the size of the compressed file",
    "sha256": "the checksum of the compressed file",
    "remarks": "the number of remarks in the manifest, such as files that vanished",
    "removed": "the number of old backups and leftovers that were removed",
    "not_removed": "those that could not be removed, and why; 20 at most",
    "unreadable": "the number of backups whose manifest cannot be read; they are neither counted nor removed",
    "others": "the number of backups of another source, or of none; they are neither counted nor removed",
    "seconds": "how long the attempt took",
}
"""The fields of a run's result, for the reference."""

Source = Annotated[postgres.PostgresSource | sqlite.SqliteSource | folder.FolderSource, Field(discriminator="type")]


class BackupStopped(Exception):
    """The attempt was asked to stop. It made no backup, and removed what it had written."""


class NoBackupSource(Unretryable):
    """The folder or file to back up does not exist."""


class Vanished(Failed):
    """Files that this attempt wrote were removed or changed before the backup was complete."""


class BackupParams(BaseModel):
    """What to back up, and where to keep the backups."""

    model_config = ConfigDict(extra="forbid")

    source: Source = Field(description="What to back up: a folder, an SQLite file or a PostgreSQL database")
    destination: str = Field(
        description="The folder for the backups, as a path or an fsspec URL; each backup is one folder in it, "
        "DESTINATION/TASK/CREATED-TOKEN/",
        min_length=1,
        max_length=4096,
        examples=["s3://backups/rota", "/mnt/backups"],
    )
    options: dict[str, Reference | str | int | bool | None] = Field(
        default={},
        description="fsspec's options for the destination; secrets are given as references",
        examples=[{"key": {"env": "S3_KEY"}, "secret": {"secret": "s3_secret"}, "endpoint_url": "https://s3.internal"}],
    )
    level: int = Field(default=3, ge=1, le=19, description="The compression level of zstd")
    keep: int | None = Field(default=None, ge=1, le=10_000, description="How many backups to keep; null: all")
    accept_source: AcceptedSources = Field(
        default=[],
        description="Ids of sources that hold the same data as before, moved or restored; the error that refuses a "
        "source names its id. One id, or a list",
    )

    @model_validator(mode="after")
    def _known_options(self) -> "BackupParams":
        check_options(self.destination, self.options)
        return self

    @field_validator("destination")
    @classmethod
    def _known_destination(cls, value: str) -> str:
        return checked(value)

    @model_validator(mode="after")
    def _not_into_itself(self) -> "BackupParams":
        # As text only, because a node checks params on its event loop. The attempt follows links.
        if isinstance(self.source, folder.FolderSource):
            inner, outer = local_path(self.destination), local_path(self.source.path)
            if inner is not None and outer is not None and inner.is_relative_to(outer):
                raise ValueError(INSIDE)
        return self


def place_url(destination: str, task: str) -> str:
    """The URL of the folder of a task's backups.

    >>> place_url("s3://backups/rota/", "orders")
    's3://backups/rota/orders'
    """
    return f"{destination.rstrip('/')}/{task}"


class Backup:
    """Makes a backup. It is valid once its manifest is written, which is the last step."""

    Params = BackupParams

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now

    @staticmethod
    def local_data(params: BackupParams) -> list[str]:
        """The params that name data on the member's own disk (`tasks.kind.Kind`)."""
        source = params.source
        return [] if isinstance(source, postgres.PostgresSource) or source.shared else ["source"]

    @staticmethod
    def reaches(params: BackupParams, task: str) -> list[Reach]:
        """The paths and hosts that the params of `task` name (`tasks.kind.Kind`)."""
        source = params.source
        url = place_url(params.destination, task)
        folder_path = local_path(url)
        return [
            Reach("source", "source", source.url, addresses=source.addresses())
            if isinstance(source, postgres.PostgresSource)
            else Reach("source", "source", source.path, source.path),
            remote("destination", "destination", url, params.options)
            if folder_path is None
            else Reach("destination", "destination", url, str(folder_path)),
        ]

    def run(self, ctx: Context[BackupParams]) -> dict[str, Any]:
        """Make one backup. Result: its URL, its sizes, the seconds it took, and what was removed and what was not.

        Raises `AccessRefused`, `BackupStopped`, `BadDestination`, `Fenced`, `MissingSecret`, `NoBackupSource`,
        `NoBucket`, `OtherSource`, `Vanished`, and what the module of the source names.
        """
        # The files of a backup are for this user only: the source's own permissions may hide its data from others.
        with closed_to_others():
            return self._make(ctx)

    def _make(self, ctx: Context[BackupParams]) -> dict[str, Any]:
        began_s = time.monotonic()
        created = self._now()
        # Before the destination is used, so that a refused source leaves nothing there.
        _check_source(ctx.params.source, ctx.access, ctx.node)
        task_place = _task_place(ctx)
        name = manifest.folder_name(created, ctx.token)
        place = _new_place(task_place, name)
        making = _Making(ctx, place)
        identity = making.identity()
        held = _lineage(ctx, task_place, identity)
        before = retention.begun_before(ctx.checkpoint)
        begun = retention.begun_by_now(before, name)
        ctx.save_checkpoint(begun)
        cleared = retention.remove_unfinished(task_place, before, ctx.token)
        done = self._write(ctx, place, making, created, begun, identity, held)
        ctx.log.info("%s: %d bytes, %d stored", place.url, done.size_bytes, done.stored_bytes)
        for remark in done.remarks[:100]:
            ctx.log.warning("%s", remark)
        pruned = self._prune(ctx, task_place, place, done, begun, held)
        failed = [*cleared.failed, *pruned.failed]
        _warn_of_kept(ctx, failed, pruned, identity)
        return {
            "url": place.url,
            "bytes": done.size_bytes,
            "stored_bytes": done.stored_bytes,
            "sha256": done.files[0].sha256,
            "remarks": len(done.remarks),
            "removed": len(cleared.removed) + len(pruned.removed),
            "not_removed": [_printable(why[:1000]) for why in failed[:20]],
            "unreadable": len(pruned.unreadable),
            "others": pruned.others,
            "seconds": round(time.monotonic() - began_s, 3),
        }

    def _write(
        self,
        ctx: Context[BackupParams],
        place: Place,
        making: "_Making",
        created: datetime,
        begun: dict[str, Any],
        identity: dict[str, str],
        held: lineage.Lineage,
    ) -> Manifest:
        """Write the content and, as the last step, the manifest. After any exception nothing of it is left."""
        source = ctx.params.source
        try:
            entry, tools, remarks = making.content()
            done = Manifest(
                task=ctx.task,
                run_id=ctx.run_id,
                attempt=ctx.attempt,
                token=ctx.token,
                created=created,
                finished=self._now(),
                source_type=source.type,
                source=source.model_dump(mode="json", exclude={"password"}),
                tools=tools,
                files=(entry,),
                remarks=tuple(map(_printable, remarks)),
                node=ctx.node,
                identity=identity,
                lineage=held.name,
            )
            # Raises `Fenced` if the attempt was taken over: then it makes no backup.
            ctx.save_checkpoint(begun | {"finishing": place.url})
            # If the attempt was paused here and taken over, its successor has removed the files.
            _check_stored(place, done)
            manifest.write(place, done)
        except Exception:
            _discard(ctx, place)
            raise
        return done

    def _prune(
        self,
        ctx: Context[BackupParams],
        task_place: Place,
        place: Place,
        done: Manifest,
        begun: dict[str, Any],
        held: lineage.Lineage,
    ) -> retention.Pruned:
        """Remove old backups, if this attempt still holds the run and its backup is complete.

        Raises `Fenced` and `Vanished`: an attempt that was paused while it wrote its manifest may have been taken over
        since, and its files removed.
        """
        fenced: Fenced | None = None
        try:
            ctx.save_checkpoint(begun | {"finished": place.url})
        except Fenced as error:
            fenced = error
        try:
            _check_stored(place, done)
        except Vanished:
            _discard(ctx, place)
            raise
        except Exception as error:  # noqa: BLE001  storage libraries raise any exception; it is reported
            if fenced is None:
                return retention.Pruned(failed=(f"{place.url}: {type(error).__name__}: {error}",))
        if fenced is not None:
            raise fenced
        kept = None if held.name is None else ctx.params.keep
        return retention.prune(task_place, place.url, ctx.token, held, kept, done.finished)


def _task_place(ctx: Context[BackupParams]) -> Place:
    """The folder of the task's backups. Raises `BadDestination` if it is inside the folder to back up."""
    params = ctx.params
    found = Place(place_url(params.destination, ctx.task), resolved(params.options, ctx.secret), ctx.access)
    if isinstance(params.source, folder.FolderSource) and found.is_within(Path(params.source.path)):
        raise BadDestination(f"{found.url}: {INSIDE}, {params.source.path}")
    return found


def _new_place(task_place: Place, name: str) -> Place:
    """The folder of a new backup. Raises `FileExistsError` if a backup is in it."""
    place = task_place.inside(name)
    if place.read(manifest.NAME) is not None:
        raise FileExistsError(f"{place.url} exists already: another cluster writes to the same destination")
    return place


def _lineage(ctx: Context[BackupParams], task_place: Place, identity: dict[str, str]) -> lineage.Lineage:
    """The lineage of the backup of this source. Raises `OtherSource`."""
    try:
        newest = lineage.newest_identified(task_place)
    except PermissionError as error:
        # A member that may only write there cannot remove anything either, so continuing does no harm.
        ctx.log.warning("cannot read whether the backups at %s are of this source: %s", task_place.url, error)
        return lineage.Lineage(None)
    return lineage.continued(newest, identity, ctx.params.accept_source, ctx.node)


def _check_source(source: Source, access: Access, node: str) -> None:
    """Raise `NoBackupSource` or `AccessRefused`. Files are checked again when they are opened."""
    if isinstance(source, postgres.PostgresSource):
        source.check(access)
    elif not (found := FileGuard(access, "source").resolve(source.path)).exists():
        raise NoBackupSource(
            f"{found} does not exist on {node}: correct the source's path, mount it, or bind the task to the node that "
            "has it (group: {node: ID})"
        )


def _check_stored(place: Place, done: Manifest) -> None:
    """Raise `Vanished` unless every file exists with the size with which it was written."""
    for file in done.files:
        try:
            found = place.size_bytes(file.name)
        except (FileNotFoundError, NotADirectoryError):
            now = "the file does not exist"
        else:
            if found is None or found == file.stored_bytes:
                continue
            now = f"the file has {found} bytes"
        raise Vanished(
            f"{place.url}/{file.name}: {file.stored_bytes} bytes were written, and now {now}: another attempt or "
            "another program has removed or changed it; this attempt makes no backup"
        )


def _warn_of_kept(
    ctx: Context[BackupParams], failed: list[str], pruned: retention.Pruned, identity: dict[str, str]
) -> None:
    """Log which old folders are still there: `failed` to be removed, or not counted."""
    for why in failed:
        ctx.log.warning("the backup is complete, but an old folder could not be removed: %s", why)
    for why in pruned.unreadable:
        ctx.log.warning("not counted and not removed: %s", why)
    if pruned.others:
        ctx.log.warning(
            "not counted and not removed: %d backups of another source, or made before sources were recorded (the "
            "latter count if the task's params have `accept_source: %s`)",
            pruned.others,
            identity_id(identity),
        )


def _discard(ctx: Context[BackupParams], place: Place) -> None:
    """Remove what this attempt has written. A failure to do so is logged: the caller raises the attempt's own error."""
    ctx.log.info("removing what was written to %s", place.url)
    try:
        retention.remove(place)
    except Exception as error:  # noqa: BLE001  storage libraries raise any exception
        ctx.log.warning("%s could not be removed: %s: %s", place.url, type(error).__name__, error)


def _printable(remark: str) -> str:
    r"""A remark without lone surrogates, which JSON and msgpack do not take: names of files may be any bytes.

    >>> _printable("caf\udce9 vanished")
    'caf\\udce9 vanished'
    """
    return remark.encode("utf-8", "backslashreplace").decode()


class _Making:
    """Writes the content of one backup from its source to its place."""

    def __init__(self, ctx: Context[BackupParams], place: Place) -> None:
        self._ctx = ctx
        self._place = place
        self._total: int | None = None

    def identity(self) -> dict[str, str]:
        """The source's identity facts. Raises what the module of the source names."""
        match self._ctx.params.source:
            case postgres.PostgresSource() as source:
                database = self._database(source)
                return postgres.identity(database, database.tools())
            case sqlite.SqliteSource() as source:
                return sqlite.identity(source, self._ctx.node)
            case folder.FolderSource() as source:
                return folder.identity(source, self._ctx.node)

    def _database(self, source: postgres.PostgresSource) -> postgres.Database:
        password = None if source.password is None else self._ctx.secret(source.password)
        return postgres.Database(source.url, self._ctx.scratch, password, self._ctx.access.postgres_bin)

    def content(self) -> tuple[FileEntry, dict[str, str], list[str]]:
        """Write the content; its entry for the manifest, the versions of the tools, and remarks."""
        remarks: list[str] = []
        tools = {"rota": _version("rota"), "zstandard": zstandard.__version__}
        match self._ctx.params.source:
            case postgres.PostgresSource() as source:
                database = self._database(source)
                found = database.tools()
                entry = self._store(postgres.FILE, lambda out: postgres.dump(database, found, out))
                return entry, tools | {"pg_dump": found.version}, []
            case sqlite.SqliteSource() as source:
                guard = FileGuard(self._ctx.access, "source")
                path = guard.resolve(source.path)
                self._total = path.stat().st_size if path.exists() else None
                scratch = self._ctx.scratch
                entry = self._store(
                    sqlite.FILE, lambda out: remarks.extend(sqlite.dump(path, scratch, out, self._check, guard))
                )
                entry = entry.model_copy(update=sqlite.permissions(path))
                return entry, tools | {"sqlite": sqlite_version}, remarks
            case folder.FolderSource() as source:
                path = Path(source.path)
                guard = FileGuard(self._ctx.access, "source")
                entry = self._store(folder.FILE, lambda out: remarks.extend(folder.dump(path, out, guard)))
                return entry, tools, remarks

    def _store(self, name: str, dump: Callable[[archive.Writer], None]) -> FileEntry:
        return archive.store(self._place, name, dump, self._ctx.params.level, self._progress)

    def _progress(self, done_bytes: int) -> None:
        self._ctx.progress(done_bytes, self._total, "bytes")
        self._check()

    def _check(self) -> None:
        if self._ctx.cancelled:
            raise BackupStopped("asked to stop")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
