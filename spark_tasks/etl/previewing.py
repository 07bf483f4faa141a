"""The rows that an ETL task would write, without writing them: no claim, no checkpoint, and no access to the sink."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from spark_tasks.etl import parts
from spark_tasks.etl.errors import failure
from spark_tasks.etl.params import EtlParams
from spark_tasks.etl.transform import SOURCE, transformed
from spark_tasks.postgres import carried
from spark_tasks.spark.causes import is_sparks
from spark_tasks.spark.sample import nothing, sample
from tasks.kind import Context

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def preview_transformed(
    ctx: Context[EtlParams], most: int, start_spark: "Callable[[], AbstractContextManager[SparkSession]]"
) -> dict[str, Any]:
    """Return the first `most` rows that the transform produces, from the beginning of the source (`sample.RESULT`).

    Raises the errors of sources and transforms that `kind.Etl.run` names.
    """
    sources = parts.sources_of(ctx, whole=False)
    try:
        plans = {view: source.plan(None) for view, source in sources.items()}
        if plans[SOURCE] is None:
            return nothing()
        with start_spark() as spark:
            views = {view: sources[view].load(spark, plan) for view, plan in plans.items() if plan is not None}
            source = views.pop(SOURCE)
            rows = carried.as_people_see_them(transformed(ctx.params.transform, source, views))
            return sample(rows, most) | {"columns": _columns(rows)}
    except Exception as error:
        if not is_sparks(error):
            raise
        raise failure(error) from None
    finally:
        for source_of_view in sources.values():
            source_of_view.release()


def _columns(rows: "DataFrame") -> list[dict[str, str]]:
    """Return the columns with their types: Spark's, or PostgreSQL's own if rows go from PostgreSQL to PostgreSQL
    untransformed.
    """
    fields = rows.schema.fields
    return [{"name": each.name, "type": carried.type_of(each) or each.dataType.simpleString()} for each in fields]
