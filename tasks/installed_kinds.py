"""Finds the installed kinds, by the entry-point group `rota.kinds` of any package, and loads them."""

import importlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from traceback import extract_tb
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from tasks.access import EVERYTHING, Access, why_not_as
from tasks.datasets import NO_DATASETS, Datasets
from tasks.definition.field_errors import FieldError, all_errors
from tasks.kind import Kind
from tasks.needs import Needs
from tasks.reach import refusals
from tasks.secret import Reference, references_in

_log = logging.getLogger(__name__)

GROUP = "rota.kinds"

NO_ARGS: Final[Mapping[str, Any]] = {}

UNBOUND: Final = (
    "is on a node's own disk, and another node has other data at the same path: bind the task to the node that has "
    "the data (group: {node: ID}; a pin is only a preference), or set `shared: true` if all nodes see the same data "
    "there"
)
"""The error message if a task's params name data on a member's own disk, but any member may run the task."""


class KindError(Exception):
    """A kind cannot be used: it is not installed, does not load, is not a kind, or two packages have its name."""


@dataclass(frozen=True, slots=True)
class KindEntry:
    """An installed kind. The fields after `target` are known once the kind is loaded, and empty before."""

    #: The kind's name.
    name: str
    #: The kind's class, as `module:Class`.
    target: str
    #: The settings that the kind asks for, by variable (`tasks.kind.Kind`).
    environment: Mapping[str, str] = field(default_factory=dict)
    #: The kind's `prepare`, as `module:function` (`preparation_of`); "": the kind has none.
    preparation: str = ""
    #: The functions that find the tools of the preparation, each as `module:function`.
    preparation_tools: tuple[str, ...] = ()
    #: The setting that limits how many attempts of the kind run at once; "": no such setting.
    at_once: str = ""


def installed(points: Iterable[EntryPoint] | None = None) -> dict[str, KindEntry]:
    """Return the kinds that are installed here, by name; they are not imported.

    Raises `KindError` if two packages offer different kinds under one name.
    """
    found: dict[str, KindEntry] = {}
    for point in entry_points(group=GROUP) if points is None else points:
        entry = KindEntry(point.name, point.value.replace(" ", ""))
        known = found.setdefault(entry.name, entry)
        if known != entry:
            raise KindError(
                f"two installed packages offer a kind named {entry.name!r} ({known.target} and {entry.target}); "
                "remove one of them"
            )
    return dict(sorted(found.items()))


def load_kind(target: str) -> type[Kind[Any]]:
    """Import the kind at `module:Class`. Raises `KindError`."""
    module_name, _, class_name = target.partition(":")
    if not module_name or not class_name:
        raise KindError(f"{target!r} is not module:Class")
    try:
        kind: Any = importlib.import_module(module_name)
        for name in class_name.split("."):
            kind = getattr(kind, name)
    except Exception as error:
        # A module may raise any exception while it is imported. Whatever it is, the kind is not usable here.
        raise KindError(f"the kind at {target} cannot be loaded: {type(error).__name__}: {error}") from error
    params = getattr(kind, "Params", None)
    if not (isinstance(params, type) and issubclass(params, BaseModel)):
        raise KindError(f"the kind at {target} has no class Params that is a pydantic model")
    if not (isinstance(kind, type) and callable(getattr(kind, "run", None))):
        raise KindError(f"the kind at {target} is not a class with a method run(ctx)")
    return kind


def environment_of(kind: type[Any]) -> dict[str, str]:
    """Return the settings that a kind (as `load_kind` gave it) asks for, by variable (`tasks.kind.Kind`)."""
    return dict(getattr(kind, "environment", {}))


def bound_of(kind: type[Any]) -> str:
    """Return the setting that limits how many attempts of a kind (from `load_kind`) run at once on a node; "": none."""
    return str(getattr(kind, "at_once", ""))


def action_of(kind: type[Any], action: str) -> type[BaseModel]:
    """Return the model of the args of `action`. Raises `KindError` if the kind (from `load_kind`) has none."""
    actions: Mapping[str, type[BaseModel]] = getattr(kind, "actions", {})
    if action not in actions:
        there = ", ".join(actions) or "none"
        raise KindError(f"tasks of this kind have no action {action!r}; they have {there}")
    return actions[action]


