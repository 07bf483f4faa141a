"""A quick copy is the one that `dataclasses.replace` makes."""

import dataclasses
from typing import Any

import pytest

from node.state.copying import Maker, replace
from node.state.draft import Draft
from node.state.shape import field_names
from node.state.value import Lead, Member, Settings, State
from tests.unit.node.state.given import NOW_US, cluster


def _values() -> list[Any]:
    history = cluster("a", "b")
    history.put("t", schedule={"every_s": 1})
    run = history.claim("t", NOW_US + 1_000_000)
    state = history.state
    return [state, state.members["b"], state.tasks["t"], run, run.attempts[0], state.settings, history.last]


@pytest.mark.parametrize("value", _values(), ids=lambda value: type(value).__name__)
def test_a_copy_differs_in_what_is_changed_and_in_nothing_else(value: Any) -> None:
    before = repr(value)
    assert replace(value) == value
    assert replace(value) is not value
    for name in field_names(type(value)):
        assert replace(value, **{name: "other"}) == dataclasses.replace(value, **{name: "other"})
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(replace(value), name, "other")
    assert repr(value) == before


def test_a_field_that_there_is_not_is_refused() -> None:
    with pytest.raises(KeyError, match="terms"):
        replace(Lead(), terms=3)  # type: ignore[call-arg]


def test_a_value_is_made_of_all_its_fields() -> None:
    maker = Maker(Settings)
    fields = maker.fields_of(Settings(lease_s=9.0))
    assert maker.make(fields) == Settings(lease_s=9.0)
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        maker.make(fields[:-1])


def test_a_draft_has_every_field_of_the_state_and_becomes_it_again() -> None:
    state = cluster("a").state
    draft = Draft(state)
    assert {name for name in field_names(State) if getattr(draft, name) != getattr(state, name)} == {"index"}
    draft.put_member(Member("z", 1, "z.example", 7001, 8101))
    assert draft.state(state.windows) == dataclasses.replace(state, index=state.index + 1, members=draft.members)
