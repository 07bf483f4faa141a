"""The heap of next looks."""

from hypothesis import given, settings
from hypothesis import strategies as st

from node.duty.agenda import Agenda


def test_the_earliest_comes_first_and_is_taken_off() -> None:
    agenda = Agenda()
    for task, at_us in (("a", 30), ("b", 10), ("c", 20)):
        agenda.put(task, at_us)
    assert agenda.next_us() == 10
    assert agenda.due(20) == [(10, "b"), (20, "c")]
    assert (agenda.due(29), agenda.next_us()) == ([], 30)


def test_a_later_time_replaces_an_earlier_one_and_none_removes_it() -> None:
    agenda = Agenda()
    agenda.put("a", 10)
    agenda.put("a", 50)
    assert agenda.next_us() == 50
    agenda.hasten("a", 60)
    assert agenda.next_us() == 50
    agenda.hasten("a", 40)
    assert agenda.next_us() == 40
    agenda.put("a", None)
    assert agenda.next_us() is None


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.one_of(st.none(), st.integers(0, 50))), max_size=300),
    st.integers(0, 50),
)
@settings(max_examples=60, deadline=None)
def test_it_holds_what_a_plain_table_would(puts: list[tuple[str, int | None]], now_us: int) -> None:
    agenda = Agenda()
    table: dict[str, int] = {}
    for task, at_us in puts:
        agenda.put(task, at_us)
        table.pop(task, None)
        if at_us is not None:
            table[task] = at_us
    due = [(at_us, task) for task, at_us in table.items() if at_us <= now_us]
    assert agenda.due(now_us) == sorted(due)
    assert agenda.next_us() == min((at_us for at_us in table.values() if at_us > now_us), default=None)
