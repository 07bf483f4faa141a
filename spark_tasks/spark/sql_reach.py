"""Keeps SQL in a task's params to its views: it reaches neither files nor methods of the JVM."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SQL_SETTINGS: Final[Mapping[str, str]] = {
    # A file is no table: what a task may read, its params say.
    "spark.sql.runSQLOnFiles": "false",
    # `${env:X}` and `${system:X}` are text, and not what the JVM has by that name.
    "spark.sql.variable.substitute": "false",
    # The parser evaluates nothing: what it has parsed is checked first (`spark_tasks.sql`).
    "spark.sql.parser.eagerEvalOfUnresolvedInlineTable": "false",
}
"""The settings of a session that is given SQL of a task's params."""

_REFLECTION: Final = ("reflect", "java_method", "try_reflect")
"""Functions that call any static method of the JVM."""


class ReflectionRemains(Exception):
    """This version of Spark keeps a function by which SQL may call any method of the JVM."""


def forget_reflection(spark: "SparkSession") -> None:
    """Take the functions out of the session that call methods of the JVM. Raises `ReflectionRemains`.

    The second layer: `spark_tasks.sql` refuses them before that, with all else that is not known.
    """
    jvm: Any = spark._jvm
    registry = spark._jsparkSession.sessionState().functionRegistry()
    some, identifier = jvm.scala.Option.apply, jvm.org.apache.spark.sql.catalyst.FunctionIdentifier
    for name in _REFLECTION:
        if spark.catalog.functionExists(name):
            qualified = identifier(name, some("builtin"), some("system"))
            if not registry.dropFunction(qualified):
                registry.dropFunction(identifier(name))  # as older versions of Spark know it
            if spark.catalog.functionExists(name):
                raise ReflectionRemains(
                    f"Spark {spark.version} keeps the function {name}: install the version in the lock file"
                )
