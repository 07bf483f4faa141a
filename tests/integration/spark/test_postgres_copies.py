"""A database of PostgreSQL is copied, and the copy is copied: both have the same values, of the same types."""

import os
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("adbc_driver_postgresql", reason="the extra `spark` is not installed")

from examples.demo.postgres import Server
from testkit.spark.databases import EtlDatabase
from testkit.spark.etl_sinks import sink_session
from testkit.spark.type_edges import postgres as edges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.more]

__all__ = ["sink_session"]

MORE = {
    "bpchar": "'ab  '",
    "varchar": "'ab  '",
    "time(2)": "'23:59:59.99'",
    "timestamp(0)": "'-infinity'",
    "interval day to second(2)": "'3 days 00:00:01.25'",
    "daterange": "'[-infinity,infinity)'",
    "int8range": "'[-9223372036854775808,9223372036854775807)'",
    "tsrange": "'[\"0044-03-15 BC\",)'",
    "line": "'{1,-1,0}'",
    "lseg": "'[(0,0),(1,1)]'",
    "box": "'(1,1),(0,0)'",
    "path": "'[(0,0),(1,1)]'",
    "circle": "'<(0,0),1e-300>'",
    "macaddr8": "'ff:ff:ff:ff:ff:ff:ff:ff'",
    "tsquery": "'a & !b:*'",
    "jsonpath": "'$.a[*] ? (@ > 1.0000000000000000000001)'",
    "xid8": "'18446744073709551615'",
    "regclass": "'pg_class'",
    "mood[]": "'{sad,NULL}'",
    "numeric(6,3)[]": "'{NaN,999.999}'",
    "pair[]": "'{\"(1,)\"}'",
    "bytea[]": "'{\"\\\\x00ff\",NULL}'",
}
"""More types, each with a value."""

ODD_NAMES = '''
CREATE TABLE "a table's ""name""" ("A" int, a int, "a.b" text, "sp ace" date, "tick`" timestamptz, "q""uote" numeric,
  "ÄÖ" text, "select" int, "x'y" timestamp);
INSERT INTO "a table's ""name""" VALUES (1, 2, 'c', 'infinity', '-infinity', 1e100, '', NULL, 'infinity'),
  (3, 4, NULL, '0044-03-15 BC', '294276-12-31Z', 'NaN', 'x', 5, NULL);
CREATE TABLE empty (a numeric, b mood);
'''


def declared(type_: str) -> str:
    return type_.partition(", ")[0] if "said" in type_ else type_


def source_tables() -> str:
    given = {declared(of.type): [edge.given for edge in of.edges] for of in edges.EDGES}
    given |= {type_: [value, "NULL"] for type_, value in MORE.items()}
    columns = ", ".join(f"c{number} {type_}" for number, type_ in enumerate(given))
    rows = [f"CREATE TABLE everything (id int, {columns})"]
    for number in range(max(map(len, given.values()))):
        values = (values[number] if number < len(values) else "NULL" for values in given.values())
        rows.append(f"INSERT INTO everything VALUES ({number}, {', '.join(values)})")
    return ";\n".join(rows) + ";\n" + ODD_NAMES


def dump(database: EtlDatabase) -> list[str]:
    """The rows of all tables but Rota's own, as pg_dump writes them, sorted."""
    argv = [str(database.server.programs / "pg_dump"), "--data-only", "--exclude-table=rota_*", database.uri]
    said = subprocess.run(argv, env=os.environ, capture_output=True, text=True, check=True).stdout
    return sorted(line for line in said.splitlines() if not line.startswith(("\\", "--")))


def types(database: EtlDatabase) -> list[str]:
    return database.sql(
        "SELECT relname, attname, format_type(atttypid, atttypmod) FROM pg_attribute JOIN pg_class c "
        "ON c.oid = attrelid WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND attnum > 0 "
        "AND relname NOT LIKE 'rota%' ORDER BY 1, attnum"
    ).splitlines()


def made(server: Server, folder: Path, *names: str) -> list[EtlDatabase]:
    """Databases of these names, which have the types; the first one has the tables as well."""
    found = []
    for name in names:
        server.sql("postgres", f"CREATE DATABASE {name}")
        found.append(EtlDatabase(server, name, folder))
        found[-1].sql(edges.SETUP)
    found[0].sql(source_tables())
    return found


def copy(spark: "SparkSession", source: EtlDatabase, target: EtlDatabase) -> None:
    for number, table in enumerate(("everything", '"a table\'s ""name"""', "empty")):
        params = {"source": source.end(table=table), "sink": target.end(table=table, mode="append")}
        source.run(spark, params, run=number)


def test_a_copy_of_a_copy_has_the_same_values_of_the_same_types(
    sink_session: "SparkSession", server: Server, tmp_path: Path
) -> None:
    copies = made(server, tmp_path, "first", "second", "third")
    assert len({line.split("|")[-1] for line in types(copies[0])}) > 60
    for source, target in pairwise(copies):
        copy(sink_session, source, target)
        assert types(target) == types(copies[0])
        assert dump(target) == dump(copies[0])


def test_executors_copy_the_same(
    sink_session: "SparkSession", server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a cluster: they read from the one database, and write into the other."""
    monkeypatch.setattr("spark_tasks.etl.opening.is_local_master", lambda environ: False)
    source, target = made(server, tmp_path, "read_by_executors", "written_by_executors")
    copy(sink_session, source, target)
    assert types(target) == types(source)
    assert dump(target) == dump(source)
