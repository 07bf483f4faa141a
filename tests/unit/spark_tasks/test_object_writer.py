"""What executors write into an object store, and how the driver learns of it. Without Spark and without a store."""

import json
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from spark_tasks.table.object_writer import ObjectWriter, Written, row_groups  # noqa: E402  after the check that they are there
from spark_tasks.table.part import Part, part_from  # noqa: E402


def test_rows_are_written_in_groups_of_some_size() -> None:
    batches = pa.table({"n": list(range(1000))}).to_batches(max_chunksize=10)
    empty = batches[0].slice(0, 0)
    groups = list(row_groups(iter([empty, *batches, empty]), 2000))
    assert [group.num_rows for group in groups] == [250] * 4
    assert pa.concat_tables(groups).column("n").to_pylist() == list(range(1000))
    assert list(row_groups(iter([empty]), 10)) == []


def test_the_driver_learns_of_the_files_of_the_tasks_that_count_and_of_no_others(tmp_path: Path) -> None:
    parts = [Part(f"t/00000001-1/part-{n}", 10 + n, 1_795_000_000_000, n, "{}", {"day": None}) for n in range(3)]
    writer = ObjectWriter("s3://lake/t", {}, "t/00000001-1", str(tmp_path / "messages.json"))
    writer.commit([Written((parts[0],)), None, Written(()), Written((parts[1], parts[2]))])
    assert [part_from(value) for value in json.loads((tmp_path / "messages.json").read_text())] == parts
    assert [path.name for path in tmp_path.iterdir()] == ["messages.json"]
    writer.abort([Written((parts[0],))])
