"""What is unusual of a backup beside the ones before it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tasks.backup.kind import Backup
from tasks.backup.manifest import FileEntry, Manifest, TableFacts
from tasks.backup.unusual import BEFORE_MIN, unusual
from tests.unit.tasks.backup.backups import backup_context, fill

AT = datetime(2026, 11, 21, 3, tzinfo=UTC)
GB = 1_000_000_000


def backup(size_bytes: int, seconds: float = 600, rows: dict[str, int] | None = None) -> Manifest:
    facts = None
    if rows is not None:
        facts = tuple(TableFacts(schema_name="public", name=name, rows=count) for name, count in rows.items())
    entry = FileEntry(
        name="postgres.dump.zst",
        size_bytes=size_bytes,
        stored_bytes=size_bytes // 3,
        sha256="",
        tables=facts,
    )
    return Manifest(
        task="orders",
        run_id="orders~1",
        attempt=1,
        token=1,
        created=AT,
        finished=AT + timedelta(seconds=seconds),
        source_type="postgres",
        source={},
        tools={},
        files=(entry,),
    )


USUAL = [backup(size) for size in (1010 * GB // 1000, GB, 990 * GB // 1000, 980 * GB // 1000, 970 * GB // 1000)]


@pytest.mark.parametrize("size_bytes", [GB, 1100 * GB // 1000, 700 * GB // 1000, 1400 * GB // 1000])
def test_growth_and_what_varies_are_usual(size_bytes: int) -> None:
    assert unusual(backup(size_bytes), USUAL) == []


def test_a_jump_is_told_with_what_is_usual() -> None:
    assert unusual(backup(5_000_000), USUAL) == [
        "content of 5,000,000 bytes; the median of the 5 backups before is 990,000,000"
    ]
    assert unusual(backup(2 * GB), USUAL)[0].startswith("content of 2,000,000,000 bytes")
    assert unusual(backup(GB, seconds=3000), USUAL) == ["it took 3,000 s; the median of the 5 backups before is 600"]


def test_little_is_never_unusual_and_few_backups_tell_nothing() -> None:
    small = [backup(2000, seconds=1)] * 6
    assert unusual(backup(200_000, seconds=100), small) == []
    assert unusual(backup(5_000_000), USUAL[: BEFORE_MIN - 1]) == []
    assert unusual(backup(5_000_000), []) == []


def test_what_varies_much_may_vary() -> None:
    sizes = [GB, 5 * GB, 2 * GB, 8 * GB, 3 * GB]
    assert unusual(backup(9 * GB), [backup(size) for size in sizes]) == []


def test_only_the_last_ten_count() -> None:
    assert unusual(backup(2 * GB), [backup(2 * GB)] * 10 + [backup(GB)] * 30) == []


def test_rows_and_tables_that_are_empty_now_are_told() -> None:
    before = [backup(GB, rows={"line": 100_000, "item": 500, "none": 0})] * 5
    assert unusual(backup(GB, rows={"line": 100_500, "item": 501, "none": 0}), before) == []
    assert unusual(backup(GB, rows={"line": 100_000, "item": 0}), before) == [
        "no rows in public.item, which had some in the backup before"
    ]
    assert unusual(backup(GB, rows={"item": 500}), before) == [
        "tables with 500 rows; the median of the 5 backups before is 100,500",
        "no rows in public.line, which had some in the backup before",
    ]
    assert unusual(backup(GB), before) == [], "a backup without facts on tables is not compared by them"


def test_an_empty_destination_is_told_once_a_run_has_succeeded(tmp_path: Path) -> None:
    fill(tmp_path / "from")
    assert Backup().run(backup_context(tmp_path, 1))["unusual"] == []
    later = backup_context(tmp_path, 2)
    later.succeeded_at = AT
    assert Backup().run(later)["unusual"] == []
    (tmp_path / "to").rename(tmp_path / "unmounted")
    unmounted = backup_context(tmp_path, 3)
    unmounted.succeeded_at = AT
    (said,) = Backup().run(unmounted)["unusual"]
    assert said.startswith(f"{tmp_path}/to/nightly held no backup, and a run succeeded at {AT:%F %R} UTC: it is new, ")


def test_a_run_tells_what_is_unusual(tmp_path: Path) -> None:
    fill(tmp_path / "from")
    for token in range(1, BEFORE_MIN + 1):
        assert Backup().run(backup_context(tmp_path, token))["unusual"] == []
    (tmp_path / "from" / "big").write_bytes(bytes(3 << 20))
    result = Backup().run(backup_context(tmp_path, 9))
    (said,) = result["unusual"]
    assert said.startswith("content of 3,2")
    assert result["degraded"] is None
