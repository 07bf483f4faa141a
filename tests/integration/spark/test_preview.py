"""Previews, progress and Spark's own pages, with real Spark."""

import json
import time
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from spark_tasks.files.faults import MalformedRows
from spark_tasks.ingest.kind import Ingest
from spark_tasks.spark.progress import followed
from spark_tasks.spark.sample import PreviewArgs
from spark_tasks.spark.session import spark_session
from testkit.spark.ingests import House

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.mark.soak
def test_a_preview_of_an_ingest_reads_new_files_and_writes_nothing(house: House) -> None:
    house.put_csv(0)
    context = house.attempt(expect={"even": {"sql": "n % 2 = 0", "on_fail": "drop"}})
    shown = Ingest().preview(context, PreviewArgs(rows=3))
    assert shown["columns"] == [{"name": "n", "type": "int"}, {"name": "text", "type": "string"}]
    assert shown["rows"] == [[0, None], [2, 'a "2", quoted'], [4, 'a "4", quoted']]
    assert shown["more"]
    assert shown["files"] == [f"{house.folder}/in/00.csv"]
    assert "#" not in shown["plan"]
    assert context.saved == []
    assert not house.table.exists()
    Ingest().run(house.attempt())
    version = sorted(path.name for path in (house.table / "_delta_log").iterdir())
    house.put_csv(1)
    assert Ingest().preview(house.attempt(token=2), PreviewArgs(rows=1))["rows"] == [[10, None]], "the new file"
    (house.folder / "in" / "02.csv").write_text("n,text\nx,y\n")
    (house.folder / "in" / "01.csv").unlink()
    with pytest.raises(MalformedRows, match=r"02\.csv"):
        Ingest().preview(house.attempt(token=3), PreviewArgs())
    assert sorted(path.name for path in (house.table / "_delta_log").iterdir()) == version


@pytest.mark.soak
def test_the_stages_of_a_job_are_told_and_the_ui_is_on_loopback_if_asked(tmp_path: Path) -> None:
    told: list[str] = []
    with spark_session("progress", tmp_path / "one", {"RUN_SPARK_UI": "1"}) as spark:
        url = spark.sparkContext.uiWebUrl
        assert url is not None
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(f"{url}/api/v1/applications", timeout=30) as answer:
            assert json.load(answer)[0]["name"] == "progress"
        end_s = time.monotonic() + 60
        with followed(spark, told.append):
            while not told and time.monotonic() < end_s:
                spark.sparkContext.parallelize(range(2), 2).foreach(lambda n: time.sleep(1.5 + n))
    assert told
    assert told[0].startswith("stage 1 of 1")
    with spark_session("none", tmp_path / "two", {}) as spark:
        assert spark.sparkContext.uiWebUrl is None
