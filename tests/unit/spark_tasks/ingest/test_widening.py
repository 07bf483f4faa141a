"""What is refused before a table is written again with wider columns."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

import pyarrow as pa
from deltalake import write_deltalake

from spark_tasks.files.faults import SchemaDrift
from spark_tasks.ingest.widening import rewritten
from spark_tasks.table.delta import FIRST, Table, TableUnfit
from spark_tasks.table.ledger import Mark
from tasks.places.place import Place


def _refused(folder: Path) -> None:
    nothing = cast("Any", None)  # it is refused before Spark is asked for anything
    rewritten(nothing, Table(Place(str(folder)), "flights"), nothing, Mark(1, 1), folder)


def _written(folder: Path, partition_by: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Write a table; its log's first entry."""
    write_deltalake(folder, pa.table({"n": [1], "day": ["monday"]}), partition_by=list(partition_by))
    return [json.loads(line) for line in (folder / FIRST).read_text().splitlines()]


def test_a_partitioned_table_is_not_widened(tmp_path: Path) -> None:
    _written(tmp_path, ["day"])
    with pytest.raises(SchemaDrift, match="cannot be widened, as it is partitioned: use a new table"):
        _refused(tmp_path)


def test_a_file_that_a_commit_would_leave_in_the_table_is_refused(tmp_path: Path) -> None:
    entry = _written(tmp_path)
    [added] = [line["add"] for line in entry if "add" in line]
    (tmp_path / added["path"]).rename(tmp_path / "ü.parquet")
    added["path"] = "ü.parquet"
    (tmp_path / FIRST).write_text("\n".join(map(json.dumps, entry)))
    with pytest.raises(TableUnfit, match="its rows would be there twice"):
        _refused(tmp_path)


def test_a_table_whose_rows_are_not_those_of_its_files_is_refused(tmp_path: Path) -> None:
    entry = _written(tmp_path)
    [protocol] = [line["protocol"] for line in entry if "protocol" in line]
    features = ["deletionVectors"]
    protocol |= {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    (tmp_path / FIRST).write_text("\n".join(map(json.dumps, entry)))
    with pytest.raises(SchemaDrift, match="cannot be widened, as it has deletionVectors"):
        _refused(tmp_path)
