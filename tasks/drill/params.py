"""The params of the kind `drill`: which backups to restore on trial, and what must hold of them then."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from tasks.restore.params import BackupOpener, StoredPlace


class DrillCheck(BaseModel):
    """A query that a restored database must answer as expected. It runs read-only, and as no superuser."""

    model_config = ConfigDict(extra="forbid")

    sql: Annotated[str, StringConstraints(strip_whitespace=True, pattern=r"^[^\\\x00][^\x00]*$")] = Field(
        min_length=1, max_length=20_000, description="The query", examples=["SELECT count(*) > 1000 FROM line"]
    )
    expect: bool | int | str = Field(
        description="The result as psql -At prints it: columns separated by `|`, rows by line breaks. true and false "
        "stand for a boolean",
        examples=[True, 42],
    )
    database: str | None = Field(
        default=None,
        min_length=1,
        max_length=63,
        description="Of a backup of a whole server: the database; null: each that was dumped, or `postgres`",
    )


class DrillParams(BackupOpener):
    """Which backups to restore on trial, and what must hold of them then."""

    model_config = ConfigDict(extra="forbid")

    backups: StoredPlace = Field(description="The folder of the task's backups; proofs are written there, too")
    copies: list[StoredPlace] = Field(
        default=[],
        max_length=8,
        description="Further folders of the same backups, such as `copies` of the backup's task. What is proven is "
        "written there, too",
    )
    read_from: Literal["first", "drawn"] = Field(
        default="first",
        description="Of several folders, which one is read: the first that can be read and has the backup whole, or "
        "one drawn at random for each run, so that copies are proven, too",
    )
    pick: Literal["latest", "drawn"] = Field(
        default="latest", description="Which backup: the newest one, or one drawn at random for each run"
    )
    compare: Literal["rows", "content"] = Field(
        default="rows",
        description="What to compare with what the dump saw: how many rows each table has, or a hash of their content, "
        "too, if the backup was made with `fingerprint: content`",
    )
    checks: list[DrillCheck] = Field(
        default=[], max_length=100, description="Queries that the restored database must answer as expected"
    )
    wal: StoredPlace | None = Field(
        default=None,
        description="Of physical backups: the folder of the log that a task of kind `wal` keeps. The backup is then "
        "recovered to the latest moment. null: to the end of the backup itself",
    )
    max_bytes: int | None = Field(
        default=None,
        ge=1 << 20,
        description="The most bytes that the restored copy may take in the scratch folder; null: what is free there",
        examples=[50_000_000_000],
    )
    max_s: float = Field(
        default=6 * 3600, gt=0, le=7 * 86_400, description="The most that a drill may take, in seconds"
    )
