"""The kinds of task that are installed on this member, loaded when first asked about."""

import logging
from collections.abc import Mapping, Sequence
from traceback import extract_tb
from typing import Any

from tasks.access import EVERYTHING, Access
from tasks.field_errors import FieldError
from tasks.kind import Kind
from tasks.kinds import KindEntry, check_params, load, params_schema, refused

_log = logging.getLogger(__name__)


class InstalledKinds:
    """Implements `node.http.node_port.Kinds` by what is `installed`, whether or not it is offered here, or loads.

    `access` is what tasks may reach on this node.
    """

    def __init__(self, installed: Mapping[str, KindEntry], access: Access = EVERYTHING) -> None:
        self._access = access
        self._entries = dict(installed)
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

    def check(self, kind: str, params: Mapping[str, Any], *, bound: bool) -> Sequence[FieldError]:
        """What is wrong with params of a task that is `bound` to one member, or not.

        Raises `KeyError`, or `KindError` if the kind does not load.
        """
        model = self._kind(kind)
        try:
            return check_params(model, params, bound=bound)
        except Exception as error:  # noqa: BLE001 - a kind is anybody's code
            # What it stumbles over is most likely not right.
            _log_failure(kind, error)
            what = type(error).__name__
            return [FieldError("params", f"{kind} failed to check them ({what}): this node's log says where")]

    def refused(self, kind: str, params: Mapping[str, Any], task: str) -> Sequence[str]:
        """What of the params of that task this node would refuse. Raises as `check` does."""
        model = self._kind(kind)
        try:
            return refused(model, params, task, self._access)
        except Exception as error:  # noqa: BLE001 - a kind is anybody's code
            _log_failure(kind, error)
            return []

    def _kind(self, kind: str) -> type[Kind[Any]]:
        if kind not in self._loaded:
            self._loaded[kind] = load(self._entries[kind].target)
        return self._loaded[kind]


def _log_failure(kind: str, error: Exception) -> None:
    """Log where it came from, and not what it says: that may be a secret's."""
    what, where = type(error).__name__, extract_tb(error.__traceback__)[-1]
    _log.warning("the kind %s failed to check params: %s at %s:%s", kind, what, where.filename, where.lineno)
