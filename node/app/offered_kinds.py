"""Which kinds of task this member offers (those that are installed, can be imported, and find their packages), and what
the kinds ask of the member: settings for their workers, preparations, and bounds of their own.
"""

import importlib.util
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from node.duty.room import KindTerms
from node.execution.preparation import Preparation
from node.settings.table import is_the_nodes
from node.settings.values import integer_between
from tasks.installed_kinds import KindEntry, KindError, bound_of, environment_of, load_kind, preparation_of

_log = logging.getLogger("rota.kinds")


class KindOffer(NamedTuple):
    """The kinds that a member offers, by name, and why it does not offer the others that are installed."""

    offered: Mapping[str, KindEntry]
    unoffered: Mapping[str, str]

    def why_not(self, kind: str) -> str | None:
        """Return why this member does not offer a kind (a sentence); None if it does."""
        return None if kind in self.offered else self.unoffered.get(kind, "it is not installed there")


def kinds_to_offer(installed: Mapping[str, KindEntry], allow_command: bool) -> KindOffer:
    """Return the kinds to offer: `command` only if it is allowed, others if the packages in their class's `requires`
    (if it has that attribute) can be imported here.
    """
    offered: dict[str, KindEntry] = {}
    unoffered: dict[str, str] = {}
    for name, kind in installed.items():
        if name == "command" and not allow_command:
            unoffered[name] = "its ROTA_ALLOW_COMMAND is not 1"
            continue
        usable = _usable(kind)
        if isinstance(usable, str):
            unoffered[name] = usable
        else:
            offered[name] = usable
    return KindOffer(offered, unoffered)


def _usable(kind: KindEntry) -> KindEntry | str:
    """Return the entry of a kind with the settings that it asks for, or why the kind cannot be used here."""
    try:
        loaded = load_kind(kind.target)
    except KindError as error:
        _log.error("the kind %s is not offered: %s", kind.name, error)
        return str(error)
    missing = [package for package in getattr(loaded, "requires", ()) if not _importable(package)]
    if missing:
        why = f"these packages are not installed: {', '.join(missing)}"
        _log.info("the kind %s is not offered: %s", kind.name, why)
        return why
    environment, bound = environment_of(loaded), bound_of(loaded)
    for refused in sorted(filter(is_the_nodes, (*environment.values(), bound))):
        _log.warning(
            "the kind %s asks for %s, a setting of the node itself, which kinds do not get", kind.name, refused
        )
    return replace(
        kind,
        environment=environment,
        preparation=preparation_of(loaded),
        preparation_tools=tuple(getattr(loaded, "prepare_tools", ())),
        at_once=bound,
    )


def _importable(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False  # for "a.b": a is missing


MOST = 10_000
"""The highest bound on a kind's attempts that a setting may give."""


def environment_for(kind: KindEntry | None, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a kind asks for and whose settings are set."""
    asked = {} if kind is None else kind.environment
    return {variable: settings[name] for variable, name in asked.items() if name in settings}


def preparations_of(kinds: Mapping[str, KindEntry], settings: Mapping[str, str]) -> dict[str, Preparation]:
    """Return the preparations by name, each with the variables and tools of all kinds that have it."""
    found: dict[str, Preparation] = {}
    for kind in kinds.values():
        if kind.preparation:
            env, tools = found.get(kind.preparation, Preparation({}))
            more = (tool for tool in kind.preparation_tools if tool not in tools)
            found[kind.preparation] = Preparation({**env, **environment_for(kind, settings)}, (*tools, *more))
    return found


def terms_of(kinds: Mapping[str, KindEntry], settings: Mapping[str, str], max_runs: int) -> dict[str, KindTerms]:
    """Return the terms of each kind with a preparation or a bound. Raises `KindError` for a setting that is no bound.

    A bound whose setting is not set is half of `max_runs`.
    """
    return {
        name: KindTerms(kind.preparation, kind.at_once, _most(kind.at_once, settings, max_runs))
        for name, kind in kinds.items()
        if kind.preparation or kind.at_once
    }


def _most(name: str, settings: Mapping[str, str], max_runs: int) -> int:
    given = settings.get(name) if name else None
    if given is None:
        return max(1, max_runs // 2) if name else max_runs
    try:
        return integer_between(1, MOST)(given)
    except ValueError as error:
        raise KindError(f"{name}={given!r}: {error}") from None
