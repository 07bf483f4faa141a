"""ETL from files to PostgreSQL with real Spark."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("adbc_driver_postgresql", reason="the extra `spark` is not installed")

import pyarrow as pa
from pyarrow import parquet

from node.cli.local import wait_for
from spark_tasks.etl.errors import BatchUnfit
from spark_tasks.files.faults import MalformedRows, SchemaDrift
from spark_tasks.files.listing import NoSourceFiles, SourceChanged
from spark_tasks.files.source import FilesReader
from spark_tasks.spark.session import spark_session
from testkit.changing.files import ChangingFiles
from testkit.changing.rows import wrong_versions
from testkit.spark.databases import EtlDatabase
from testkit.spark.etl_sinks import at_step

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def _put(database: EtlDatabase, name: str, text: str, age_s: float) -> Path:
    path = database.folder / "in" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    changed_s = time.time() - age_s
    os.utime(path, (changed_s, changed_s))
    return path


def _params(database: EtlDatabase, mode: str = "append", **more: Any) -> dict[str, Any]:
    source = {
        "type": "files",
        "files": f"{database.folder}/in/*.csv",
        "format": "csv",
        "columns": "id INT, name STRING",
    }
    return {"source": source | {"shared": True} | more, "sink": database.end(table="dst", mode=mode)}


def _ids(database: EtlDatabase) -> str:
    return database.sql("SELECT string_agg(id::text, ',' ORDER BY id) FROM dst")


@pytest.mark.more
def test_files_are_read_once_when_they_have_not_changed_for_the_lag(database: EtlDatabase, tmp_path: Path) -> None:
    _put(database, "b.csv", "id,name\n1,a\n2,\n", age_s=500)
    _put(database, "a.csv", 'id,name\n3,"x, y"\n', age_s=400)
    _put(database, "c.csv", "id,name\n4,d\n", age_s=1)
    params = _params(database, batch_files=1) | {"incremental": {"files": True, "lag_s": 100}}
    with spark_session("files", tmp_path / "spark") as spark:
        first = database.run(spark, params)
        assert (first.rows, first.batches) == (3, 2)
        assert database.run(spark, params, token=2, run=2).batches == 0
        _put(database, "c.csv", "id,name\n4,d\n", age_s=200)
        _put(database, "d.csv", "id,name\n5,e\n", age_s=450)  # it came too late for its time
        assert database.run(spark, params, token=3, run=3).rows == 1
        assert _ids(database) == "1,2,3,4"
        _put(database, "e.csv", "id,name\nsix,f\n", age_s=150)
        with pytest.raises(MalformedRows, match=r"e\.csv, line 2: .*six"):
            database.run(spark, params, token=4, run=4)
        _put(database, "e.csv", "name,id\nf,6\n", age_s=150)
        with pytest.raises(SchemaDrift, match="header"):
            database.run(spark, params, token=5, run=5)
        _put(database, "e.csv", "id,name\n6,f\n", age_s=150)
        assert database.run(spark, params, token=6, run=6).rows == 1
        assert _ids(database) == "1,2,3,4,6"


@pytest.mark.soak
def test_all_formats_are_read_whole(database: EtlDatabase, tmp_path: Path) -> None:
    import fastavro

    rows = [{"id": number, "name": f"n{number}"} for number in range(20)]
    folder = database.folder / "in"
    folder.mkdir()
    (folder / "a.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "a.tbl").write_text("".join(f"{row['id']}|{row['name']}|\n" for row in rows))
    parquet.write_table(
        pa.table({"id": pa.array(range(20), pa.int32()), "name": [row["name"] for row in rows]}), folder / "a.parquet"
    )
    kinds = [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}]
    with (folder / "a.avro").open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "r", "fields": kinds}, rows)
    database.sql("CREATE TABLE expected AS SELECT n AS id, 'n' || n AS name FROM generate_series(0, 19) n")
    with spark_session("files", tmp_path / "spark") as spark:
        for number, kind in enumerate(("json", "tbl", "parquet", "avro"), 1):
            given = {"columns": "id INT, name STRING"} if kind in ("json", "tbl") else {"columns": None}
            params = _params(database, "replace", files=f"{folder}/*.{kind}", format=kind, **given)
            assert database.run(spark, params, token=number, run=number).rows == 20
            assert database.differ("SELECT * FROM expected", "SELECT * FROM dst") == "", kind
        (folder / "a.tbl").write_text("1|a|\n2|b\n")
        params = _params(database, "replace", files=f"{folder}/*.tbl", format="tbl")
        with pytest.raises((MalformedRows, BatchUnfit), match=r"a\.tbl, line 2"):
            database.run(spark, params, token=9, run=9)
        with pytest.raises(NoSourceFiles, match="no complete file matches"):
            database.run(spark, _params(database, "replace"), token=10, run=10)
        assert database.sql("SELECT count(*) FROM dst") == "20"


LAG_S = 1.5
BATCHES = [pytest.param(4, marks=pytest.mark.more), pytest.param(50, marks=pytest.mark.soak)]


@pytest.mark.parametrize("batches", BATCHES)
def test_nothing_is_missing_and_nothing_twice_of_files_that_change_while_they_are_read(
    database: EtlDatabase, tmp_path: Path, batches: int
) -> None:
    """An attempt that finds a file replaced or gone after it was planned fails, and the next one goes on."""
    files, done, token, refused = ChangingFiles(database.folder / "in", seed=13), 0, 0, 0
    params = _params(database, columns="id INT, version INT") | {"incremental": {"files": True, "lag_s": LAG_S}}
    deadline_s = time.monotonic() + 60 + 30 * batches
    with spark_session("changing", tmp_path / "spark") as spark:
        files.start()
        try:
            while done < batches:
                assert time.monotonic() < deadline_s, f"only {done} batches"
                token += 1
                try:
                    done += database.run(spark, params, token, token).batches
                except SourceChanged:
                    refused += 1
        finally:
            files.stop()
        wait_for("each file is as old as the lag", lambda: time.time() >= files.newest_s() + LAG_S, 60)
        database.run(spark, params, 1_000_000, 1_000_000)
    assert wrong_versions(files.there, database.versions("dst"), files.removed) == []
    print(f"{files.changes} changes while {done} batches ran; {refused} attempts found a file replaced or gone")


@pytest.mark.soak
def test_a_file_that_is_replaced_or_removed_after_it_was_planned_fails_the_attempt_and_the_next_goes_on(
    database: EtlDatabase, tmp_path: Path
) -> None:
    params = _params(database) | {"incremental": {"files": True, "lag_s": 100}}
    _put(database, "a.csv", "id,name\n1,a\n", age_s=500)
    _put(database, "b.csv", "id,name\n2,b\n", age_s=400)
    with spark_session("files", tmp_path / "spark") as spark:
        replace = (FilesReader, "load", "before")
        with (
            at_step(replace, lambda: _put_over(database, "a.csv", "id,name\n3,c\n", age_s=300)),
            pytest.raises(SourceChanged, match=r"a\.csv was changed after the batch was planned"),
        ):
            database.run(spark, params)
        with (
            at_step(replace, (database.folder / "in" / "b.csv").unlink),
            pytest.raises(SourceChanged, match=r"b\.csv was there when the files were listed, and is gone"),
        ):
            database.run(spark, params, token=2, run=2)
        assert database.run(spark, params, token=3, run=3).rows == 1
    assert _ids(database) == "3"


def _put_over(database: EtlDatabase, name: str, text: str, age_s: float) -> None:
    _put(database, f".{name}", text, age_s).rename(database.folder / "in" / name)
