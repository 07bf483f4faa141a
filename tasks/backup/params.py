"""The params of the kind `backup`: the source and the destination; and the URL of a task's backups."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from tasks.access import check_protocol
from tasks.backup.encryption import EncryptionParams
from tasks.backup.keep import KeepRules, rules_of
from tasks.backup.manifest import Manifest, SourceType
from tasks.backup.sources import folder, physical, postgres, sqlite, stream
from tasks.backup.sources.mariadb.source import MariadbSource
from tasks.backup.sources.source import BackupSource
from tasks.places.place import check_place, check_url, local_path
from tasks.secret import Reference
from tasks.source_identity import AcceptedSources

KEEPS_NOTHING: Final = {
    "memory": "its content is lost when the run ends",
    **dict.fromkeys(("http", "https"), "it is read-only"),
}
"""The file systems that a task may name as a source but not as the destination of a backup, and why."""


def allowed_destination(url: str) -> str:
    """Return `url`, or raise `ValueError` if it cannot be a destination. Checks the text only, and touches no file."""
    if (protocol := check_protocol(url)) in KEEPS_NOTHING:
        raise ValueError(
            f"{protocol}:// cannot keep a backup ({KEEPS_NOTHING[protocol]}): give a folder or an s3:// URL"
        )
    check_url(url)
    return url


DestinationUrl = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(allowed_destination)]
"""A URL that allows a destination by its text."""

INSIDE: Final = "the destination is inside the folder to back up"

PlaceOptions = dict[str, Reference | str | int | bool | None]
"""fsspec's options for a destination, with references to secrets."""

Keep = Annotated[int, Field(ge=1, le=10_000)] | KeepRules | None
"""How many backups to keep, or rules; None: all."""

Source = Annotated[
    postgres.PostgresSource
    | physical.PhysicalSource
    | MariadbSource
    | sqlite.SqliteSource
    | folder.FolderSource
    | stream.StreamSource,
    Field(discriminator="type"),
]


_CLASSES: Final[Mapping[SourceType, type[BackupSource]]] = {
    "postgres": postgres.PostgresSource,
    "postgres_physical": physical.PhysicalSource,
    "mariadb": MariadbSource,
    "sqlite": sqlite.SqliteSource,
    "folder": folder.FolderSource,
    "stream": stream.StreamSource,
}


def source_class(manifest: Manifest) -> type[BackupSource]:
    """Return the class that implements the type of source of a backup."""
    return _CLASSES[manifest.source_type]


class DestinationParams(Protocol):
    """What the first destination and further ones have in common."""

    @property
    def destination(self) -> str:
        """The folder, as a path or an fsspec URL."""

    @property
    def options(self) -> PlaceOptions:
        """fsspec's options for it."""

    @property
    def lock_days(self) -> int | None:
        """For how many days files are locked; None: they are not."""

    @property
    def prune(self) -> Literal["here", "elsewhere"]:
        """Whether a run removes old backups here."""


_LOCK_DAYS: Final = (
    "In an S3 bucket with Object Lock: nobody can change or delete what is written for this many days, not even the "
    "bucket's owner. Each run renews the locks of backups that stay. null: nothing is locked"
)
_PRUNE: Final = (
    "elsewhere: runs remove nothing here, so that their key may be one that cannot delete; a task of kind "
    "`backup_prune` does it"
)


def check_lock(destination: str, lock_days: int | None) -> None:
    """Raise `ValueError` if files are to be locked at a destination that cannot do that, by its URL."""
    if lock_days is not None and check_protocol(destination) != "s3":
        raise ValueError(f"lock_days: only s3:// can lock files, not {destination}")


class CopyParams(BaseModel):
    """A further destination, which gets a copy of each backup. If it fails, the run succeeds, and owes it the copy."""

    model_config = ConfigDict(extra="forbid")

    destination: DestinationUrl = Field(
        description="The folder for the copies, as a path or an fsspec URL", examples=["s3://elsewhere/rota"]
    )
    options: PlaceOptions = Field(
        default={}, description="fsspec's options for this destination; secrets are given as references"
    )
    keep: Keep = Field(default=None, description="How many backups to keep here, or rules; null: all")
    when: Literal["now", "later"] = Field(
        default="now",
        alias="copy",
        description="now: written at the same time as the first destination; later: copied from there afterwards",
    )
    lock_days: int | None = Field(default=None, ge=1, le=3650, description=_LOCK_DAYS)
    prune: Literal["here", "elsewhere"] = Field(default="here", description=_PRUNE)

    @model_validator(mode="after")
    def _known_options(self) -> "CopyParams":
        check_place(self.destination, self.options)
        check_lock(self.destination, self.lock_days)
        return self


