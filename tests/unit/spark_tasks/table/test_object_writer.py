"""What executors write into an object store, and how the driver learns of it. Without Spark and without a store."""

import json
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from spark_tasks.table.object_writer import ObjectWriter, Written, partitions  # noqa: E402  after the check that they are there
from spark_tasks.table.parquet_writer import row_groups  # noqa: E402
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


def test_rows_with_the_same_values_of_the_partition_columns_are_one_file() -> None:
    rows = [("a", 1, 1), ("a", 1, 2), ("a", None, 3), ("", None, 4), (None, None, 5), ("a", 1, 6)]
    table = pa.table({name: [row[at] for row in rows] for at, name in enumerate(("kind", "day", "n"))})
    batches = [*table.to_batches(max_chunksize=1), table.to_batches()[0].slice(0, 0)]
    found = [
        (texts, [n for one in group for n in one.column("n").to_pylist()])
        for texts, group in partitions(batches, ["kind", "day"])
    ]
    assert found == [
        ((("kind", "a"), ("day", "1")), [1, 2]),
        ((("kind", "a"), ("day", None)), [3]),
        ((("kind", None), ("day", None)), [4, 5]),
        ((("kind", "a"), ("day", "1")), [6]),
    ]
    [(texts, whole)] = partitions(table.to_batches(), [])
    assert (texts, [one.schema.names for one in whole]) == ((), [["kind", "day", "n"]])
    [(_, first), *_] = [(texts, list(group)) for texts, group in partitions(table.to_batches(), ["kind"])]
    assert [(one.schema.names, one.num_rows) for one in first] == [(["day", "n"], 3)]
