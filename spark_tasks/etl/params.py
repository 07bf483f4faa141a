"""The params of the kind `etl`."""

from pydantic import BaseModel, ConfigDict, Field, model_validator

from spark_tasks.sinks.params import Sink
from spark_tasks.sources.params import Incremental, Source, check_suits
from spark_tasks.transform.params import Transform, ViewName


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
    def _suits_the_sources(self) -> "EtlParams":
        check_suits(self.source, self.incremental)
        for name, lookup in self.lookups.items():
            try:
                check_suits(lookup, None)
            except ValueError as error:
                raise ValueError(f"lookups.{name}: {error}") from None
        return self

    @model_validator(mode="after")
    def _whole_for_whole(self) -> "EtlParams":
        if self.incremental is not None and self.sink.replaces:
            raise ValueError("`mode: replace` is for a source that is read whole: leave `incremental` out")
        if self.poll_s is not None and self.incremental is None:
            raise ValueError("`poll_s` needs `incremental`: without it each run reads its source whole")
        return self