def preparation_of(kind: type[Any]) -> str:
    """Return the function that prepares a worker of a kind (as `load_kind` gave it), as `module:function`; "": none.

    Kinds that share the function have the same preparation.
    """
    prepare = getattr(kind, "prepare", None)
    return "" if prepare is None else f"{prepare.__module__}:{prepare.__qualname__}"


def preparation_at(target: str) -> Callable[[Mapping[str, str], Path], None]:
    """Import the function at `module:function`, as `preparation_of` names it. Raises any error of the import."""
    module_name, _, names = target.partition(":")
    found: Any = importlib.import_module(module_name)
    for name in names.split("."):
        found = getattr(found, name)
    prepare: Callable[[Mapping[str, str], Path], None] = found
    return prepare


def settings_asked_for(entries: Iterable[KindEntry]) -> frozenset[str]:
    """Return the names of all settings that these kinds ask for. Loads the kinds, and skips one that does not load."""
    found: set[str] = set()
    for entry in entries:
        try:
            kind = load_kind(entry.target)
        except KindError:
            continue  # a node that offers kinds logs why this one does not load
        found.update(environment_of(kind).values(), filter(None, (bound_of(kind),)))
    return frozenset(found)


def needs_of(kind: type[Any], params: Mapping[str, Any], task: str) -> Needs:
    """Return the needs of an attempt of a kind (as `load_kind` gave it).

    A kind without `needs` gets the needs of a command. Invalid params need nothing, as the attempt only reports them.
    """
    says = getattr(kind, "needs", None)
    if says is None:
        return Needs(everything=True)
    try:
        needs: Needs = says(kind.Params.model_validate(dict(params)), task)
    except ValidationError:
        return Needs()
    return needs


def params_schema(kind: type[Any]) -> dict[str, Any]:
    """Return the JSON schema of the params of a kind (as `load_kind` gave it)."""
    schema: dict[str, Any] = kind.Params.model_json_schema()
    return schema


def check_params(kind: type[Any], params: Mapping[str, Any], *, bound: bool) -> list[FieldError]:
    """Return the errors in `params`, field by field; an empty list if they are valid.

    `bound`: the task may run on one member only. If it is not bound, the params that the kind's `local_data` names (see
    `tasks.kind.Kind`) are errors too: on another member they would name other data.
    """
    try:
        valid = kind.Params.model_validate(dict(params))
    except ValidationError:
        return all_errors(kind.Params, params)
    local_data = getattr(kind, "local_data", None)
    if bound or local_data is None:
        return []
    return [FieldError(f"params.{field}", UNBOUND) for field in local_data(valid)]


def refused_reaches(kind: type[Any], params: Mapping[str, Any], task: str, access: Access) -> list[str]:
    """Return sentences about paths and hosts in the valid `params` that `access` refuses. Uses the kind's `reaches`."""
    reaches = getattr(kind, "reaches", None)
    return [] if reaches is None else refusals(access, reaches(kind.Params.model_validate(dict(params)), task))


def _backfill_fault(kind: type[Any], params: Mapping[str, Any], overlap: str) -> str:
    """Say why a task of a kind (from `load_kind`) cannot run for past times, by the kind's own words; "" if it can."""
    if overlap == "allow" and getattr(kind, "one_at_a_time", False):
        return "its runs build upon one another, and may overlap: give it another `overlap` than allow"
    says = getattr(kind, "no_backfill", None)
    return "" if says is None else str(says(kind.Params.model_validate(dict(params))))


_MOVES: Final = (
    "says what the task reaches, and so cannot depend on the occurrence: write it without {{ }}; names of files below "
    "a folder may have them"
)


