"""The params of the kind `etl`."""

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict, Field, model_validator

from spark_tasks.contracts.incremental import Incremental
from spark_tasks.etl.endpoints import Sink, Source, check_suits
from spark_tasks.etl.transform import Transform, ViewName
from tasks.definition.field_errors import raise_all


class EtlParams(BaseModel):
    """Where rows come from, what is made of them, and where they go."""

    model_config = ConfigDict(extra="forbid")

    source: Source = Field(description="Where the rows come from")
    incremental: Incremental | None = Field(
        default=None, description="Read only what is new since the last batch; null: each run reads the source whole"
    )
    poll_s: float | None = Field(
        default=None,
        ge=0.1,
        le=3600,
        description="A run does not end when nothing is new, but asks the source again after this long, in the same "
        "Spark session: a subscription. For tasks with `schedule: {continuous: true}`; null: a run ends",
    )
    lookups: dict[ViewName, Source] = Field(
        default={}, max_length=32, description="More sources, which are read whole for each batch, as views by name"
    )
    transform: Transform | None = Field(default=None, description="What is made of the rows; null: they stay the same")
    sink: Sink = Field(description="Where the rows go")

    @model_validator(mode="after")
    def _check_together(self) -> "EtlParams":
        raise_all("EtlParams", self._wrong_together())
        return self

    def _wrong_together(self) -> Iterator[str]:
        lookups = ((f"lookups.{name}: ", one, None) for name, one in self.lookups.items())
        for within, source, how in [("", self.source, self.incremental), *lookups]:
            try:
                check_suits(source, how)
            except ValueError as error:
                yield f"{within}{error}"
        if self.incremental is not None and self.sink.replaces:
            yield "`mode: replace` is for a source that is read whole: leave `incremental` out"
        if self.poll_s is not None and self.incremental is None:
            yield "`poll_s` needs `incremental`: without it each run reads its source whole"
