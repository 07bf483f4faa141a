"""What versions of a Delta table bring, from their entries in the log. Without Spark and without deltalake."""

import json
from typing import Any

import pytest

from spark_tasks.contracts.source import SourceUnfit
from spark_tasks.delta.log import (
    ChangedRows,
    TableFile,
    VersionEntry,
    changed,
    entry,
    feed_after,
    why_not_plain,
)


def _entry(version: int, *actions: dict[str, Any]) -> VersionEntry:
    return entry(version, "\n".join(map(json.dumps, actions)).encode(), "/t")


def _about(path: str, **more: Any) -> dict[str, Any]:
    return {"path": path, "size": 5, "partitionValues": {}, "dataChange": True} | more


def _seen(entries: list[VersionEntry], feed: bool = False, *, read_feed: bool, skip: bool = False) -> list[str]:
    found = changed(entries, feed, read_feed=read_feed, skip=skip, shown="/t")
    return [f"{one.version} {one.file.path} {one.change}" for one in found]


APPEND = {"add": _about("a")}
UPDATE = [{"remove": _about("a")}, {"add": _about("b")}, {"cdc": _about("_change_data/c")}]
REWRITE = [{"remove": _about("a")}, {"add": _about("b")}]
COMPACTION = [{"remove": _about("a", dataChange=False)}, {"add": _about("b", dataChange=False)}]


def test_an_entry_names_its_files() -> None:
    one = _about("day=2026-01-01/a%20b.parquet", partitionValues={"day": "2026-01-01"})
    assert _entry(7, {"commitInfo": {}}, {"add": one}, {"txn": {"appId": "x", "version": 1}}) == VersionEntry(
        7, added=(TableFile("day=2026-01-01/a b.parquet", 5, {"day": "2026-01-01"}),)
    )
    assert _entry(8, *COMPACTION) == VersionEntry(8)


def test_appended_files_are_new_rows_and_compacted_ones_are_not() -> None:
    entries = [_entry(1, APPEND), _entry(2, *COMPACTION), _entry(3, {"add": _about("c")})]
    assert _seen(entries, read_feed=False) == ["1 a insert", "3 c insert"]
    assert _seen(entries, read_feed=True) == ["1 a insert", "3 c insert"]


def test_files_of_changes_alone_say_what_a_version_changed() -> None:
    assert _seen([_entry(1, *UPDATE)], feed=True, read_feed=True) == ["1 _change_data/c None"]


def test_without_files_of_changes_removed_rows_were_deleted_if_the_feed_was_on() -> None:
    assert _seen([_entry(1, *REWRITE)], feed=True, read_feed=True) == ["1 a delete", "1 b insert"]
    on = {"metaData": {"id": "x", "configuration": {"delta.enableChangeDataFeed": "true"}}}
    assert _seen([_entry(1, on), _entry(2, *REWRITE)], read_feed=True) == ["2 a delete", "2 b insert"]
    off = {"metaData": {"id": "x", "configuration": {}}}
    with pytest.raises(SourceUnfit, match=r"version 2 updated or deleted rows while `delta.enableChangeDataFeed` was"):
        _seen([_entry(1, off), _entry(2, *REWRITE)], feed=True, read_feed=True)
    assert [feed_after([_entry(1, one)], False) for one in (on, off, APPEND)] == [True, False, False]
    assert feed_after([_entry(1, APPEND)], True)


def test_a_version_that_rewrote_rows_fails_or_brings_nothing() -> None:
    entries = [_entry(1, APPEND), _entry(2, *REWRITE), _entry(3, *UPDATE), _entry(4, {"add": _about("d")})]
    with pytest.raises(SourceUnfit, match="version 2 updated or deleted rows: give `tombstone`"):
        _seen(entries, read_feed=False)
    assert _seen(entries, read_feed=False, skip=True) == ["1 a insert", "4 d insert"]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (_about("s3://other/a"), "is not in the table's own folder"),
        (_about("/etc/passwd"), "is not in the table's own folder"),
        (_about("a/../../b"), "is not in the table's own folder"),
        (_about("%2Fetc%2Fpasswd"), "is not in the table's own folder"),
        (_about("a", deletionVector={"storageType": "u"}), "has a deletion vector"),
    ],
)
def test_files_that_cannot_be_read_are_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(SourceUnfit, match=f"/t: version 3 of the log cannot be read: .*{why}"):
        _entry(3, {"add": wrong})


def test_an_entry_that_is_no_json_is_refused() -> None:
    with pytest.raises(SourceUnfit, match="version 3 of the log cannot be read"):
        entry(3, b"{half", "/t")


def test_tables_whose_rows_are_not_those_of_their_files_are_refused() -> None:
    assert why_not_plain(3, ["timestampNtz", "v2Checkpoint"], {}) is None
    assert "column" in str(why_not_plain(2, [], {"delta.columnMapping.mode": "name"}))
    assert why_not_plain(2, [], {"delta.columnMapping.mode": "none"}) is None
    assert "it has typeWidening" in str(why_not_plain(3, ["typeWidening"], {}))
    assert "version 4" in str(why_not_plain(4, [], {}))


def test_a_change_of_all_rows_of_a_file_is_that_of_the_file() -> None:
    [one] = changed([_entry(1, APPEND)], False, read_feed=True, skip=False, shown="/t")
    assert one == ChangedRows(TableFile("a", 5), 1, "insert")