def moving_reaches(kind: type[Any], one: Mapping[str, Any], other: Mapping[str, Any]) -> list[FieldError]:
    """Return an error for each secret, host and folder that differs between the params of two occurrences.

    Both are valid params of `kind`. Uses the kind's `reaches`.
    """
    valid = [kind.Params.model_validate(dict(params)) for params in (one, other)]
    secrets = [set(references_in(params)) for params in valid]
    found = [FieldError("params", f"the name of a secret {_MOVES}")] if secrets[0] != secrets[1] else []
    if (reaches := getattr(kind, "reaches", None)) is None:
        return found
    # The name of a file may differ, but not the folder or the host by which access is decided.
    fixed = [{each if each.command else each._replace(named="") for each in reaches(params, "")} for params in valid]
    return [
        *found,
        *(FieldError(f"params.{field}", _MOVES) for field in sorted({r.field for r in fixed[0] ^ fixed[1]})),
    ]


class InstalledKinds:
    """The kinds that are `installed` on a node, whether offered there or not. Each is loaded when it is first used.

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
        """Return the names of the installed kinds."""
        return frozenset(self._entries)

    def schema(self, kind: str) -> dict[str, Any]:
        """Return the JSON schema of a kind's params. Raises `KeyError`, or `KindError` if the kind does not load."""
        if kind not in self._schemas:
            self._schemas[kind] = params_schema(self._kind(kind))
        return self._schemas[kind]

    def check(
        self, kind: str, params: Mapping[str, Any], *, bound: bool, other: Mapping[str, Any] | None = None
    ) -> Sequence[FieldError]:
        """Return the errors in `params`. `bound`: the task is bound to one member.

        `other`: its params for another occurrence, which must be valid, too, and reach the same; None: the same params.
        Raises `KeyError`, or `KindError` if the kind does not load.
        """
        model = self._kind(kind)
        try:
            errors = check_params(model, params, bound=bound)
            if other is not None:
                errors += [each for each in check_params(model, other, bound=bound) if each not in errors]
            return errors if errors or other is None else moving_reaches(model, params, other)
        except Exception as error:  # noqa: BLE001 - a kind is third-party code
            # Params on which a kind's check fails are most likely wrong.
            _log_failure(kind, error)
            what = type(error).__name__
            return [FieldError("params", f"{kind} failed to check them ({what}): see this node's log")]

    def refused(self, kind: str, params: Mapping[str, Any], task: str, run_as: str | None) -> Sequence[str]:
        """Return sentences on what this node forbids to a task with these valid params. Raises as `check` does."""
        model = self._kind(kind)
        user = "" if run_as is None else why_not_as(run_as, self._run_as, self._node)
        found = [user] if user else []
        try:
            return [*found, *refused_reaches(model, params, task, self._access)]
        except Exception as error:  # noqa: BLE001 - a kind is third-party code
            _log_failure(kind, error)
            return found

    def no_backfill(self, kind: str, params: Mapping[str, Any], overlap: str) -> str:
        """Say why a task with these params cannot run for past times; "": it can, or its kind is not installed here."""
        try:
            return _backfill_fault(self._kind(kind), params, overlap)
        except (KeyError, KindError, ValidationError):
            return ""
        except Exception as error:  # noqa: BLE001 - a kind is third-party code
            _log_failure(kind, error)
            return ""

    def datasets(self, kind: str, params: Mapping[str, Any], task: str) -> Datasets:
        """Return what a run with `params` reads and writes, by the kind's `datasets`; nothing if it has none.

        Any thread may call it.
        """
        try:
            model = self._kind(kind)
            says = getattr(model, "datasets", None)
            if says is None:
                return NO_DATASETS
            found: Datasets = says(model.Params.model_validate(dict(params)), task)
        except (KeyError, KindError, ValidationError):
            return NO_DATASETS  # the attempt will report this
        except Exception as error:  # noqa: BLE001 - a kind is third-party code
            _log_failure(kind, error)
            return NO_DATASETS
        return found

    def references(
        self, kind: str, params: Mapping[str, Any], action: str = "", args: Mapping[str, Any] = NO_ARGS
    ) -> Sequence[Reference]:
        """Return the references to secrets in `params` and in an `action`'s args; empty if they cannot be read here."""
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
