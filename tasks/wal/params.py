"""The params of the kind `wal`: the servers whose log to archive, and the destination."""

import hashlib
import re
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tasks.backup.encryption import EncryptionParams
from tasks.backup.params import DestinationUrl, check_lock
from tasks.definition.spec import Name
from tasks.places.place import check_place
from tasks.postgres.connection import PostgresConnection
from tasks.secret import Reference

_SLOT: Final = re.compile(r"[^a-z0-9_]+")


class WalParams(BaseModel):
    """The servers whose log to archive, and where to keep it."""

    model_config = ConfigDict(extra="forbid")

    servers: Annotated[list[PostgresConnection], Field(min_length=1, max_length=8)] = Field(
        description="The servers of one database system: the primary and its standbys, in any order. The log is read "
        "from the one that is the primary. Each needs a role with REPLICATION",
        examples=[[{"url": "postgresql://archiver@db.internal/postgres", "password": {"secret": "archiver"}}]],
    )
    destination: DestinationUrl = Field(
        description="The folder for the archive, as a path or an fsspec URL; it lies in DESTINATION/TASK/. It must "
        "know conditional writes: a local or network file system with hard links, or S3",
        examples=["s3://backups/rota"],
    )
    options: dict[str, Reference | str | int | bool | None] = Field(
        default={}, description="fsspec's options for the destination; secrets are given as references"
    )
    backups: Name | None = Field(
        default=None,
        description="The name of the task whose physical backups are in the same destination: log from before the "
        "oldest of them is removed. null: no log is removed",
        examples=["orders-base"],
    )
    days: int | None = Field(
        default=None,
        ge=1,
        le=36_500,
        description="With `backups`: every moment of so many days can be restored; older backups can be restored as "
        "they were made, and the log after them is removed. null: the log from the oldest backup on stays",
    )
    slot: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9_]{1,63}$",
        description="The name of the replication slot, made if it is missing; null: made from the task's name",
    )
    piece_s: float = Field(
        default=2.0,
        ge=0.2,
        le=3600,
        description="How long what has come of an unfinished segment waits before it is stored, in seconds",
    )
    level: int = Field(default=3, ge=1, le=19, description="The compression level of zstd")
    encryption: EncryptionParams | None = Field(
        default=None,
        description="Encrypt segments, pieces and history files in the format of age; null: they are not encrypted. "
        "Attempts need no identity: names, positions and checksums stay readable",
    )
    lock_days: int | None = Field(
        default=None,
        ge=1,
        le=3650,
        description="In an S3 bucket with Object Lock: nobody can change or delete what is written for this many days, "
        "not even the bucket's owner. Runs renew the locks of what a restore needs once half of the time has passed, "
        "and remove nothing: a task of kind `backup_prune` does it. null: nothing is locked",
    )
    accept_cluster: str | None = Field(
        default=None,
        max_length=64,
        description="The id of the cluster that may take over an archive which another cluster has claimed; the error "
        "that refuses it names the id",
    )
    accept_unbounded_slot: bool = Field(
        default=False,
        description="Accept a server with `max_slot_wal_keep_size` -1, which keeps log for the slot until its disk is "
        "full if the archive cannot be written for long",
    )

    @model_validator(mode="after")
    def _known_options(self) -> "WalParams":
        check_place(self.destination, self.options)
        check_lock(self.destination, self.lock_days)
        return self


def slot_of(params: WalParams, task: str) -> str:
    """Return the name of a task's replication slot.

    >>> slot_of(WalParams(servers=[{"url": "postgresql://a@b/c"}], destination="/d"), "Orders-WAL")
    'rota_orders_wal_4402b78a'
    """
    if params.slot is not None:
        return params.slot
    readable = _SLOT.sub("_", task.lower())[:40]
    return f"rota_{readable}_{hashlib.sha256(task.encode()).hexdigest()[:8]}"
