"""The source, the lookups and the sink that an ETL task names, made for one attempt."""

from typing import TYPE_CHECKING

from spark_tasks.etl.params import EtlParams
from spark_tasks.sinks.params import reaches as sink_reaches
from spark_tasks.sources.params import SourceParams
from spark_tasks.transform.params import SOURCE
from tasks.kind import Context
from tasks.reach import Reach

if TYPE_CHECKING:
    from spark_tasks.sinks.port import Sink
    from spark_tasks.sources.port import RowSource


def named_sources(params: EtlParams) -> dict[str, tuple[str, SourceParams]]:
    """The source and the lookups: by the name of the view, the field of the params and what it holds."""
    lookups = {name: (f"lookups.{name}", one) for name, one in params.lookups.items()}
    return {SOURCE: ("source", params.source), **lookups}


def reaches(params: EtlParams) -> list[Reach]:
    """The servers and files that the params name."""
    named = [one.reach(field) for field, one in named_sources(params).values()]
    return [*named, *sink_reaches(params.sink, "sink")]


def on_own_disk(params: EtlParams) -> list[str]:
    """The params that name data on the member's own disk."""
    fields = [field for field, one in named_sources(params).values() if one.on_own_disk]
    if params.sink.on_own_disk:
        fields.append("sink")
    return list(dict.fromkeys(field.partition(".")[0] for field in fields))


def sources_of(ctx: Context[EtlParams], whole: bool = True) -> "dict[str, RowSource]":
    """The sources by the names of their views; `whole`: all their rows will be wanted, not only the first.

    Raises `AccessRefused` and `MissingSecret`.
    """
    from spark_tasks.sources.opening import SourceOpener

    opener = SourceOpener(ctx, whole)
    return {
        view: opener.open(view, one, ctx.params.incremental if view == SOURCE else None)
        for view, (_, one) in named_sources(ctx.params).items()
    }


def sink_of(ctx: Context[EtlParams]) -> "Sink":
    """The sink. Raises `AccessRefused`, `MissingSecret`, and what the sinks name."""
    from spark_tasks.sinks.opening import open_sink

    return open_sink(ctx, ctx.params.sink)
