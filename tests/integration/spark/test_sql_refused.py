"""Ways out of a query and of a condition, each tried: the checker names what it refuses. With real Spark.

What a way out would do is looked for: programs and INSERT would write a file.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from spark_tasks.etl.transform import Transform, TransformUnfit, transformed
from spark_tasks.ingest.expectations import Expectation, ExpectationFailed, flagged
from spark_tasks.spark.session import spark_session
from spark_tasks.sql import checked
from spark_tasks.sql.judging import SqlRefused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

MARK: Final = "MARK"
"""Stands for a file that must not come to be."""

PROGRAM: Final = "runs a program"
RUN: Final = f"USING 'touch {MARK}' AS (x STRING)"

PROGRAMS: Final = [
    f"SELECT TRANSFORM (id) {RUN} FROM source",
    f"SELECT MAP id {RUN} FROM source",
    f"SELECT REDUCE id {RUN} FROM source",
    f"MAP id {RUN} FROM source",
    f"FROM source MAP id {RUN}",
    f"FROM source REDUCE id {RUN}",
    f"FROM (FROM source SELECT id) m REDUCE id {RUN}",
    f"SELECT * FROM source WHERE id IN (SELECT TRANSFORM (id) {RUN} FROM source)",
    f"SELECT * FROM source WHERE EXISTS (SELECT TRANSFORM (id) {RUN} FROM source)",
    f"SELECT (SELECT TRANSFORM (id) {RUN} FROM source) AS x",
    f"WITH a AS (SELECT TRANSFORM (id) {RUN} FROM source) SELECT * FROM a",
    f"WITH a AS (SELECT TRANSFORM (id) {RUN} FROM source) SELECT 1 AS unused",
    f"SELECT sum(id) OVER w FROM source WINDOW w AS (ORDER BY (SELECT TRANSFORM (id) {RUN} FROM source))",
    f"SELECT id FROM source WINDOW unused AS (ORDER BY (SELECT TRANSFORM (id) {RUN} FROM source))",
    f"SELECT * FROM source TIMESTAMP AS OF (SELECT TRANSFORM (id) {RUN} FROM source)",
    f"SELECT * FROM source VERSION AS OF 1, source FOR SYSTEM_TIME AS OF (SELECT TRANSFORM (id) {RUN} FROM source)",
    f"SELECT /*+ REPARTITION(3, (SELECT TRANSFORM (id) {RUN} FROM source)) */ * FROM source",
    f"SELECT transform(array(1), x -> (SELECT TRANSFORM (id) {RUN} FROM source)) AS y FROM source",
    f"SELECT * FROM source, LATERAL (SELECT TRANSFORM (id) {RUN} FROM source)",
    f"SELECT * FROM explode((SELECT TRANSFORM (id) {RUN} FROM source))",
    f"SELECT * FROM source LATERAL VIEW explode(array((SELECT TRANSFORM (id) {RUN} FROM source))) t AS x",
    f"SELECT id FROM source PIVOT (sum((SELECT TRANSFORM (id) {RUN} FROM source)) FOR id IN (1))",
    f"SELECT count(*) FILTER (WHERE id IN (SELECT TRANSFORM (id) {RUN} FROM source)) AS n FROM source",
    f"SELECT * FROM source JOIN source b ON source.id IN (SELECT TRANSFORM (id) {RUN} FROM source)",
    f"SELECT id FROM source GROUP BY id HAVING id IN (SELECT TRANSFORM (id) {RUN} FROM source)",
    f"SELECT * FROM source ORDER BY (SELECT TRANSFORM (id) {RUN} FROM source)",
    f"SELECT * FROM source LIMIT (SELECT TRANSFORM (id) {RUN} FROM source)",
    f"SELECT * FROM source LIMIT 1 OFFSET (SELECT TRANSFORM (id) {RUN} FROM source)",
    f"VALUES ((SELECT TRANSFORM (id) {RUN} FROM source))",
    f"SELECT 1 AS n UNION ALL SELECT TRANSFORM (id) {RUN} FROM source",
    f"SELECT * REPLACE ((SELECT TRANSFORM (id) {RUN} FROM source) AS id) FROM source",
    f"FROM source |> WHERE id IN (SELECT TRANSFORM (id) {RUN} FROM source)",
    f"FROM source |> EXTEND (SELECT TRANSFORM (id) {RUN} FROM source) AS x",
    f"FROM source |> SET id = (SELECT TRANSFORM (id) {RUN} FROM source)",
    f"FROM source |> AGGREGATE max((SELECT TRANSFORM (id) {RUN} FROM source)) AS x",
    f"SELECT TRANSFORM (id) ROW FORMAT SERDE 'x.Y' {RUN} FROM source",
]
"""Each place in which a query may be, with one that runs a program. What is refused first varies."""

JVM: Final = "('java.lang.System', 'getProperty', 'user.home')"

REFUSED: Final = {
    # Functions.
    f"SELECT reflect{JVM} AS x": "function reflect is not allowed: it calls any static method",
    f"SELECT `REFLECT`{JVM} AS x": "function reflect is not allowed",
    f"SELECT java_method{JVM} AS x": "function java_method is not allowed",
    f"SELECT try_reflect{JVM} AS x": "function try_reflect is not allowed",
    f"SELECT builtin.reflect{JVM} AS x": "function builtin.reflect is not allowed: a function is named by one name",
    f"SELECT system.builtin.reflect{JVM} AS x": "function system.builtin.reflect is not allowed",
    "SELECT system.builtin.abs(id) FROM source": "named by one name",
    f"SELECT IDENTIFIER('ref' || 'lect'){JVM} AS x": "IDENTIFIER .*write the name",
    "SELECT IDENTIFIER('id') FROM source": "IDENTIFIER .*write the name",
    "SELECT * FROM IDENTIFIER('sou' || 'rce')": "IDENTIFIER .*write the name",
    f"SELECT * FROM source LATERAL VIEW reflect{JVM} t AS x": "function reflect is not allowed",
    f"SELECT * FROM source LATERAL VIEW system.reflect{JVM} t AS x": "named by one name, without a database",
    f"SELECT transform(array(1), x -> reflect{JVM}) AS y": "function reflect",
    f"SELECT sum(id) OVER w FROM source WINDOW w AS (PARTITION BY reflect{JVM})": "function reflect",
    f"SELECT id FROM source WINDOW unused AS (PARTITION BY reflect{JVM})": "function reflect",
    f"SELECT /*+ REPARTITION(3, reflect{JVM}) */ id FROM source": "function reflect",
    f"SELECT count(*) FILTER (WHERE reflect{JVM} > '') AS n FROM source": "function reflect",
    f"SELECT listagg('x') WITHIN GROUP (ORDER BY reflect{JVM}) AS n FROM source": "function reflect",
    f"FROM source |> AGGREGATE max(reflect{JVM}) AS x GROUP BY id": "function reflect",
    "SELECT from_xml('<a/>', 'a INT', map('rowValidationXSDPath', '/etc/passwd')) AS x": "from_xml .* files and",
    "SELECT schema_of_xml('<a/>', map('rowValidationXSDPath', 'http://127.0.0.1/')) AS x": "schema_of_xml .* URLs",
    "SELECT to_xml(named_struct('a', 1)) AS x": "function to_xml",
    "SELECT xpath_string('<!DOCTYPE a [<!ENTITY e SYSTEM \"file:///etc/hosts\">]><a>&e;</a>', 'a')": "xpath_string",
    "SELECT xpath('<a/>', 'a') AS x": "function xpath is not allowed",
    "SELECT from_avro(x'00', '{}') AS x": "function from_avro",
    "SELECT to_avro(id) AS x FROM source": "function to_avro",
    "SELECT from_protobuf(x'00', 'a', '/etc/passwd') AS x": "function from_protobuf",
    "SELECT to_protobuf(struct(id), 'a', '/etc/passwd') AS x FROM source": "function to_protobuf",
    "SELECT input_file_name() AS x FROM source": "function input_file_name .* where the member keeps",
    "SELECT current_user() AS x": "function current_user .* which user",
    "SELECT session_user() AS x": "function session_user",
    "SELECT user() AS x": "function user is not allowed",
    "SELECT user AS x FROM source": "user, current_user or session_user, and no column",
    "SELECT current_user AS x": "user, current_user or session_user, and no column",
    "SELECT id FROM source WHERE EXISTS (SELECT 1 FROM source WHERE session_user > '')": "and no column of that name",
    "WITH a AS (SELECT `current_user` AS x) SELECT * FROM a": "and no column of that name",
    "SELECT current_database() AS x": "function current_database .* no catalog",
    "SELECT current_catalog() AS x": "function current_catalog",
    "SELECT version() AS x": "function version is not allowed",
    "SELECT measure(id) AS x FROM source": "function measure",
    "SELECT no_such_function(id) AS x FROM source": "function no_such_function .* not one of Spark's",
    "SELECT my.udf(id) AS x FROM source": "function my.udf",
    # A type in JSON has the JVM make an object of a class that it names.
    """SELECT from_json('{}', '{"type":"udt","class":"java.lang.Object"}') AS x""": "2 of from_json must be a type",
    """SELECT from_json('{}', ' \t{"type":"udt"}') AS x""": "argument 2 of from_json",
    """SELECT from_json('{}', '{"ty' 'pe":"udt"}') AS x""": "argument 2 of from_json",
    """SELECT from_json('{}', concat('{"type"', ':"udt"}')) AS x""": "argument 2 of from_json",
    """SELECT from_json('{}', (SELECT '{"type":"udt"}')) AS x""": "argument 2 of from_json",
    """SELECT from_json(*) AS x FROM (SELECT '{}' AS a, '{"type":"udt"}' AS b)""": "given one by one",
    """SELECT from_json('{}', schema => '{"type":"udt"}') AS x""": "given one by one",
    """SELECT from_csv('1', '{"type":"udt"}') AS x""": "argument 2 of from_csv",
    """SELECT variant_get(parse_json('1'), '$', '{"type":"udt"}') AS x""": "argument 3 of variant_get",
    """SELECT try_variant_get(parse_json('1'), '$', concat('i', 'nt')) AS x""": "argument 3 of try_variant_get",
    # Relations.
    "SELECT * FROM customers": r"`customers` cannot be found\. There are planes, source\.$",
    "SELECT * FROM text.`/etc/passwd`": r"`text`\.`/etc/passwd` cannot be found\. There are planes, source\.$",
    "TABLE parquet.`/tmp`": r"`parquet`\.`/tmp` cannot be found",
    "SELECT * FROM global_temp.source": r"`global_temp`\.`source` cannot be found",
    "SELECT * FROM spark_catalog.default.source": "cannot be found",
    "SELECT * FROM system.session.source": "cannot be found",
    "SELECT * FROM `source.source`": "cannot be found",
    "SELECT * FROM source WITH (path = '/etc/passwd')": "options of source",
    "SELECT * FROM STREAM source": "isStreaming is not allowed|it is a stream|no stream",
    "SELECT * FROM source VERSION AS OF 1": "RelationTimeTravel is not allowed: a view has no versions",
    "SELECT * FROM source TIMESTAMP AS OF '2020-01-01'": "RelationTimeTravel",
    "SELECT * FROM python_worker_logs()": "table function python_worker_logs .* logged",
    "SELECT * FROM read_files('/etc/passwd')": "table function read_files is not allowed",
    "SELECT * FROM java_method('a', 'b')": "table function java_method",
    "SELECT * FROM system.builtin.range(3)": "named by one name",
    "SELECT * FROM my_udtf(TABLE(source))": "table function my_udtf|FunctionTableSubqueryArgument",
    "SELECT * FROM explode(TABLE(SELECT 1))": "FunctionTableSubqueryArgumentExpression|table",
    "SELECT /*+ unknown(source) */ * FROM source": "hint unknown is not allowed; hints are broadcast",
    "SELECT ? AS x": "PosParameter is not allowed: there are no values",
    "SELECT :x AS x": "NamedParameter is not allowed",
    # Statements that begin as a query does, or after a comment in a comment.
    "WITH a AS (SELECT 1 AS n) INSERT INTO source SELECT * FROM a": "is a statement, and no query",
    f"FROM source INSERT OVERWRITE DIRECTORY '{MARK}' USING csv SELECT id": "INSERT writes files|is not allowed",
    f"FROM source INSERT OVERWRITE LOCAL DIRECTORY '{MARK}' USING csv SELECT id": "INSERT writes files|is not allowed",
    "FROM source INSERT INTO planes SELECT id INSERT INTO planes SELECT id": "is not allowed",
    "/* /* */ */ DROP VIEW source": "DropView.* is a statement",
    "/* /* */ */ EXECUTE IMMEDIATE 'DROP VIEW source'": "EXECUTE IMMEDIATE",
    "/* /* */ */ SET spark.sql.runSQLOnFiles=true": "SetCommand .* statement",
    "/* /* */ */ SET VAR x = 1": "SetVariable",
    "/* /* */ */ DECLARE x INT": "CreateVariable",
    "/* /* */ */ ADD JAR '/tmp/x.jar'": "AddJarsCommand",
    "/* /* */ */ CREATE TEMPORARY VIEW v USING text OPTIONS (path '/etc/passwd')": "CreateTempViewUsing",
    "/* /* */ */ CREATE TEMPORARY FUNCTION f AS 'x.Y'": "CreateFunctionCommand",
    "/* /* */ */ CREATE FUNCTION f() RETURNS INT RETURN 1": "is a statement|is not allowed",
    "/* /* */ */ CACHE TABLE source": "CacheTable",
    "/* /* */ */ EXPLAIN SELECT 1": "ExplainCommand",
    "/* /* */ */ DESCRIBE QUERY SELECT 1": "DescribeQueryCommand",
    "/* /* */ */ CALL x.y()": "Call is not allowed",
    "/* /* */ */ USE x": "is not allowed",
    "/* /* */ */ BEGIN SELECT 1; END": "CompoundBody",
}
"""Texts by what their refusal says."""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    with spark_session("refused", tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def source(spark: "SparkSession") -> "DataFrame":
    return spark.createDataFrame([(1, "a")], "id INT, s STRING")


@pytest.mark.parametrize("sql", PROGRAMS)
def test_no_query_runs_a_program_wherever_it_is_put(source: "DataFrame", tmp_path: Path, sql: str) -> None:
    mark = tmp_path / "mark"
    with pytest.raises((TransformUnfit, ValueError)):
        transformed(Transform(sql=sql.replace(MARK, str(mark))), source, {"planes": source}).collect()
    assert not mark.exists()


@pytest.mark.parametrize("sql", PROGRAMS[0:1] + PROGRAMS[4:7] + PROGRAMS[11:14])
def test_a_program_is_named(source: "DataFrame", sql: str) -> None:
    with pytest.raises(TransformUnfit, match=r"^transform\.sql: .*USING runs a program; a query reads its views"):
        transformed(Transform(sql=sql), source, {})


@pytest.mark.parametrize("sql", REFUSED)
def test_what_reaches_further_is_refused_by_name(source: "DataFrame", tmp_path: Path, sql: str) -> None:
    with pytest.raises(TransformUnfit, match=rf"^transform\.sql: (?s:.*)(?:{REFUSED[sql]})"):
        transformed(Transform(sql=sql.replace(MARK, str(tmp_path / "mark"))), source, {"planes": source}).collect()
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("(SELECT max(id) FROM source) > 0", "a subquery is not allowed here"),
        ("id IN (SELECT id FROM source)", "a subquery"),
        ("EXISTS (SELECT 1)", "a subquery"),
        ("exists(array(1), x -> x IN (SELECT 1))", "a subquery"),
        (f"(SELECT TRANSFORM (id) {RUN} FROM source) > ''", "a subquery|runs a program"),
        (f"reflect{JVM} IS NULL", "function reflect"),
        (f"IDENTIFIER('ref' || 'lect'){JVM} IS NULL", "IDENTIFIER"),
        (f"system.builtin.java_method{JVM} IS NULL", "one name"),
        ("xpath_boolean('<a/>', 'a')", "function xpath_boolean"),
        ("schema_of_xml('<a/>', map('rowValidationXSDPath', 'http://127.0.0.1/')) > ''", "function schema_of_xml"),
        ("""from_json(s, '{"type":"udt"}') IS NULL""", "argument 2 of from_json"),
        ("user = 'root'", "user, current_user or session_user"),
        ("current_user() = 'root'", "function current_user"),
        ("input_file_name() > ''", "function input_file_name"),
        (":x > 1", "NamedParameter"),
        ("amount > 0", "amount"),
        ("id <", "PARSE_SYNTAX_ERROR|Syntax error"),
        ("not " * 1900 + "true", "nested too deeply|too complex|resolve|argument|type"),
    ],
)
def test_a_condition_is_about_one_row_and_reaches_nothing(
    source: "DataFrame", tmp_path: Path, sql: str, why: str
) -> None:
    expected = {"fine": "id > 0", "odd": sql[:2000].replace(MARK, str(tmp_path / "mark"))}
    with pytest.raises(ExpectationFailed, match=rf"^expect\.odd: .*(?:{why})") as told:
        flagged(source, {name: Expectation(sql=text, on_fail="warn") for name, text in expected.items()}).collect()
    assert "\n" not in str(told.value)
    assert not (tmp_path / "mark").exists()


def test_the_checker_alone_refuses_what_the_session_has(spark: "SparkSession") -> None:
    fresh = spark.newSession()
    assert fresh.catalog.functionExists("reflect"), "a session of which nothing was taken"
    fresh.conf.set("spark.sql.runSQLOnFiles", "true")
    fresh.conf.set("spark.sql.variable.substitute", "true")
    for sql in (f"SELECT reflect{JVM} AS x", "SELECT * FROM text.`/etc/passwd`"):
        fresh.sql(sql)
        with pytest.raises(SqlRefused):
            checked.query(fresh, sql, [])
    substituted = "SELECT * FROM ${system:user.home}"
    with pytest.raises(Exception, match=r"(?i)syntax"):  # what is checked is the text as Spark takes it
        checked.query(fresh, substituted, [])


def test_the_session_alone_refuses_without_the_checker(spark: "SparkSession") -> None:
    for sql, why in {
        f"SELECT reflect{JVM} AS x": "reflect",
        f"SELECT IDENTIFIER('ref' || 'lect'){JVM} AS x": "reflect",
        "SELECT * FROM text.`/etc/passwd`": "cannot be found",
    }.items():
        with pytest.raises(Exception, match=why):
            spark.sql(sql)
    assert spark.sql("SELECT '${env:HOME}' AS x, '${system:user.home}' AS y").first() == (
        "${env:HOME}",
        "${system:user.home}",
    )


def test_a_text_that_is_nested_too_deeply_is_refused_and_a_long_one_is_not(source: "DataFrame") -> None:
    for deep in ("SELECT " + "not " * 10_000 + "true", "SELECT " + "+".join(["id"] * 16_000) + " FROM source"):
        with pytest.raises(TransformUnfit, match=r"nested too deeply|too complex"):
            transformed(Transform(sql=deep), source, {})
    many: Any = ", ".join(f"concat(s, 'x') AS c{number}" for number in range(1_800))
    assert len(transformed(Transform(sql=f"SELECT {many} FROM source"), source, {}).columns) == 1_800
