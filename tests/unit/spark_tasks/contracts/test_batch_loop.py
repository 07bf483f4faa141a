import pytest

from spark_tasks.contracts.batch_loop import become_holder, commit_batches
from tasks.kind import Fenced


class Overtaken(Exception):
    pass


class Table:
    """Batches that are committed once, by the attempt that holds the table; `thieves` commit some of them first."""

    def __init__(self, token: int, thieves: dict[int, int]) -> None:
        self.token = token
        self.thieves = thieves
        self.holder: int | None = token
        self.committed: list[tuple[int, int]] = []
        self.checked: list[int | None] = []

    def claim(self, token: int, instead_of: int | None) -> bool:
        if self.holder != instead_of:
            return False
        self.holder = token
        return True

    def commit(self, batch: int) -> None:
        if thief := self.thieves.pop(batch, None):
            self.holder = thief
            self.committed.append((batch, thief))
        if self.holder != self.token:
            raise Overtaken(f"by {self.holder}")
        self.committed.append((batch, self.token))

    def following(self) -> int | None:
        batch = len(self.committed) + 1
        return batch if batch <= 4 else None

    def read_again(self, _: Exception) -> None:
        become_holder(self.token, lambda: self.holder, self.checked.append, self.claim)


def test_batches_are_committed_until_nothing_follows() -> None:
    table = Table(7, {})
    commit_batches(1, table.commit, table.following, Overtaken, table.read_again)
    assert table.committed == [(batch, 7) for batch in (1, 2, 3, 4)]
    commit_batches(None, table.commit, table.following, Overtaken, table.read_again)
    assert len(table.committed) == 4


def test_a_batch_of_another_attempt_is_not_committed_again_and_the_next_one_is_claimed() -> None:
    table = Table(7, {2: 6})
    commit_batches(1, table.commit, table.following, Overtaken, table.read_again)
    assert table.committed == [(1, 7), (2, 6), (3, 7), (4, 7)]
    assert table.checked == [6]


def test_the_token_is_checked_before_each_claim_and_a_holder_that_has_changed_is_asked_for_again() -> None:
    holders = iter([3, 4])
    checked: list[int | None] = []
    become_holder(7, lambda: next(holders), checked.append, lambda token, held: (token, held) == (7, 4))
    assert checked == [3, 4]


def test_the_holder_claims_nothing() -> None:
    become_holder(7, lambda: 7, lambda _: pytest.fail("checked"), lambda *_: pytest.fail("claimed"))


def test_an_attempt_whose_token_is_old_claims_nothing() -> None:
    def check_current(_: int | None) -> None:
        raise Fenced

    with pytest.raises(Fenced):
        become_holder(7, lambda: 8, check_current, lambda *_: pytest.fail("claimed"))
