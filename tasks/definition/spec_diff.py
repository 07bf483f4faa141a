"""The differences between two definitions of a task, field by field (pure)."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

ABSENT: Final = None
"""The value of a field that only the other definition has. In a definition, null means the same: not given."""


class FieldChange(NamedTuple):
    """A field, as a dotted name, with its values before and after."""

    field: str
    before: Any
    after: Any


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[FieldChange]:
    """Return the fields that differ, in the order of `after`, then the fields only in `before`. Compares lists whole.

    >>> changes({"weight": 1, "params": {"a": 1, "b": 2}}, {"weight": 1, "params": {"a": 1, "b": 3, "c": 4}})
    [FieldChange(field='params.b', before=2, after=3), FieldChange(field='params.c', before=None, after=4)]
    """
    return list(_changes(before, after, ""))


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], within: str) -> Iterator[FieldChange]:
    for name in (*after, *(name for name in before if name not in after)):
        old, new = before.get(name, ABSENT), after.get(name, ABSENT)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _changes(old, new, f"{within}{name}.")
        elif old != new or type(old) is not type(new):
            yield FieldChange(within + name, old, new)
