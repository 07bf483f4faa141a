"""The kind `backup`: a PostgreSQL database, an SQLite file or a folder, to any fsspec URL, compressed, with sums."""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from sqlite3 import sqlite_version
from typing import Annotated, Any, Final

import zstandard
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from tasks.access import Access, check_options
from tasks.backup import archive, keep, lineage, manifest
from tasks.backup.destination import BadDestination, Place, checked, local_path
from tasks.backup.manifest import FileEntry, Manifest
from tasks.backup.sources import folder, postgres, sqlite
from tasks.backup.sources.in_place import closed_to_others
from tasks.identity import AcceptedSources, identity_id
from tasks.kind import Context, Failed, Fenced, Unretryable
from tasks.opened import Guard
from tasks.reach import Reach, remote
from tasks.secret import Reference, SecretEnv, SecretFile

INSIDE: Final = "the destination is inside the folder that is backed up"

Source = Annotated[postgres.PostgresSource | sqlite.SqliteSource | folder.FolderSource, Field(discriminator="type")]


class BackupStopped(Exception):
    """The attempt was asked to stop. What it had written is no backup."""


class NoBackupSource(Unretryable):
    """The folder or file that is to be backed up is not there."""


class Vanished(Failed):
    """What was written is not there any more, or not all of it: somebody has removed it."""


