"""Cursors of lists."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.history.file import RunPosition
from node.http.api.pages import cursor_of, key_of, name_after, run_before
from node.http.door.problems import Problem


@given(st.text(), st.integers(min_value=-(2**63), max_value=2**63 - 1))
@settings(max_examples=50)
def test_a_cursor_returns_its_key(name: str, number: int) -> None:
    assert key_of(cursor_of(number, name), int, str) == [number, name]
    assert run_before(cursor_of(number, name)) == RunPosition(number, name)


@given(st.text(max_size=40))
@settings(max_examples=100)
def test_a_cursor_that_is_made_up_is_refused(text: str) -> None:
    with pytest.raises(Problem) as caught:
        run_before(text)
    assert [error.field for error in caught.value.errors] == ["after"]


@pytest.mark.parametrize("made_up", ['[1, "\\ud800"]', "[" * 750, '[1, "a", NaN]', "9" * 700, "[²]"])
def test_a_cursor_of_json_that_is_not_a_key_is_refused(made_up: str) -> None:
    cursor = base64.urlsafe_b64encode(made_up.encode()).decode()
    with pytest.raises(Problem) as caught:
        run_before(cursor)
    assert [error.field for error in caught.value.errors] == ["after"]


def test_a_cursor_of_another_list_is_refused() -> None:
    with pytest.raises(Problem):
        name_after(cursor_of(1, "a"))
    with pytest.raises(Problem):
        run_before(cursor_of(2**70, "a"))
