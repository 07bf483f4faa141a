"""What a maintenance does to the files of a table: rows of every type stay, and readers skip files."""

import json
import math
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

import pyarrow as pa
from deltalake import write_deltalake
from deltalake.transaction import AddAction
from pyarrow import parquet

from spark_tasks.table.delta import TableUnfit
from spark_tasks.table.live_files import spelled_path
from testkit.spark.maintained import Lakehouse

pytestmark = pytest.mark.integration


def test_sorted_rows_are_found_in_few_files_by_each_of_the_columns(local: Lakehouse) -> None:
    draw, rows = random.Random(1), 4000
    columns = ("x", "y", "text")
    for number in range(8):
        written = {
            "n": range(number * rows, (number + 1) * rows),
            "x": [draw.random() for _ in range(rows)],
            "y": [draw.randrange(10**6) for _ in range(rows)],
            "text": [draw.choice("abcdefgh") * draw.randrange(1, 4) for _ in range(rows)],
        }
        write_deltalake(local.url, pa.table({name: list(values) for name, values in written.items()}), mode="append")

    def files_read(name: str, value: Any) -> int:
        found = pa.table(local.delta().get_add_actions(flatten=True)).to_pylist()
        return sum(file[f"min.{name}"] <= value <= file[f"max.{name}"] for file in found)

    wanted = {"x": 0.3, "y": 700_000, "text": "cc"}
    assert [files_read(name, wanted[name]) for name in columns] == [8, 8, 8]
    before = sorted(local.delta().to_pyarrow_table().to_pylist(), key=lambda row: row["n"])
    done = local.maintain(cluster_by=["x", "y"], target_bytes=20_000, memory_bytes=2 << 20)
    assert done["files_after"] > 16
    assert max(files_read(name, wanted[name]) for name in ("x", "y")) <= done["files_after"] // 2
    done = local.maintain(cluster_by=["text"], target_bytes=20_000, memory_bytes=2 << 20)
    assert files_read("text", "cc") <= done["files_after"] // 4
    assert sorted(local.delta().to_pyarrow_table().to_pylist(), key=lambda row: row["n"]) == before
    assert not list((local.folder / "scratch-1").iterdir())


EVERY_TYPE = pa.schema(
    [
        ("n", pa.int64()),
        ("byte", pa.int8()),
        ("real", pa.float64()),
        ("small", pa.float32()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("truth", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("wall", pa.timestamp("us")),
        ("money", pa.decimal128(20, 2)),
        ("big", pa.decimal128(38, 10)),
        ("list", pa.list_(pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]))),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("inner", pa.struct([("x", pa.float64()), ("y", pa.timestamp("us", "UTC"))])),
    ]
)


def test_rows_of_every_type_stay_the_same(local: Lakehouse) -> None:
    at = datetime(1, 1, 1, tzinfo=UTC)
    odd = {
        "n": 1, "byte": -128, "real": math.nan, "small": -0.0, "text": "ä\0" * 50, "bytes": b"\xff\0", "truth": False,
        "day": date(9999, 12, 31), "at": at, "wall": datetime(2026, 1, 1, 0, 0, 0, 1), "money": Decimal("-0.01"),
        "big": Decimal("1234567890123456789012345678.0123456789"), "list": [{"a": None, "b": ["x", None]}, None],
        "map": [("k", None)], "inner": {"x": math.inf, "y": None},
    }  # fmt: skip
    none = dict.fromkeys(EVERY_TYPE.names) | {"n": 2}
    empty = none | {"n": 3, "text": "", "bytes": b"", "list": [], "map": [], "inner": {"x": None, "y": None}}
    for row in (odd, none, empty):
        write_deltalake(local.url, pa.Table.from_pylist([row], EVERY_TYPE), mode="append")
    columns = [field.name for field in EVERY_TYPE if not pa.types.is_nested(field.type)]
    before = local.delta().to_pyarrow_table().sort_by("n").to_pylist()
    for by in ([], columns[1:9], columns[9:]):
        done = local.maintain(cluster_by=by, min_files=2)
        assert done["rows"] == 3
        assert repr(local.delta().to_pyarrow_table().sort_by("n").to_pylist()) == repr(before), "NaN is not itself"
    assert local.maintain(cluster_by=columns[9:])["checksum"] is None


