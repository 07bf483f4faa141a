"""Parses SQL texts with Spark once, checks the parsed trees, and gives these same trees to Spark.

Each tree is checked before Spark analyses it, because Spark executes parts of a query while it analyses it.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from spark_tasks.sql.judging import SqlRefused, check_analysed, check_condition, check_query
from spark_tasks.sql.reading import classes, read_parts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def query(spark: "SparkSession", sql: str, views: Collection[str]) -> "DataFrame":
    """Return the rows of a query that reads the session's `views`, without reading any yet.

    Raises `SqlRefused` for a query that is not allowed, and pyspark's `ParseException` and `AnalysisException`.
    """
    from pyspark.sql import DataFrame

    with not_too_deep():
        plan = _parser(spark).parsePlan(sql)
        check_query(read_parts(spark, plan), views)
        rows: DataFrame = DataFrame(_scala_object(spark, "Dataset").ofRows(spark._jsparkSession, plan), spark)
        check_rows(rows)
    return rows


def condition(spark: "SparkSession", sql: str) -> "Column":
    """Return an expression about the columns of a row. Call `check_rows` with the rows in which it is used.

    Raises `SqlRefused` for an expression that is not allowed, and pyspark's `ParseException`.
    """
    from pyspark.sql import Column

    with not_too_deep():
        expression = _parser(spark).parseExpression(sql)
        check_condition(read_parts(spark, expression))
        column: Column = Column(_scala_object(spark, "ExpressionUtils").column(expression))
    return column


def check_rows(rows: "DataFrame") -> None:
    """Raise `SqlRefused` if Spark, when it analysed the rows, took a column's name for a refused function."""
    check_analysed(classes(rows.sparkSession, rows._jdf.queryExecution().analyzed()))


@contextmanager
def not_too_deep() -> Iterator[None]:
    """Raise `SqlRefused` if parsing a tree, or working with it, has overflowed the stack of Spark's JVM."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        if "java.lang.StackOverflowError" not in str(error):
            raise
        raise SqlRefused("it is nested too deeply for Spark: make it of several parts") from None


def _parser(spark: "SparkSession") -> Any:
    return spark._jsparkSession.sessionState().sqlParser()


def _scala_object(spark: "SparkSession", name: str) -> Any:
    jvm: Any = spark._jvm
    return getattr(getattr(jvm.org.apache.spark.sql.classic, f"{name}$"), "MODULE$")
