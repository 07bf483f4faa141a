"""The lists of functions and classes against the Spark that is installed: what is new there is to be looked at."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from spark_tasks.spark.session import spark_session
from spark_tasks.sql import functions, nodes
from testkit.spark import parser_classes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    with spark_session("lists", tmp_path_factory.mktemp("spark")) as session:
        yield session


def _registered(spark: "SparkSession", registry: str) -> set[str]:
    jvm: Any = spark._jvm
    found = getattr(jvm.org.apache.spark.sql.catalyst.analysis, registry).builtin().listFunction()
    return {str(found.apply(number).funcName()) for number in range(found.size())}


def test_each_function_of_spark_is_in_exactly_one_list(spark: "SparkSession") -> None:
    there = _registered(spark, "FunctionRegistry")
    assert not functions.ALLOWED & functions.REFUSED.keys()
    assert sorted(there - functions.ALLOWED - functions.REFUSED.keys()) == [], "new in this Spark: look at these"
    assert sorted((functions.ALLOWED | functions.REFUSED.keys()) - there) == [], "gone from Spark"


def test_each_function_that_gives_a_table_is_in_exactly_one_list(spark: "SparkSession") -> None:
    there = _registered(spark, "TableFunctionRegistry")
    assert not functions.ALLOWED_TABLES & functions.REFUSED_TABLES.keys()
    assert there == functions.ALLOWED_TABLES | functions.REFUSED_TABLES.keys()


def test_each_node_that_the_parser_can_make_is_in_exactly_one_list() -> None:
    there = parser_classes.nodes()
    allowed = nodes.PLANS | nodes.EXPRESSIONS
    assert not nodes.PLANS & nodes.EXPRESSIONS
    names = {name.rpartition(".")[2].removesuffix("$") for name in allowed}
    assert not names & nodes.REFUSED.keys()
    companions = {name for name in there if name.endswith("$") and name.removesuffix("$") in there}
    new = {name for name in there - allowed - companions if name.rpartition(".")[2].strip("$") not in nodes.REFUSED}
    assert sorted(new) == [], "new in this Spark: look at these"
    assert nodes.SUBQUERIES <= nodes.EXPRESSIONS


def test_what_spark_makes_of_a_column_that_is_not_there_is_in_a_list(spark: "SparkSession") -> None:
    jvm: Any = spark._jvm
    resolution = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.analysis.LiteralFunctionResolution$")
    field = resolution.getDeclaredField("literalFunctions")
    field.setAccessible(True)
    found = field.get(None)
    there = {str(found.apply(number)._1()): found.apply(number)._2().apply() for number in range(found.size())}
    unlisted = {
        name: str(made.getClass().getSimpleName())
        for name, made in there.items()
        if name not in functions.ALLOWED and name != "grouping__id"
    }
    assert unlisted == dict.fromkeys(("current_user", "user", "session_user"), "CurrentUser")
    assert set(unlisted.values()) == functions.CURRENT.keys()


def test_functions_that_take_a_type_as_text_are_known(spark: "SparkSession") -> None:
    """The classes that have Spark read a type, of which `from_xml` is refused; those that write one make it in SQL."""
    readers = parser_classes.naming("evalTypeExpr") | parser_classes.naming("evalSchemaExpr")
    assert readers == {
        "org.apache.spark.sql.catalyst.expressions.CsvToStructs",
        "org.apache.spark.sql.catalyst.expressions.ExprUtils",
        "org.apache.spark.sql.catalyst.expressions.ExprUtils$",
        "org.apache.spark.sql.catalyst.expressions.JsonToStructs",
        "org.apache.spark.sql.catalyst.expressions.XmlToStructs",
        "org.apache.spark.sql.catalyst.expressions.variant.VariantGetExpressionBuilderBase",
    }
    jvm: Any = spark._jvm
    registry = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    found = registry.listFunction()
    classes = {
        str(name.funcName()): str(registry.lookupFunction(name).get().getClassName())
        for name in (found.apply(number) for number in range(found.size()))
    }
    above = {name: parser_classes.above(one) | parser_classes.above(f"{one}$") for name, one in classes.items()}
    taking = {name for name, all_of in above.items() if all_of & readers}
    assert taking - {"from_xml"} == functions.TYPE_TEXTS.keys()
    made = spark.sql("SELECT schema_of_json('{\"a\": 1}') AS a, schema_of_csv('1,a') AS b").first()
    assert made == ("STRUCT<a: BIGINT>", "STRUCT<_c0: INT, _c1: STRING>"), "what TYPE_MAKERS give is a type in SQL"


def test_spark_itself_reads_a_type_in_json(spark: "SparkSession") -> None:
    """Which is why the checker looks at such arguments: a type in JSON names classes."""
    fields = """'{"type":"struct","fields":[{"name":"a","nullable":true,"metadata":{},"type":"long"}]}'"""
    assert spark.sql(f"SELECT from_json('{{}}', {fields}) AS x").first() is not None
