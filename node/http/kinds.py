"""The kinds of task that are installed on this member, loaded when first asked about."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tasks.fields import FieldError
from tasks.kind import Kind
from tasks.kinds import KindEntry, check_params, installed, load, params_schema

_INDEX: Final = re.compile(r"\.(\d+)(?=\.|$)")


class InstalledKinds:
    """Implements `node.http.surface.Kinds` by entry points. A kind that does not import is left out by `names`.

    `entries` stands in for what is installed, in tests.
    """

    def __init__(self, entries: Mapping[str, KindEntry] | None = None) -> None:
        self._entries = dict(installed() if entries is None else entries)
        self._loaded: dict[str, type[Kind[Any]]] = {}
        self._schemas: dict[str, dict[str, Any]] = {}

    def names(self) -> frozenset[str]:
        """All that are installed."""
        return frozenset(self._entries)

    def schema(self, kind: str) -> dict[str, Any]:
        """The JSON schema of a kind's params. Raises `KeyError`, or `KindError` if it does not load."""
        if kind not in self._schemas:
            self._schemas[kind] = params_schema(self._kind(kind))
        return self._schemas[kind]

    def check(self, kind: str, params: Mapping[str, Any]) -> Sequence[FieldError]:
        """What is wrong with params. Raises `KeyError`, or `KindError` if the kind does not load."""
        found = check_params(self._kind(kind), params)
        return [FieldError(_INDEX.sub(r"[\1]", error.field), error.message) for error in found]

    def _kind(self, kind: str) -> type[Kind[Any]]:
        if kind not in self._loaded:
            self._loaded[kind] = load(self._entries[kind].target)
        return self._loaded[kind]
