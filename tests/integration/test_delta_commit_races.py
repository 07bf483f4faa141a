"""Of attempts that commit to a table at once one does, and without the rules both would. Real Delta, no Spark."""

import json
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

from deltalake import DeltaTable, Transaction

from spark_tasks.table.delta import FIRST, LOG, Overtaken, Table, app_id
from spark_tasks.table.ledger import Mark
from tasks.places.place import Place
from testkit.spark.tables import TablePlace, commit, write_batch

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("batch", [1, 2])
def test_of_two_writers_that_race_one_commits_a_batch(
    place: TablePlace, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read the table before either commits: only Delta's and the store's own checks refuse the second."""
    table = place.table()
    if batch == 2:
        write_batch(table, Mark(1, 1), [0])
        commit(table, Mark(1, 1))
    both_have_read = threading.Barrier(2)
    check_follows = Table._check_follows

    def meet(self: Table, mark: Mark, last: Mark | None) -> None:
        check_follows(self, mark, last)
        both_have_read.wait(timeout=30)

    monkeypatch.setattr(Table, "_check_follows", meet)
    outcomes: dict[int, str] = {}

    def attempt(token: int) -> None:
        try:
            commit(place.table(), Mark(batch, token))
            outcomes[token] = "committed"
        except Overtaken:
            outcomes[token] = "refused"

    for token in (7, 8):
        write_batch(table, Mark(batch, token), [token])
    _together([partial(attempt, token) for token in (7, 8)])
    assert sorted(outcomes.values()) == ["committed", "refused"]
    winner = next(token for token, outcome in outcomes.items() if outcome == "committed")
    assert table.last() == Mark(batch, winner)
    assert place.numbers() == ([0, winner] if batch == 2 else [winner])


def _together(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_an_old_token_commits_nothing_once_a_later_one_has_the_table(place: TablePlace) -> None:
    table = place.table()
    assert (table.holder(), table.claim(6, instead_of=None)) == (None, False), "there is no table"
    write_batch(table, Mark(1, 5), [1])
    commit(table, Mark(1, 5))
    assert table.holder() == 5
    assert not table.claim(6, instead_of=4)
    assert table.claim(6, instead_of=5)
    assert (table.holder(), table.last()) == (6, Mark(1, 5)), "and the ledger is as it was"
    write_batch(table, Mark(2, 5), [2], previous=Mark(1, 5))
    with pytest.raises(Overtaken, match=r"token 6, not .*holds"):
        commit(table, Mark(2, 5))
    write_batch(table, Mark(2, 6), [3], previous=Mark(1, 5))
    commit(table, Mark(2, 6))
    assert place.numbers() == [1, 3]


def _claimed_meanwhile(place: TablePlace, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A table with batch 1 of token 5, which will write batch 2; token 6 claims it once token 5 has read it."""
    table = place.table()
    write_batch(table, Mark(1, 5), [1])
    commit(table, Mark(1, 5))
    write_batch(table, Mark(2, 5), [2], previous=Mark(1, 5))
    monkeypatch.setattr(Table, "_check_follows", lambda self, mark, last: self.claim(6, instead_of=5))
    return table


def test_an_old_token_that_has_read_the_table_already_commits_nothing_either(
    place: TablePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _claimed_meanwhile(place, monkeypatch)
    with pytest.raises(Overtaken, match=r"token 6, not .*holds"):
        commit(table, Mark(2, 5))
    assert place.numbers() == [1]


def test_of_two_that_claim_the_table_at_once_one_has_it(place: TablePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other has to ask the cluster again: it may be the older one."""
    table = place.table()
    write_batch(table, Mark(1, 5), [1])
    commit(table, Mark(1, 5))
    holds = Table._holds

    def overtaken(self: Table, token: int) -> Transaction:
        monkeypatch.setattr(Table, "_holds", holds)
        assert place.table().claim(7, instead_of=5)
        return holds(self, token)

    monkeypatch.setattr(Table, "_holds", overtaken)
    assert not table.claim(6, instead_of=5)
    assert table.holder() == 7


def test_of_two_that_make_the_table_one_does_and_both_use_it(
    place: TablePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """deltalake alone lets both succeed, and the second commit would hold no trace of a conflict."""
    write_new = Place.write_new

    def overtaken(self: Place, name: str, content: bytes) -> bool:
        if name == FIRST:
            monkeypatch.setattr(Place, "write_new", write_new)
            assert commit(place.table(), Mark(1, 8)) == 1
        return write_new(self, name, content)

    for token in (7, 8):
        write_batch(place.table(), Mark(1, token), [token])
    monkeypatch.setattr(Place, "write_new", overtaken)
    with pytest.raises(Overtaken, match="token 8, not 7"):
        commit(place.table(), Mark(1, 7))
    assert place.numbers() == [8]
    assert not [name for name in place.names() if name.endswith(".partial")]


def test_of_many_that_make_the_table_one_does_and_all_use_it(place: TablePlace) -> None:
    """deltalake alone lets several succeed: the later ones replace the schema of the first in another version."""
    together = threading.Barrier(4)
    versions: list[int] = []

    def make(token: int) -> None:
        table = place.table(f"task-{token}")
        write_batch(table, Mark(1, token), [token])
        together.wait(timeout=30)
        versions.append(commit(table, Mark(1, token)))

    _together([partial(make, token) for token in range(1, 5)])
    assert max(versions) == 4
    assert place.numbers() == [1, 2, 3, 4]
    entries = [place.table().place.read(name) or b"" for name in place.names() if name.startswith(LOG)]
    assert len([line for entry in entries for line in entry.splitlines() if "metaData" in json.loads(line)]) == 1


# What follows takes one of the rules away, and shows that rows are then there twice, or come from an old attempt: the
# tests above would see it.

Append = Callable[..., None]
Said = Sequence[Transaction]


def _by_a_later_handle(append: Append) -> Append:
    """The handle that was checked is not the one that commits."""

    def mutant(self: Table, table: DeltaTable, *rest: Any, **more: Any) -> None:
        append(self, self._load(), *rest, **more)

    return mutant


def _without(*names: str) -> Callable[[Append], Append]:
    """A batch's commit does not carry these app transactions."""

    def made(append: Append) -> Append:
        def mutant(
            self: Table, table: DeltaTable, files: Any, said: Sequence[Transaction], *rest: Any, **more: Any
        ) -> None:
            append(self, table, files, [one for one in said if not files or one.app_id not in names], *rest, **more)

        return mutant

    return made


HOLDER = f"{app_id('task')}/holder"
ALL = (app_id("task"), f"{app_id('task')}/token", HOLDER)


@pytest.mark.parametrize("mutate", [_by_a_later_handle, _without(*ALL)], ids=["later handle", "no transactions"])
def test_without_either_half_of_the_check_a_batch_is_there_twice(
    place: TablePlace, mutate: Callable[[Append], Append], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handle that is opened after the other's commit takes the same version again, and a lower one too."""

    def overtaken(self: Table, mark: Mark, last: Mark | None) -> None:
        monkeypatch.setattr(Table, "_check_follows", lambda *_: None)
        commit(place.table(), Mark(2, 7))

    for mark in (Mark(1, 7), Mark(2, 7), Mark(2, 8)):
        write_batch(place.table(), mark, [mark.batch])
    commit(place.table(), Mark(1, 7))
    monkeypatch.setattr(Table, "_append", mutate(Table._append))
    monkeypatch.setattr(Table, "_check_follows", overtaken)
    commit(place.table(), Mark(2, 8))
    assert place.numbers() == [1, 2, 2]


@pytest.mark.parametrize("mutate", [_by_a_later_handle, _without(HOLDER)], ids=["later handle", "no holder"])
def test_without_either_half_of_the_check_an_old_attempt_commits(
    place: TablePlace, mutate: Callable[[Append], Append], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _claimed_meanwhile(place, monkeypatch)
    monkeypatch.setattr(Table, "_append", mutate(Table._append))
    commit(table, Mark(2, 5))
    assert place.numbers() == [1, 2]
