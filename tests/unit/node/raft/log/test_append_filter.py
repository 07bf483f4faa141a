"""Raft, section 5.3: truncate on conflict only. Compared, entry by entry, with the rule as the paper states it."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.raft.log.append_filter import CommittedConflict, Entry, Known, New, Unmatched, trim


class Log:
    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = list(entries)

    @property
    def first_index(self) -> int:
        return self.entries[0][1]

    @property
    def last_index(self) -> int:
        return self.entries[-1][1]

    def term_at(self, index: int) -> int:
        return self.entries[index - self.first_index][2]


def log(*terms: int, first: int = 1) -> Log:
    return Log(entries(*terms, first=first))


def entries(*terms: int, first: int) -> list[Entry]:
    return [(b"%d" % (first + place), first + place, term) for place, term in enumerate(terms)]


def test_known_entries_are_dropped_and_later_ones_stay() -> None:
    assert trim(log(0, 1, 1, 1, 1), 1, 1, 0, entries(1, 1, first=2)) == Known(3)


def test_a_heartbeat_with_an_earlier_prev_index_truncates_nothing() -> None:
    assert trim(log(0, 1, 1, 1), 4, 2, 1, []) == Known(2)


def test_new_entries_follow_the_last_known_one() -> None:
    assert trim(log(0, 1, 1), 1, 1, 0, entries(1, 1, 1, first=2)) == New(3, 1, entries(1, first=4))


def test_only_conflicting_entries_are_replaced() -> None:
    assert trim(log(0, 1, 1, 1), 2, 1, 0, entries(1, 2, first=2)) == New(2, 1, entries(2, first=3))


def test_a_gap_or_a_different_previous_term_makes_the_leader_decrease_next_index() -> None:
    assert trim(log(0, 1), 1, 3, 1, entries(1, first=4)) == Unmatched()
    assert trim(log(0, 1, 1), 1, 3, 2, []) == Unmatched()


def test_compacted_entries_count_as_known() -> None:
    compacted = log(3, 3, 3, first=10)
    assert trim(compacted, 12, 5, 1, entries(1, 1, first=6)) == Known(7)
    assert trim(compacted, 12, 8, 2, entries(3, 3, 3, 3, 3, first=9)) == New(12, 3, entries(3, first=13))


def test_committed_entries_are_never_truncated() -> None:
    with pytest.raises(CommittedConflict):
        trim(log(0, 1, 1, 1), 3, 1, 0, entries(1, 2, first=2))


TERMS = st.lists(st.integers(1, 3), max_size=6).map(lambda terms: [0, *sorted(terms)])


@settings(max_examples=150, deadline=None)
@given(mine=TERMS, leaders=TERMS, start=st.integers(0, 6), length=st.integers(0, 7))
def test_the_resulting_log_equals_that_of_the_raft_paper(
    mine: list[int], leaders: list[int], start: int, length: int
) -> None:
    """Figure 2, AppendEntries: receiver implementation, steps 2 to 4."""
    own, their = log(*mine), log(*leaders)
    if start >= len(leaders):
        return
    prev = their.entries[start]
    sent = their.entries[start + 1 : start + 1 + length]
    found = trim(own, 0, prev[1], prev[2], sent)
    expected = list(own.entries)
    if len(expected) < prev[1] or expected[prev[1] - 1][2] != prev[2]:
        assert found == Unmatched()
        return
    for entry in sent:
        if len(expected) >= entry[1] and expected[entry[1] - 1][2] != entry[2]:
            del expected[entry[1] - 1 :]
        if len(expected) < entry[1]:
            expected.append(entry)
    if isinstance(found, New):
        own.entries = [*own.entries[: found.prev_index], *found.entries]  # what the library does with it
    else:
        assert found == Known(prev[1] + len(sent))
    assert [entry[1:] for entry in own.entries] == [entry[1:] for entry in expected]
