"""Converts dataclasses to and from lists of plain values, with every type checked. The packed forms are made of these.

A dataclass becomes the list of its fields, in order. Later versions may add fields at the end, with defaults. A list
from an older version lacks the new fields, and is read with their defaults. A list with unknown fields is refused; so
trailing fields that have their defaults are left out, and an older version can read the list. The default of such a
field is never changed.
"""

import types
from collections.abc import Callable
from dataclasses import MISSING
from math import isfinite
from typing import Any, Final, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Read = Callable[[Any], Any]
Write = Callable[[Any], Any]

LATEST_US: Final = 253_402_300_799_999_999
"""The last microsecond of the year 9999. A later time cannot be written as a date."""

_UINT64_MAX: Final = 2**64 - 1
_DEPTH_MAX: Final = 32
_AS_IT_IS: Final = frozenset({str, int, bool, type(None)})

_ALWAYS_WRITTEN: Final = {
    "Attempt": 10,
    "Breach": 4,
    "Breached": 5,
    "Cancel": 3,
    "ChannelRow": 15,
    "Claim": 6,
    "DeleteTask": 3,
    "Drain": 4,
    "EndedRun": 6,
    "Finish": 8,
    "Kept": 13,
    "Lead": 3,
    "Member": 16,
    "Notice": 8,
    "Outcome": 6,
    "Put": 2,
    "Result": 3,
    "Run": 21,
    "Series": 6,
    "Settings": 7,
    "SkipOccurrences": 5,
    "StandAside": 4,
    "Start": 7,
    "TakeLead": 4,
    "Task": 8,
    "TaskRow": 19,
    "TellingResult": 4,
    "Told": 6,
    "Watchdog": 4,
}
"""How many fields of these types are always written, even at their defaults: as many as before defaults were left out.
These numbers stay as they are, since equal values must have equal bytes in all versions."""


class Misfit(ValueError):
    """A value has a wrong type. The message says which value, and where."""


def json_value(value: Any, depth: int = _DEPTH_MAX) -> Any:
    """Convert `value` to JSON types: None, booleans, 64-bit integers, floats, text, lists, and dicts with text keys.

    NaN and infinities become None, as in ECMAScript's JSON.stringify, so that a run whose result contains NaN can still
    finish. Raises `Misfit` for any other type, and for values nested more than 32 deep.
    """
    kind = type(value)
    if kind in _AS_IT_IS:
        return value
    if kind is float:
        return value if isfinite(value) else None
    if depth == 0:
        raise Misfit(f"nested more than {_DEPTH_MAX} deep")
    if kind is dict:
        if not all(type(name) is str for name in value):
            raise Misfit("a name that is not text")
        return {name: item if type(item) in _AS_IT_IS else json_value(item, depth - 1) for name, item in value.items()}
    if kind is list:
        return [item if type(item) in _AS_IT_IS else json_value(item, depth - 1) for item in value]
    raise Misfit(f"{kind.__name__} is not a JSON type")


class Shape(Generic[T]):
    """Writes one dataclass or NamedTuple as a list of plain values, and reads it back.

    `names` are the fields to write and read; a list must have at least the first `required` of them. None: all fields
    in their order; a list must have at least the fields without a default.
    """

    def __init__(self, cls: type[T], names: tuple[str, ...] | None = None, required: int = 0) -> None:
        hints = get_type_hints(cls)
        defaults = _defaults(cls)
        if names is None:
            names = field_names(cls)
            required = len(names) - len(defaults)
        always = _ALWAYS_WRITTEN.get(cls.__name__, required)
        self._cls = cls
        self._names = names
        self._reads = tuple(_reader(hints[name], name) for name in names)
        self._writes = tuple(_writer(hints[name]) for name in names)
        self._required = required
        self._left_out = [
            defaults[name] if write is None else write(defaults[name])
            for name, write in zip(names[always:], self._writes[always:], strict=True)
        ]

    def wire(self, value: T) -> list[Any]:
        """Write the fields of `value` as a list of plain values, without trailing fields at their defaults.

        May raise any error if a value has a wrong type.
        """
        wire = [
            getattr(value, name) if write is None else write(getattr(value, name))
            for name, write in zip(self._names, self._writes, strict=True)
        ]
        for default in reversed(self._left_out):
            if wire[-1] != default:
                break
            wire.pop()
        return wire

    def named(self, value: T) -> dict[str, Any]:
        """Return the fields of `value` that `wire` writes, by name, unconverted."""
        return {name: getattr(value, name) for name in self._names[: len(self.wire(value))]}

    def value(self, wire: Any) -> T:
        """Read a value that `wire` wrote, if this shape has all its fields. Raises `Misfit`."""
        return self._cls(*self._read(wire))

    def fields(self, wire: Any) -> dict[str, Any]:
        """Read the fields that `wire` wrote, by name. Raises `Misfit`."""
        return dict(zip(self._names, self._read(wire), strict=False))

    def _read(self, wire: Any) -> list[Any]:
        if type(wire) is not list or not self._required <= len(wire) <= len(self._names):
            raise Misfit(f"{self._cls.__name__} is a list of {self._required} to {len(self._names)} fields")
        fields: list[Any] = []
        try:
            for read, item in zip(self._reads, wire, strict=False):
                fields.append(read(item))
        except Misfit as misfit:
            raise Misfit(f"{self._cls.__name__}.{self._names[len(fields)]}: {misfit}") from None
        return fields


