"""Copies values with a few fields changed. It is fast, because applying one entry makes several such copies."""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from node.state.shape import field_names

__all__ = ("Maker", "replace")

V = TypeVar("V")


class Maker(Generic[V]):
    """Makes values of a frozen dataclass with slots from all its fields, faster than its constructor does.

    It applies no defaults and does not call `__post_init__`.
    """

    __slots__ = ("cls", "fields_of", "setters")

    def __init__(self, cls: type[V]) -> None:
        names = field_names(cls)
        self.cls = cls
        self.fields_of: Callable[[Any], tuple[Any, ...]] = attrgetter(*names)
        """Reads the fields of a value, in order."""
        self.setters: dict[str, Callable[[V, Any], None]] = {name: getattr(cls, name).__set__ for name in names}

    def make(self, fields: Iterable[Any]) -> V:
        """Make a value from its fields, which are given in the order of their declaration."""
        made = self.cls.__new__(self.cls)
        for set_field, field in zip(self.setters.values(), fields, strict=True):
            set_field(made, field)
        return made


class _Makers(dict[type[Any], Maker[Any]]):
    def __missing__(self, cls: type[V]) -> Maker[V]:
        maker = self[cls] = Maker(cls)
        return maker


_MAKERS = _Makers()

if TYPE_CHECKING:
    # mypy then checks the names and types of the changes.
    from dataclasses import replace
else:

    def replace(value: V, /, **changes: Any) -> V:
        """Copy a frozen dataclass with slots, with the fields in `changes` replaced."""
        maker = _MAKERS[type(value)]
        made = maker.make(maker.fields_of(value))
        for name, field in changes.items():
            maker.setters[name](made, field)
        return made
