"""What the params of sinks in a folder or a bucket share."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from spark_tasks.files.listing import is_local, local_path
from spark_tasks.storage.url import table_url
from tasks.access import check_options
from tasks.reach import Reach, remote
from tasks.secret import Reference

StoredUrl = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(table_url)]


class StoredSink(BaseModel):
    """A sink in a folder, or below a prefix in a bucket."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    options: dict[str, Reference | str | int | bool | None] = Field(
        default={},
        description="fsspec's options for s3://; secrets are given as references",
        examples=[{"key": {"env": "S3_KEY"}, "secret": {"secret": "s3_secret"}, "endpoint_url": "https://s3.internal"}],
    )
    shared: bool = Field(
        default=False, description="All members that may run the task see the same folder at this path"
    )

    @property
    def at(self) -> str:
        """The path or the URL of the folder."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _known_options(self) -> "StoredSink":
        check_options(self.at, self.options)
        return self

    @property
    def on_own_disk(self) -> bool:
        """Whether the rows go to the member's own disk, where other members do not see them."""
        return is_local(self.at) and not self.shared

    def reach(self, field: str) -> Reach:
        """What `field` of the params names."""
        if is_local(self.at):
            return Reach(field, "destination", self.at, local_path(self.at))
        return remote(field, "destination", self.at, self.options)