@pytest.mark.parametrize("by", [[], ["n"]], ids=["compact", "cluster"])
def test_columns_that_came_later_are_null_before_and_types_of_old_files_are_made_the_table_s(
    local: Lakehouse, by: list[str]
) -> None:
    write_deltalake(local.url, pa.table({"n": [1, 2], "at": pa.array([0, 1], pa.timestamp("us", "UTC"))}))
    [old] = local.data_names()
    write_deltalake(local.url, pa.table({"n": [3], "more": ["x"]}), mode="append", schema_mode="merge")
    rows, size = parquet.read_table(local.root / old), (local.root / old).stat().st_size
    parquet.write_table(rows, local.root / old, use_deprecated_int96_timestamps=True)
    entry = local.root / "_delta_log" / f"{0:020d}.json"
    now = (local.root / old).stat().st_size
    entry.write_text(entry.read_text().replace(f'"size":{size},', f'"size":{now},'))
    before = local.delta().to_pyarrow_table().sort_by("n").to_pylist()
    local.maintain(cluster_by=by)
    assert local.delta().to_pyarrow_table().sort_by("n").to_pylist() == before
    assert len(local.live()) == 1


FEATURES = {
    "deletionVectors": "has deletionVectors, with which this kind cannot rewrite files: set",
    "columnMapping": "has columnMapping, with which .* write the table anew",
    "rowTracking": "has features that this kind does not know: domainMetadata, rowTracking",
}


@pytest.mark.parametrize("feature", FEATURES)
def test_a_table_with_features_that_rewrites_would_break_is_refused(local: Lakehouse, feature: str) -> None:
    local.fill(3)
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [feature], "writerFeatures": [feature]}
    if feature == "rowTracking":
        protocol |= {"minReaderVersion": 1, "readerFeatures": None, "writerFeatures": [feature, "domainMetadata"]}
    entry = local.root / "_delta_log" / f"{2:020d}.json"
    entry.write_text(json.dumps({"protocol": {name: value for name, value in protocol.items() if value}}))
    before = local.contents()
    with pytest.raises(TableUnfit, match=FEATURES[feature]):
        local.maintain()
    assert local.contents() == before


def test_a_file_whose_path_another_program_has_spelled_differently_stays_as_it_is(local: Lakehouse) -> None:
    """deltalake cannot take it out of the table: it would be there beside its copy."""
    local.fill(4)
    first, second = local.data_names()[:2]
    for name, spelled in ((first, "filled/ü.parquet"), (second, "filled/a%2Db.parquet")):
        (local.root / name).rename(local.root / unquote(spelled))
        entry = local.root / "_delta_log" / f"{1:020d}.json"
        entry.write_text(entry.read_text().replace(name, spelled))
    assert local.is_whole()
    done = local.maintain(keep_h=0, full=True)
    assert (done["compacted_files"], done["files_after"], done["removed_files"]) == (2, 3, 2)
    assert local.is_whole()
    done = local.maintain(keep_h=0, full=True, cluster_by=["n"])
    assert (done["clustered_files"], done["files_after"]) == (1, 3)
    assert local.was_whole(local.delta().version())


def test_paths_are_spelled_as_deltalake_spells_them(local: Lakehouse) -> None:
    local.fill(1)
    names = [f"x/{chr(code)}y.parquet" for code in range(1, 0x17F) if chr(code) != "/"]
    handle = local.delta()
    handle.create_write_transaction(
        [AddAction(name, 1, {}, 0, True, "{}") for name in names], "append", handle.schema()
    )
    spelled = [action["add"]["path"] for action in local.entry(handle.version() + 1) if "add" in action]
    assert [spelled_path(each) for each in spelled] == names
