"""A batch is committed once, whichever attempt tries: to a table in a folder, and in a store. Real Delta, no Spark."""

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")


from spark_tasks.table.delta import LOG, Overtaken, TableUnfit, app_id
from spark_tasks.table.ledger import LedgerDamaged, Mark
from testkit.spark.tables import SCHEMA, TablePlace, commit, write_batch

pytestmark = pytest.mark.integration


def test_batches_follow_one_another_and_the_ledger_says_what_they_brought(place: TablePlace) -> None:
    table = place.table()
    assert (table.last(), table.version(), table.schema_json()) == (None, None, None)
    first = write_batch(table, Mark(1, 5), [1, 2])
    assert not table.ledger.has(2)
    assert commit(table, Mark(1, 5)) == 1
    second = write_batch(table, Mark(2, 9), [3], previous=Mark(1, 5))
    assert table.ledger.has(2)
    assert commit(table, Mark(2, 9)) == 2
    assert table.last() == Mark(2, 9)
    assert list(table.ledger.pages(table.last())) == [second, first]
    assert {*first.parts, *second.parts} < set(place.names())
    assert place.delta().transaction_version(app_id("task")) == 2
    assert place.numbers() == [1, 2, 3]


def test_the_same_attempt_may_repeat_its_commit_and_changes_nothing(place: TablePlace) -> None:
    table = place.table()
    write_batch(table, Mark(1, 5), [1])
    assert [commit(table, Mark(1, 5)) for _ in range(3)] == [1, 1, 1]
    assert place.numbers() == [1]


def test_another_attempt_cannot_commit_the_batch_again(place: TablePlace) -> None:
    table = place.table()
    for token in (5, 6):
        write_batch(table, Mark(1, token), [token])
    commit(table, Mark(1, 6))
    with pytest.raises(Overtaken, match="token 6, not 5"):
        commit(table, Mark(1, 5))
    assert place.numbers() == [6]


def test_two_tasks_feed_one_table_without_hindering_each_other(place: TablePlace) -> None:
    mine, yours = place.table("mine"), place.table("yours")
    write_batch(mine, Mark(1, 1), [1])
    write_batch(yours, Mark(1, 2), [2])
    commit(mine, Mark(1, 1))
    commit(yours, Mark(1, 2))
    assert (mine.last(), yours.last()) == (Mark(1, 1), Mark(1, 2))
    assert place.numbers() == [1, 2]


def test_the_count_of_batches_survives_delta_s_own_checkpoints(place: TablePlace) -> None:
    table = place.table()
    for batch in (1, 2, 3):
        write_batch(table, Mark(batch, batch), [batch], None if batch == 1 else Mark(batch - 1, batch - 1))
        commit(table, Mark(batch, batch))
        place.delta().create_checkpoint()
    place.delta().cleanup_metadata()
    for version in range(2):
        table.place.remove(f"{LOG}/{version:020d}.json")
    assert table.last() == Mark(3, 3)
    assert [page.mark.batch for page in table.ledger.pages(table.last())] == [3, 2, 1]


def test_what_cannot_be_committed_any_more_is_removed_and_nothing_else(place: TablePlace) -> None:
    table = place.table()
    pages = {}
    for mark in (Mark(1, 1), Mark(1, 2), Mark(2, 1), Mark(3, 3)):
        pages[mark] = write_batch(table, mark, [mark.token], None if mark.batch == 1 else Mark(1, 2))
    assert table.clean("run") == []
    commit(table, Mark(1, 2))
    assert table.clean("run") == ["_rota/task/00000001-1.json", "task/00000001-1"]
    kept = {table.ledger.path(mark) for mark in pages if mark != Mark(1, 1)}
    kept |= {part for mark, page in pages.items() if mark != Mark(1, 1) for part in page.parts}
    assert {name for name in place.names() if name.startswith(("task/", "_rota/task/"))} == kept
    assert place.numbers() == [2]


def test_a_gap_is_refused(place: TablePlace) -> None:
    table = place.table()
    write_batch(table, Mark(2, 1), [1])
    with pytest.raises(TableUnfit, match="restored or replaced"):
        commit(table, Mark(2, 1))
    assert place.numbers() == []


@pytest.mark.parametrize("content", [None, b"{"], ids=["gone", "cut short"])
def test_a_ledger_that_cannot_be_read_is_an_error_not_an_empty_one(place: TablePlace, content: bytes | None) -> None:
    table = place.table()
    write_batch(table, Mark(1, 1), [1])
    commit(table, Mark(1, 1))
    path = table.ledger.path(Mark(1, 1))
    if content is None:
        table.place.remove(path)
    else:
        table.place.write_whole(path, content)
    with pytest.raises(LedgerDamaged, match="contains batch 1 of task"):
        list(table.ledger.pages(table.last()))


def test_a_type_that_delta_has_not_is_named(place: TablePlace) -> None:
    table = place.table()
    write_batch(table, Mark(1, 1), [1])
    with pytest.raises(TableUnfit, match="no type"):
        commit(table, Mark(1, 1), SCHEMA.replace("long", "char"))