class BackupParams(BaseModel):
    """What to back up, and where to."""

    model_config = ConfigDict(extra="forbid")

    source: Source
    destination: str = Field(
        description="A folder, by its path or an fsspec URL; backups go to DESTINATION/TASK/CREATED-TOKEN/",
        min_length=1,
        max_length=4096,
        examples=["s3://backups/rota", "/mnt/backups"],
    )
    options: dict[str, Reference | str | int | bool | None] = Field(
        default={},
        description="fsspec's options for the destination; secrets as references",
        examples=[{"key": {"env": "S3_KEY"}, "secret": {"secret": "s3_secret"}, "endpoint_url": "https://s3.internal"}],
    )
    level: int = Field(default=3, ge=1, le=19, description="zstd's level")
    keep: int | None = Field(default=None, ge=1, le=10_000, description="How many backups stay; null: all")
    accept_source: AcceptedSources = Field(
        default=[],
        description="Ids of sources that are the same data as before, moved or restored: the error that refuses one "
        "names its id",
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
        # By the letters alone: the node asks this on its event loop. Links are followed where the work is done.
        if isinstance(self.source, folder.FolderSource):
            inner, outer = local_path(self.destination), local_path(self.source.path)
            if inner is not None and outer is not None and inner.is_relative_to(outer):
                raise ValueError(INSIDE)
        return self


def place_url(destination: str, task: str) -> str:
    """Where the backups of a task are.

    >>> place_url("s3://backups/rota/", "orders")
    's3://backups/rota/orders'
    """
    return f"{destination.rstrip('/')}/{task}"


def resolved(options: Mapping[str, Any], secret: Callable[[Any], str]) -> dict[str, Any]:
    """fsspec's options, each reference replaced by what `secret` gives for it. Raises what `secret` raises."""
    return {
        name: secret(value) if isinstance(value, SecretFile | SecretEnv) else value for name, value in options.items()
    }


class Backup:
    """Makes a backup; it counts once its manifest is written, which is the last thing done."""

    Params = BackupParams

    @staticmethod
    def local_data(params: BackupParams) -> list[str]:
        """The fields that name data on the member's own disk (`tasks.kind.Kind`)."""
        source = params.source
        return [] if isinstance(source, postgres.PostgresSource) or source.shared else ["source"]

    @staticmethod
    def reaches(params: BackupParams, task: str) -> list[Reach]:
        """What the params of that task name outside of it (`tasks.kind.Kind`)."""
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
        """Make one backup. Result: its URL, sizes, seconds, remarks, how many old ones were removed, what could not be.

        Raises `BadDestination`, `Fenced`, `MissingSecret`, `NoBucket`, `NoBackupSource`, `OtherSource`, `Refused`,
        `BackupStopped`, `Vanished`, and what the source's file names.
        """
        # A backup holds what the source's own permissions keep from others.
        with closed_to_others():
            return self._make(ctx)

    def _make(self, ctx: Context[BackupParams]) -> dict[str, Any]:
        began_s = time.monotonic()
        params = ctx.params
        created = datetime.now(UTC)
        # Before anything is asked of the destination: a source that is refused leaves nothing there.
        _check_source(params.source, ctx.access, ctx.node)
        task_place = Place(place_url(params.destination, ctx.task), resolved(params.options, ctx.secret), ctx.access)
        if isinstance(params.source, folder.FolderSource) and task_place.is_within(Path(params.source.path)):
            raise BadDestination(f"{task_place.url}: {INSIDE}, {params.source.path}")
        name = manifest.folder_name(created, ctx.token)
        place = task_place.inside(name)
        if place.read(manifest.NAME) is not None:
            raise FileExistsError(f"{place.url} is a backup already: another cluster writes to the same destination")
        making = _Making(ctx, place)
        identity = making.identity()
        held = _lineage(ctx, task_place, identity)
        before = keep.begun_before(ctx.checkpoint)
        begun = keep.begun_by_now(before, name)
        ctx.save_checkpoint(begun)
        cleared = keep.clear(task_place, before, ctx.token)
        try:
            entry, tools, remarks = making.content()
            done = Manifest(
                task=ctx.task,
                run_id=ctx.run_id,
                attempt=ctx.attempt,
                token=ctx.token,
                created=created,
                finished=datetime.now(UTC),
                source_type=params.source.type,
                source=params.source.model_dump(mode="json", exclude={"password"}),
                tools=tools,
                files=(entry,),
                remarks=tuple(map(_printable, remarks)),
                node=ctx.node,
                identity=identity,
                lineage=held.name,
            )
            # An attempt that was taken over makes no backup,
            ctx.save_checkpoint(begun | {"finishing": place.url})
            # and one that was paused here, and taken over, no backup without its files.
            _check_stored(place, done)
            manifest.write(place, done)
        except Exception:
            _discard(ctx, place)
            raise
        ctx.log.info("%s: %d bytes, %d stored", place.url, done.size_bytes, done.stored_bytes)
        for remark in done.remarks[:100]:
            ctx.log.warning("%s", remark)
        tidied = self._tidy(ctx, task_place, place, done, begun, held)
        failed = [*cleared.failed, *tidied.failed]
        for why in failed:
            ctx.log.warning("the backup is complete, but something old could not be removed: %s", why)
        for why in tidied.unreadable:
            ctx.log.warning("not counted and not removed: %s", why)
        if tidied.others:
            ctx.log.warning(
                "not counted and not removed: %d backups of another source, or from before sources were noted (those "
                "count if the task's params have `accept_source: %s`)",
                tidied.others,
                identity_id(identity),
            )
        return {
            "url": place.url,
            "bytes": done.size_bytes,
            "stored_bytes": done.stored_bytes,
            "sha256": entry.sha256,
            "remarks": len(done.remarks),
            "removed": len(cleared.removed) + len(tidied.removed),
            "not_removed": [_printable(why[:1000]) for why in failed[:20]],
            "unreadable": len(tidied.unreadable),
            "others": tidied.others,
            "seconds": round(time.monotonic() - began_s, 3),
        }

    def _tidy(
        self,
        ctx: Context[BackupParams],
        task_place: Place,
        place: Place,
        done: Manifest,
        begun: dict[str, Any],
        held: lineage.Lineage,
    ) -> keep.Tidied:
        """Remove what is old, if this is still the run's attempt and its backup is whole: raises `Fenced`, `Vanished`.

        One that was paused while it wrote its manifest may have been taken over, and its files removed, since.
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
        except Exception as error:  # noqa: BLE001  the libraries of the storages raise whatever they like; it is told
            if fenced is None:
                return keep.Tidied(failed=(f"{place.url}: {type(error).__name__}: {error}",))
        if fenced is not None:
            raise fenced
        kept = None if held.name is None else ctx.params.keep
        return keep.tidy(task_place, place.url, ctx.token, held, kept, done.finished)


def _lineage(ctx: Context[BackupParams], task_place: Place, identity: dict[str, str]) -> lineage.Lineage:
    """What the backup of this source will belong to. Raises `OtherSource`."""
    try:
        newest = lineage.newest_identified(task_place)
    except PermissionError as error:
        # A member that may only write there removes nothing either: without a look there is no harm in going on.
        ctx.log.warning("whether the backups at %s are of this source is not known: %s", task_place.url, error)
        return lineage.Lineage(None)
    return lineage.continued(newest, identity, ctx.params.accept_source, ctx.node)


def _check_source(source: Source, access: Access, node: str) -> None:
    """What is opened later is checked again then. Raises `NoBackupSource` and `AccessRefused`."""
    if isinstance(source, postgres.PostgresSource):
        source.check(access)
    elif not (found := Guard(access, "source").resolve(source.path)).exists():
        raise NoBackupSource(
            f"{found} is not there on {node}: correct the source's path, mount it, or bind the task to the node that "
            "has it (group: {node: ID})"
        )


def _check_stored(place: Place, done: Manifest) -> None:
    """Raises `Vanished` unless the files are there in the size that they were written in."""
    for file in done.files:
        try:
            found = place.size_bytes(file.name)
        except (FileNotFoundError, NotADirectoryError):
            now = "it is gone"
        else:
            if found is None or found == file.stored_bytes:
                continue
            now = f"it has {found}"
        raise Vanished(
            f"{place.url}/{file.name}: {file.stored_bytes} bytes were written, now {now}: another attempt, or somebody "
            "else, has removed or changed it; this attempt makes no backup"
        )


def _discard(ctx: Context[BackupParams], place: Place) -> None:
    """Remove what this attempt has written. What it failed of is what counts, and is raised by the caller."""
    ctx.log.info("removing what was written to %s", place.url)
    try:
        keep.remove(place)
    except Exception as error:  # noqa: BLE001  the libraries of the storages raise whatever they like
        ctx.log.warning("%s could not be removed: %s: %s", place.url, type(error).__name__, error)


def _printable(remark: str) -> str:
    r"""A remark without what neither JSON nor msgpack takes: names of files may be any bytes.

    >>> _printable("caf\udce9 vanished")
    'caf\\udce9 vanished'
    """
    return remark.encode("utf-8", "backslashreplace").decode()


class _Making:
    """The content of one backup, on its way from its source to its place."""

    def __init__(self, ctx: Context[BackupParams], place: Place) -> None:
        self._ctx = ctx
        self._place = place
        self._total: int | None = None

    def identity(self) -> dict[str, str]:
        """What tells the source from another of that name. Raises what the source's file names."""
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
        """Write it. What the manifest says of it, the tools that made it, and remarks."""
        remarks: list[str] = []
        tools = {"rota": _version("rota"), "zstandard": zstandard.__version__}
        match self._ctx.params.source:
            case postgres.PostgresSource() as source:
                database = self._database(source)
                found = database.tools()
                entry = self._store(postgres.FILE, lambda out: postgres.dump(database, found, out))
                return entry, tools | {"pg_dump": found.version}, []
            case sqlite.SqliteSource() as source:
                guard = Guard(self._ctx.access, "source")
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
                guard = Guard(self._ctx.access, "source")
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