_SHAPES: Final[dict[type[Any], Shape[Any]]] = {}


def shape(cls: type[T]) -> Shape[T]:
    """Return the shape of `cls`, cached."""
    known: Shape[T] | None = _SHAPES.get(cls)
    if known is None:
        known = _SHAPES[cls] = Shape(cls)
    return known


def field_names(cls: type[Any]) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass or NamedTuple, in order."""
    return getattr(cls, "_fields", None) or tuple(cls.__dataclass_fields__)


def marked_fields(cls: type[Any], marker: Any) -> dict[str, Any]:
    """The fields of a dataclass or NamedTuple whose types are `Annotated` with `marker`, in order: their bare types."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: get_args(hint)[0] for name, hint in hints.items() if marker in getattr(hint, "__metadata__", ())}


def _defaults(cls: type[Any]) -> dict[str, Any]:
    """Return the default of each field of a dataclass or NamedTuple that has one."""
    if hasattr(cls, "_fields"):
        return dict(cls._field_defaults)
    found = {}
    for name, one in cls.__dataclass_fields__.items():
        if one.default is not MISSING:
            found[name] = one.default
        elif one.default_factory is not MISSING:
            found[name] = one.default_factory()
    return found


def _is_nested(hint: Any) -> bool:
    return hasattr(hint, "__dataclass_fields__") or hasattr(hint, "_fields")


def _optional(hint: Any) -> Any:
    """Return X if the type is `X | None`; None for any other type."""
    if get_origin(hint) in (Union, types.UnionType):
        inner = [one for one in get_args(hint) if one is not type(None)]
        assert len(inner) == 1, f"only X | None is understood, not {hint}"
        return inner[0]
    return None


def _reader(hint: Any, name: str) -> Read:
    inner = _optional(hint)
    if inner is not None:
        read = _reader(inner, name)
        return lambda item: None if item is None else read(item)
    if _is_nested(hint):
        return shape(hint).value
    if hint is int:
        return _whole(LATEST_US if name.endswith("_us") else _UINT64_MAX)
    if hint is float:
        return _number
    if hint in (str, bytes, bool):
        return _exactly(hint)
    return _container(hint, name)


def _container(hint: Any, name: str) -> Read:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _one_of(frozenset(arguments))
    if origin is tuple and arguments[-1] is Ellipsis:
        return _many(_reader(arguments[0], name), tuple)
    if origin is tuple:
        return _few(tuple(_reader(one, name) for one in arguments))
    if origin is frozenset:
        return _many(_reader(arguments[0], name), frozenset)
    if origin is dict:
        return _table
    raise TypeError(f"no shape for {hint}")


def _writer(hint: Any) -> Write | None:
    """Return the function that converts a field to plain values; None if msgpack packs the field as it is."""
    inner = _optional(hint)
    if inner is not None:
        write = _writer(inner)
        return None if write is None else lambda item: None if item is None else write(item)
    if _is_nested(hint):
        return shape(hint).wire
    if get_origin(hint) is frozenset:
        return sorted
    each = _writer(get_args(hint)[0]) if get_origin(hint) is tuple else None
    return None if each is None else lambda items: [each(item) for item in items]


def _whole(most: int) -> Read:
    def read(item: Any) -> int:
        if type(item) is not int or not 0 <= item <= most:
            raise Misfit(f"not a whole number from 0 to {most}")
        return item

    return read


def _number(item: Any) -> float:
    if type(item) not in (float, int) or not isfinite(item):
        raise Misfit("not a number")
    return float(item)


def _exactly(kind: type[T]) -> Callable[[Any], T]:
    def read(item: Any) -> T:
        if type(item) is not kind:
            raise Misfit(f"not {kind.__name__}")
        return item

    return read


def _one_of(words: frozenset[Any]) -> Read:
    def read(item: Any) -> str:
        if type(item) is not str or item not in words:
            raise Misfit("not one of the words known here")
        return item

    return read


def _many(read_one: Read, make: Callable[[list[Any]], Any]) -> Read:
    def read(items: Any) -> Any:
        if type(items) is not list:
            raise Misfit("not a list")
        return make([read_one(item) for item in items])

    return read


def _few(read_each: tuple[Read, ...]) -> Read:
    def read(items: Any) -> tuple[Any, ...]:
        if type(items) is not list or len(items) != len(read_each):
            raise Misfit(f"not a list of {len(read_each)}")
        return tuple([read_one(item) for read_one, item in zip(read_each, items, strict=True)])

    return read


def _table(item: Any) -> dict[str, Any]:
    if type(item) is not dict:
        raise Misfit("not a table")
    table: dict[str, Any] = json_value(item)
    return table
