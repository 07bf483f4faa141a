"""Fields that a type gains: what is packed stays as it is while they are at their defaults."""

from collections import namedtuple
from dataclasses import make_dataclass
from typing import Any, get_type_hints

import msgpack
import pytest

from node.state.entries import CODES
from node.state.members import TakeLead
from node.state.shape import _ALWAYS_WRITTEN, _SHAPES, Misfit, field_names, shape
from node.state.telling import PutChannel
from node.state.value import RULES, DeadlineEvent, EndedRun, Result
from tests.unit.node.state.given import NOW_US, cluster, hook


def _values() -> list[Any]:
    """Values of the types that snapshots are made of, and an ended run."""
    history = cluster("a")
    history.put("t", schedule={"every_s": 1})
    history.must(TakeLead(NOW_US, "a", 1, RULES))
    history.must(PutChannel(NOW_US, "ops", hook().pack()))
    run = history.claim("t", NOW_US + 1_000_000)
    state = history.state
    row = state.tasks["t"]
    of_records = [state.members["a"], row, row.placing, run, run.attempts[0], state.channels["ops"], Result("ok")]
    return [state.settings, state.lead, *of_records, EndedRun(run, "succeeded", NOW_US)]


VALUES = _values()


def _gained(cls: type[Any]) -> type[Any]:
    """A type of the same name with the fields of `cls` and two more, `later_count` and `later_words`."""
    hints = {"later_count": int, "later_words": tuple[str, ...]}
    more = {"later_count": 0, "later_words": ("a",)}
    if hasattr(cls, "_fields"):
        defaults = [*cls._field_defaults.values(), *more.values()]
        gained: Any = namedtuple(cls.__name__, [*cls._fields, *more], defaults=defaults)  # type: ignore[misc]
        gained.__annotations__ = get_type_hints(cls) | hints
        return gained
    return make_dataclass(cls.__name__, [(name, hints[name], more[name]) for name in more], bases=(cls,), frozen=True)


def _sent(value: Any) -> Any:
    return msgpack.unpackb(msgpack.packb(shape(type(value)).wire(value)))


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_field_that_a_type_gains_is_written_unless_it_is_at_its_default(value: Any) -> None:
    known = {name: getattr(value, name) for name in field_names(type(value))}
    before = shape(type(value)).wire(value)
    assert len(before) >= _ALWAYS_WRITTEN[type(value).__name__]
    defaults = shape(type(value))._left_out
    left_out = defaults[len(defaults) - (len(known) - len(before)) :]
    gained = _gained(type(value))
    for more, written in (
        ({}, []),
        ({"later_count": 0, "later_words": ("a",)}, []),
        ({"later_count": 3}, [3]),
        ({"later_words": ()}, [0, []]),
        ({"later_count": 3, "later_words": ("a", "b")}, [3, ["a", "b"]]),
    ):
        after = gained(**known, **more)
        wire = shape(gained).wire(after)
        assert msgpack.packb(wire) == msgpack.packb([*before, *(left_out if written else []), *written])
        assert shape(gained).value(_sent(after)) == after
        assert list(shape(gained).named(after)) == [*known, "later_count", "later_words"][: len(wire)]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_each_version_reads_what_the_other_has_written_if_it_knows_the_fields(value: Any) -> None:
    gained = _gained(type(value))
    known = {name: getattr(value, name) for name in field_names(type(value))}
    assert shape(gained).value(_sent(value)) == gained(**known)
    assert shape(type(value)).value(_sent(gained(**known))) == value
    with pytest.raises(Misfit, match=f"{type(value).__name__} is a list of"):
        shape(type(value)).value(_sent(gained(**known, later_count=3)))


def test_the_types_that_are_always_written_with_so_many_fields_are_there_and_have_them() -> None:
    for cls in (*CODES.values(), DeadlineEvent, *map(type, VALUES)):
        shape(cls)
    known = {cls.__name__: len(field_names(cls)) for cls in _SHAPES}
    assert {name: count for name, count in _ALWAYS_WRITTEN.items() if count > known.get(name, 0)} == {}
