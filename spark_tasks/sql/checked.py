"""Texts in Spark's SQL: parsed once, checked, and the tree that was checked is what Spark is given.

Nothing is analysed before it is checked: while it analyses a query, Spark carries out parts of it.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from spark_tasks.sql.judging import SqlRefused, check_analysed, check_condition, check_query
from spark_tasks.sql.reading import classes, read

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def query(spark: "SparkSession", sql: str, views: Collection[str]) -> "DataFrame":
    """The rows of a query that reads the session's `views`. Nothing is read yet.

    Raises `SqlRefused` for what is not allowed, and pyspark's `ParseException` and `AnalysisException`.
    """
    from pyspark.sql import DataFrame

    plan = _parsed(spark, "parsePlan", sql)
    check_query(read(spark, plan), views)
    rows: DataFrame = DataFrame(_scala_object(spark, "Dataset").ofRows(spark._jsparkSession, plan), spark)
    check_rows(rows)
    return rows


def condition(spark: "SparkSession", sql: str) -> "Column":
    """An expression about the columns of a row. `check_rows` looks at the rows that it is used in.

    Raises `SqlRefused` for what is not allowed, and pyspark's `ParseException`.
    """
    from pyspark.sql import Column

    expression = _parsed(spark, "parseExpression", sql)
    check_condition(read(spark, expression))
    column: Column = Column(_scala_object(spark, "ExpressionUtils").column(expression))
    return column


def check_rows(rows: "DataFrame") -> None:
    """Raise `SqlRefused` for what Spark has made of columns' names in analysed rows."""
    check_analysed(classes(rows.sparkSession, rows._jdf.queryExecution().analyzed()))


def _parsed(spark: "SparkSession", method: str, sql: str) -> Any:
    from py4j.protocol import Py4JJavaError

    parser: Any = spark._jsparkSession.sessionState().sqlParser()
    try:
        return getattr(parser, method)(sql)
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() != "java.lang.StackOverflowError":
            raise
        raise SqlRefused("it is nested too deeply for Spark: make it of several parts, by WITH") from None


def _scala_object(spark: "SparkSession", name: str) -> Any:
    jvm: Any = spark._jvm
    return getattr(getattr(jvm.org.apache.spark.sql.classic, f"{name}$"), "MODULE$")