class BackupParams(BaseModel):
    """What to back up, and where to keep the backups."""

    model_config = ConfigDict(extra="forbid")

    source: Source = Field(
        description="What to back up: a folder, an SQLite file, databases of PostgreSQL or MariaDB, a whole PostgreSQL "
        "server, or a program's output"
    )
    destination: DestinationUrl = Field(
        description="The folder for the backups, as a path or an fsspec URL; each backup is one folder in it, "
        "DESTINATION/TASK/CREATED-TOKEN/",
        examples=["s3://backups/rota", "/mnt/backups"],
    )
    options: PlaceOptions = Field(
        default={},
        description="fsspec's options for the destination; secrets are given as references",
        examples=[{"key": {"env": "S3_KEY"}, "secret": {"secret": "s3_secret"}, "endpoint_url": "https://s3.internal"}],
    )
    level: int = Field(default=3, ge=1, le=19, description="The compression level of zstd")
    keep: Keep = Field(default=None, description="How many backups to keep, or rules; null: all")
    accept_source: AcceptedSources = Field(
        default=[],
        description="Ids of sources that hold the same data as before, moved or restored; the error that refuses a "
        "source names its id. One id, or a list",
    )
    encryption: EncryptionParams | None = Field(
        default=None, description="Encrypt the backups in the format of age; null: they are not encrypted"
    )
    copies: list[CopyParams] = Field(
        default=[],
        max_length=8,
        description="Further destinations, each with its own `keep`. The first, `destination`, must succeed; what "
        "another one lacks is owed to it, and the next run copies it",
    )
    bytes_per_s: int | None = Field(
        default=None, ge=1, description="The most content that a run reads, in bytes a second; null: no limit"
    )
    lock_days: int | None = Field(default=None, ge=1, le=3650, description=_LOCK_DAYS)
    prune: Literal["here", "elsewhere"] = Field(default="here", description=_PRUNE)

    @model_validator(mode="after")
    def _known_options(self) -> "BackupParams":
        check_place(self.destination, self.options)
        check_lock(self.destination, self.lock_days)
        return self

    @model_validator(mode="after")
    def _not_into_itself(self) -> "BackupParams":
        # Compare the paths as text, because a node checks params on its event loop. The attempt follows links.
        if isinstance(self.source, folder.FolderSource):
            outer = local_path(self.source.path)
            for url in (self.destination, *(copy.destination for copy in self.copies)):
                inner = local_path(url)
                if inner is not None and outer is not None and inner.is_relative_to(outer):
                    raise ValueError(INSIDE)
        return self

    @model_validator(mode="after")
    def _each_destination_once(self) -> "BackupParams":
        seen: list[str] = []
        for number, url in enumerate((self.destination, *(copy.destination for copy in self.copies))):
            local = local_path(url)
            known = url.rstrip("/") if local is None else str(local)
            if known in seen:
                raise ValueError(f"copies.{number - 1}.destination: {url} is a destination already: name another one")
            seen.append(known)
        return self


def place_url(destination: str, task: str) -> str:
    """Return the URL of the folder of a task's backups.

    >>> place_url("s3://backups/rota/", "orders")
    's3://backups/rota/orders'
    """
    return f"{destination.rstrip('/')}/{task}"


_KEEP: Final = TypeAdapter[int | KeepRules | None](int | KeepRules | None)


class _Destination(BaseModel):
    destination: str
    options: PlaceOptions = {}


def keep_of(params: Mapping[str, Any]) -> KeepRules | None:
    """Return the rules by which a task keeps backups; None: keep all. The other params need not be valid.

    Raises `ValidationError`.
    """
    return rules_of(_KEEP.validate_python(params.get("keep")))


class BackupLocation(NamedTuple):
    """One destination of a task's backups, as its definition names it."""

    #: The URL of the task's folder there.
    url: str
    #: fsspec's options for it, with references to secrets not resolved.
    options: dict[str, Any]


def backup_location(params: Mapping[str, Any], task: str) -> BackupLocation:
    """Return the first destination of a task's backups, with references to secrets not resolved.

    The other params need not be valid, so that backups made under older rules can be restored. Raises
    `ValidationError`.
    """
    found = _Destination.model_validate(dict(params))
    return BackupLocation(place_url(found.destination, task), dict(found.options))


def backup_locations(params: Mapping[str, Any], task: str) -> list[BackupLocation]:
    """Return all destinations of a task's backups, the first one first. Otherwise like `backup_location`."""
    copies = params.get("copies") or []
    return [backup_location(each, task) for each in (params, *copies)]
