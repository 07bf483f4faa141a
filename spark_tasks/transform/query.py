"""Whether the SQL of a transform is a query. Spark carries out statements that change or run something as well."""

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BEGINS: Final = re.compile(
    r"(?:[\s(]|--[^\n]*(?:\n|$)|/\*(?:(?!/\*|\*/).)*\*/)*+(?:(?:select|with|from|values|table)\b|/\*)",
    re.IGNORECASE | re.DOTALL,
)
"""The beginning of a query, after comments. After a comment inside a comment, what begins is left to `acts`."""

_LOGICAL: Final = "org.apache.spark.sql.catalyst.plans.logical"
_STATEMENTS: Final = (f"{_LOGICAL}.Command", f"{_LOGICAL}.ParsedStatement")
_ACTING: Final = {
    "CompoundBody": "a script",
    "ExecuteImmediateQuery": "EXECUTE IMMEDIATE",  # in older versions of Spark
    "UnresolvedExecuteImmediate": "EXECUTE IMMEDIATE",
    "InsertIntoDir": "INSERT",
    "ScriptTransformation": "TRANSFORM ... USING, which runs a program",
}
"""Nodes of a parsed query that do more than read, though they are no statements to Spark."""


def check_text(sql: str) -> str:
    r"""The text, as far as that can be seen, of a query. Raises `ValueError`.

    >>> check_text("-- by day\nWITH a AS (SELECT 1) SELECT * FROM a")[:10]
    '-- by day\n'
    >>> check_text("SELEC * FROM source")
    Traceback (most recent call last):
    ValueError: it must be a query, which begins with SELECT, WITH, FROM, VALUES or TABLE
    """
    if _BEGINS.match(sql) is None:
        raise ValueError("it must be a query, which begins with SELECT, WITH, FROM, VALUES or TABLE")
    return sql


def acts(spark: "SparkSession", sql: str) -> str | None:
    """What the text does beside reading views; None for a query. Raises `ParseException`. Nothing is carried out."""
    jvm: Any = spark._jvm
    statements = [jvm.java.lang.Class.forName(name) for name in _STATEMENTS]
    nodes = [spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)]
    while nodes:
        node = nodes.pop()
        kind = str(node.getClass().getSimpleName())
        if kind in _ACTING:
            return _ACTING[kind]
        if any(one.isInstance(node) for one in statements):
            return kind
        for more in (node.children(), node.innerChildren(), node.subqueries()):
            nodes += [more.apply(number) for number in range(more.size())]
    return None
