"""The kinds of task that are installed on this member. Each is loaded when it is first used."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from traceback import extract_tb
from typing import Any, Final

from pydantic import ValidationError

from node.app.config import Config
from node.execution.account import why_not_as
from node.state.value import State
from tasks.access import EVERYTHING, Access
from tasks.definition.field_errors import FieldError
from tasks.definition.run import HELD
from tasks.installed_kinds import (
    KindEntry,
    KindError,
    action_of,
    check_params,
    load_kind,
    params_schema,
    refused_reaches,
)
from tasks.kind import Kind
from tasks.secret import Reference, lacking, references_in

_log = logging.getLogger(__name__)
NO_ARGS: Final[Mapping[str, Any]] = {}


class InstalledKinds:
    """Implements `node.http.node_port.KindsPort` with the `installed` kinds, whether offered here or not.

    `access` is what tasks may reach on this node, `node` its id, and `run_as` the users that tasks may run as here.
    """

    def __init__(
        self,
        installed: Mapping[str, KindEntry],
        access: Access = EVERYTHING,
        node: str = "",
        run_as: Sequence[str] = (),
    ) -> None:
        self._access = access
        self._node, self._run_as = node, run_as
        self._entries = dict(installed)
        self._loaded: dict[str, type[Kind[Any]]] = {}
        self._schemas: dict[str, dict[str, Any]] = {}

    def names(self) -> frozenset[str]:
        """The installed kinds."""
        return frozenset(self._entries)

    def schema(self, kind: str) -> dict[str, Any]:
        """The JSON schema of a kind's params. Raises `KeyError`, or `KindError` if it does not load."""
        if kind not in self._schemas:
            self._schemas[kind] = params_schema(self._kind(kind))
        return self._schemas[kind]

    def check(self, kind: str, params: Mapping[str, Any], *, bound: bool) -> Sequence[FieldError]:
        """The errors of params. `bound`: the task is bound to one member.

        Raises `KeyError`, or `KindError` if the kind does not load.
        """
        model = self._kind(kind)
        try:
            return check_params(model, params, bound=bound)
        except Exception as error:  # noqa: BLE001 - a kind is third-party code
            # Params on which a kind's check fails are most likely wrong.
            _log_failure(kind, error)
            what = type(error).__name__
            return [FieldError("params", f"{kind} failed to check them ({what}): see this node's log")]

    def refused(self, kind: str, params: Mapping[str, Any], task: str, run_as: str | None) -> Sequence[str]:
        """What this node forbids to a task with these valid params, a sentence each. Raises as `check` does."""
        model = self._kind(kind)
        user = "" if run_as is None else why_not_as(run_as, self._run_as, self._node)
        found = [user] if user else []
        try:
            return [*found, *refused_reaches(model, params, task, self._access)]
        except Exception as error:  # noqa: BLE001 - a kind is third-party code
            _log_failure(kind, error)
            return found

    def references(
        self, kind: str, params: Mapping[str, Any], action: str = "", args: Mapping[str, Any] = NO_ARGS
    ) -> Sequence[Reference]:
        """The references to secrets in params, and in the args of an `action`; () if those cannot be read here."""
        try:
            model = self._kind(kind)
            named = list(references_in(model.Params.model_validate(dict(params))))
            if action:
                named += references_in(action_of(model, action).model_validate(dict(args)))
            return named
        except (KeyError, KindError, ValidationError):
            return ()  # the attempt will report this
        except Exception as error:  # noqa: BLE001 - a kind is third-party code
            _log_failure(kind, error)
            return ()

    def _kind(self, kind: str) -> type[Kind[Any]]:
        if kind not in self._loaded:
            self._loaded[kind] = load_kind(self._entries[kind].target)
        return self._loaded[kind]


def _log_failure(kind: str, error: Exception) -> None:
    """Log where the error was raised, without its message, which may quote a secret."""
    what, where = type(error).__name__, extract_tb(error.__traceback__)[-1]
    _log.warning("the kind %s failed to check params: %s at %s:%s", kind, what, where.filename, where.lineno)


async def lacking_secrets(state: State, task: str, kinds: InstalledKinds, config: Config) -> list[str]:
    """A sentence for each secret that the next run of `task` names and that does not resolve on this member.

    The secrets' files are read in another thread, since they may be on a network file system.
    """
    row = state.tasks.get(task)
    if row is None:
        return []
    runs = (state.runs[run_id] for run_id in state.runs_of.get(task, ()))
    params = next((run.params for run in runs if run.state not in HELD and run.params is not None), row.spec.params)
    references = kinds.references(row.placing.kind, params)
    return await asyncio.to_thread(_lacking, references, config) if references else []


def _lacking(references: Sequence[Reference], config: Config) -> list[str]:
    found = (lacking(each, config.secrets_dir, config.env_allow, config.variables, config.own) for each in references)
    return [why for why in found if why is not None]
