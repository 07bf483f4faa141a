"""Of several rows with the same keys, the last."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_tasks.sql.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PLACE = "_rota_place"


def last_rows(rows: "DataFrame", keys: Sequence[str], order: "Sequence[Column]", *, ties: bool) -> "DataFrame":
    """The first row in `order` for each value of `keys`; with `ties` all that are first."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    by = Window.partitionBy(*(f.col(quoted(key)) for key in keys)).orderBy(*order)
    place = f.rank() if ties else f.row_number()
    return rows.withColumn(_PLACE, place.over(by)).filter(f.col(_PLACE) == 1).drop(_PLACE)
