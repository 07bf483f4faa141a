"""A Delta table or plain files in a folder or a bucket: their params, and their place for one attempt."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from spark_tasks.storage.url import is_local, table_url, without_protocol
from tasks.access import Use, check_options
from tasks.file_guard import FileGuard
from tasks.kind import Context
from tasks.needs import CredentialGroup, credential_groups
from tasks.places.place import Place, resolved
from tasks.reach import Reach, remote
from tasks.secret import Reference

StoredUrl = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(table_url)]
INNER: Final = ("_delta_log", "_rota", "_rota/*", "*")
"""The folders in a table's folder that may be symlinks; `*` stands for the task's name."""

StoreOptions = dict[str, Reference | str | int | bool | None]


class Stored(BaseModel):
    """Data in a folder, or below a prefix in a bucket. A subclass has its URL in a field of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    inner: ClassVar[tuple[str, ...]] = INNER
    """The folders within the data that may be symlinks (`tasks.reach.Reach.inner`)."""

    use: ClassVar[Use]
    """Whether the data is read or written."""

    options: StoreOptions = Field(
        default={},
        description="fsspec's options for s3://; secrets are given as references",
        examples=[{"key": {"env": "S3_KEY"}, "secret": {"secret": "s3_secret"}, "endpoint_url": "https://s3.internal"}],
    )
    shared: bool = Field(
        default=False, description="All members that may run the task see the same folder at this path"
    )

    @property
    def url(self) -> str:
        """The path or URL of the folder or prefix, as the params give it."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _known_options(self) -> Self:
        check_options(self.url, self.options)
        return self

    @property
    def is_local(self) -> bool:
        """Whether the data is in a folder, shared or not."""
        return is_local(self.url)

    @property
    def at(self) -> str:
        """The path of the folder, or the URL of the prefix."""
        return without_protocol(self.url) if self.is_local else self.url

    @property
    def on_own_disk(self) -> bool:
        """Whether the data is on the member's own disk, where other members do not see it, or have other data."""
        return self.is_local and not self.shared

    def reach(self, field: str) -> Reach:
        """Return the folder or bucket that `field` of the params names."""
        if self.is_local:
            return Reach(field, self.use, self.url, self.at, inner=self.inner)
        return remote(field, self.use, self.url, self.options)

    @property
    def own_credentials(self) -> tuple[CredentialGroup, ...]:
        """The node user's own credential files for the storage; empty if `options` have a secret or `anon`."""
        return credential_groups(self.url, self.options)


class StoredTable(Stored):
    """A Delta table."""

    table: StoredUrl = Field(
        description="The table: a folder's absolute path, or s3://BUCKET/PREFIX",
        examples=["/data/tables/flights", "s3://lake/flights"],
    )

    @property
    def url(self) -> str:
        """The table's path or URL, as the params give it."""
        return self.table


def open_place(ctx: Context[Any], params: Stored, inner: Iterable[str]) -> Place:
    """Open the place that the params name. `inner` are folders in it to which the attempt writes, and which may be
    symlinks.

    Raises `AccessRefused`, `MissingSecret` and `BadDestination`.
    """
    if not params.is_local:
        return Place(params.at, resolved(params.options, ctx.secret), ctx.access)
    folder, guard = Path(params.at), FileGuard(ctx.access, "destination")
    for each in (folder, *(folder / name for name in inner)):
        guard.resolve(each)
    return Place(str(folder), {}, ctx.access)
