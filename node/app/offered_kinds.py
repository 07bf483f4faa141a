"""Which kinds of task this member offers: those that are installed, can be imported, and have what they require."""

import importlib.util
import logging
from collections.abc import Mapping
from dataclasses import replace

from node.app.settings import is_the_nodes
from tasks.installed_kinds import KindEntry, KindError, bound_of, environment_of, load, preparation_of

_log = logging.getLogger("rota.kinds")


def offered(installed: Mapping[str, KindEntry], allow_command: bool) -> dict[str, KindEntry]:
    """The kinds to offer, by name: `command` only if it is allowed, others if the packages in their class's `requires`
    (if it has that attribute) can be imported here.
    """
    entries = (_usable(kind) for name, kind in installed.items() if allow_command or name != "command")
    return {entry.name: entry for entry in entries if entry is not None}


def _usable(kind: KindEntry) -> KindEntry | None:
    """The entry of a kind with the settings that it asks for; None if it cannot be used here."""
    try:
        loaded = load(kind.target)
    except KindError as error:
        _log.error("the kind %s is not offered: %s", kind.name, error)
        return None
    missing = [package for package in getattr(loaded, "requires", ()) if not _importable(package)]
    if missing:
        _log.info("the kind %s is not offered: these packages are not installed: %s", kind.name, ", ".join(missing))
        return None
    environment, bound = environment_of(loaded), bound_of(loaded)
    for refused in sorted(filter(is_the_nodes, (*environment.values(), bound))):
        _log.warning("the kind %s asks for %s, which is the node's own and not handed on", kind.name, refused)
    return replace(kind, environment=environment, preparation=preparation_of(loaded), at_once=bound)


def _importable(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False  # for "a.b": a is missing
