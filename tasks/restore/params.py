"""The params of the kind `restore`: the backups, the target, and for a server the archived log and the moment."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from tasks.backup.encryption import BackupKeys, Identities
from tasks.backup.manifest import begun
from tasks.backup.params import DestinationUrl
from tasks.backup.restore import is_database
from tasks.backup.retention import name_of
from tasks.backup.sources.mariadb import url as mariadb_url
from tasks.backup.sources.mariadb.connection import MariadbConnection
from tasks.definition.written_time import WrittenTime
from tasks.places.place import check_place, check_url
from tasks.postgres.connection import PostgresConnection
from tasks.postgres.wal_position import parse_lsn
from tasks.secret import Reference

LATEST = "latest"


def _known_backup(name: str) -> str:
    if name != LATEST and begun(name) is None:
        raise ValueError(f"{name!r} is no backup's name: give `latest`, or such as 20261121T030000.000000Z-42")
    return name


def _new_place(target: str) -> str:
    if is_database(target):
        return target
    if not target.startswith("/"):
        raise ValueError("the target is an absolute path, or the URL of a database (postgresql://..., mysql://...)")
    if name_of(target.rstrip("/")) in {"", ".", ".."}:
        raise ValueError(f"{target} does not end in the name of a new file or folder")
    check_url(target)
    return target.rstrip("/")


class BackupOpener(BaseModel):
    """What opens encrypted backups: the part that params of kinds share which read backups."""

    identity: Reference | None = Field(
        default=None,
        description="Of encrypted backups: a secret that holds an identity of age, or an SSH private key. Only members "
        "that read backups need it",
    )
    passphrase: Reference | None = Field(
        default=None, description="Of encrypted backups: a secret that holds the passphrase of the identity in them"
    )

    def keys(self, secret: Callable[[Any], str]) -> BackupKeys | None:
        """Return the keys that the params name, None if they name none. Raises `BadIdentity`, `MissingSecret`."""
        passphrase = None if self.passphrase is None else secret(self.passphrase)
        if self.identity is None:
            return None if passphrase is None else BackupKeys(passphrase=passphrase)
        return BackupKeys(Identities.of_text(secret(self.identity), "the param identity", passphrase), passphrase)


class StoredPlace(BaseModel):
    """A folder in which a task keeps backups or a log."""

    model_config = ConfigDict(extra="forbid")

    url: DestinationUrl = Field(
        description="DESTINATION/TASK, as a path or an fsspec URL", examples=["s3://backups/rota/orders"]
    )
    options: dict[str, Reference | str | int | bool | None] = Field(
        default={}, description="fsspec's options for the URL; secrets are given as references"
    )

    @model_validator(mode="after")
    def _known_options(self) -> "StoredPlace":
        check_place(self.url, self.options)
        return self


class RestoreParams(BackupOpener):
    """Which backup to restore, and where to."""

    model_config = ConfigDict(extra="forbid")

    backups: StoredPlace = Field(description="The folder of the task's backups")
    copies: list[StoredPlace] = Field(
        default=[],
        max_length=8,
        description="Further folders of the same backups: the first place that has the backup whole is read, in this "
        "order, and another one if it fails",
    )
    backup: Annotated[str, StringConstraints(max_length=64), AfterValidator(_known_backup)] = Field(
        default=LATEST, description="The name of the backup, which is the last part of its URL; or `latest`"
    )
    target: Annotated[str, StringConstraints(max_length=4096), AfterValidator(_new_place)] = Field(
        description="Where to: a path at which nothing is yet, the URL of an empty PostgreSQL database, or that of a "
        "MariaDB server, which gets the backup's databases; with a database's name, it gets one database of that name",
        examples=["/srv/restored/orders", "postgresql://restorer@db.internal/orders_restored"],
    )
    password: Reference | None = Field(default=None, description="The password of the database that is the target")
    tablespaces: dict[str, Annotated[str, StringConstraints(max_length=4096, pattern=r"^/[^\x00]*$")]] = Field(
        default={},
        description="Of a physical backup: new paths for its tablespaces, by their names; nothing is there yet",
        examples=[{"history": "/srv/restored/history"}],
    )
    wal: StoredPlace | None = Field(
        default=None, description="Of a physical backup: the folder of the log that a task of kind `wal` keeps"
    )
    to_time: WrittenTime | None = Field(
        default=None, description="With `wal`: restore to this time; by default to the latest moment"
    )
    to_lsn: str | None = Field(default=None, description="With `wal`: restore to this LSN", examples=["16/B374D848"])
    to_timeline: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="With `wal`: the timeline to follow; null: the newest"
    )

    database: str | None = Field(
        default=None, description="Of a backup of several databases, the name of the one to restore; null: all"
    )

    table: str | None = Field(
        default=None,
        pattern=r"^[^.]+\.[^.]+$",
        description="Of a PostgreSQL database: the only table to restore",
        examples=["public.line"],
    )

    @model_validator(mode="after")
    def _one_moment(self) -> "RestoreParams":
        if any(each is not None for each in (self.to_time, self.to_lsn, self.to_timeline)) and self.wal is None:
            raise ValueError("to_time, to_lsn and to_timeline need `wal`, the archive of the log that leads there")
        if self.to_time is not None and self.to_lsn is not None:
            raise ValueError("give to_time or to_lsn, not both")
        if self.wal is not None and self.backup != LATEST:
            raise ValueError("with `wal`, the backup is chosen by the moment: leave `backup` out")
        if self.wal is not None and (self.database, self.table) != (None, None):
            raise ValueError("a server's files are restored as a whole: leave `database` and `table` out")
        if self.to_lsn is not None:
            parse_lsn(self.to_lsn)
        return self

    @model_validator(mode="after")
    def _password_of_a_database(self) -> "RestoreParams":
        if self.password is not None and not is_database(self.target):
            raise ValueError("a password is only for a target that is a database")
        if is_database(self.target):
            self.server()  # raises ValueError if the URL is not valid
        return self

    def server(self) -> PostgresConnection | MariadbConnection:
        """Return how to reach the target. Raises `ValueError` if the target is a path, or no valid URL."""
        given: dict[str, Any] = {"url": self.target, "password": self.password}
        if self.target.startswith(mariadb_url.PREFIXES):
            return MariadbConnection.model_validate(given)
        return PostgresConnection.model_validate(given)
