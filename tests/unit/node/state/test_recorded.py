"""The replicated state that follows from the same entries is the same in every build (tests/golden/histories.py)."""

import pytest

from tests.golden.histories import FILE, Recorded, difference, recorded

HISTORIES = list(recorded(FILE))


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: f"seed-{history.seed}")
def test_entries_that_an_earlier_build_recorded_give_the_same_states_byte_for_byte(history: Recorded) -> None:
    assert difference(history) is None


def test_an_entry_that_has_another_effect_is_named() -> None:
    history = HISTORIES[0]
    other = history._replace(entries=[*history.entries[:5], *history.entries[6:]], marks=history.marks[:-1])
    assert difference(other) == f"seed {history.seed}: entry 5 gives another state, or has other effects"
