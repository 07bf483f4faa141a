"""Which kinds of task this member offers: those that are installed, can be imported, and have what they require."""

import importlib.util
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from node.app.settings import is_the_nodes
from tasks.installed_kinds import KindEntry, KindError, bound_of, environment_of, load_kind, preparation_of

_log = logging.getLogger("rota.kinds")


class KindOffer(NamedTuple):
    """The kinds that a member offers, by name, and why it does not offer the others that are installed."""

    offered: Mapping[str, KindEntry]
    unoffered: Mapping[str, str]

    def why_not(self, kind: str) -> str | None:
        """Why this member does not offer a kind (a sentence); None if it does."""
        return None if kind in self.offered else self.unoffered.get(kind, "it is not installed there")


def kinds_to_offer(installed: Mapping[str, KindEntry], allow_command: bool) -> KindOffer:
    """The kinds to offer: `command` only if it is allowed, others if the packages in their class's `requires` (if it
    has that attribute) can be imported here.
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
    """The entry of a kind with the settings that it asks for; or why it cannot be used here."""
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
        _log.warning("the kind %s asks for %s, which is the node's own and not handed on", kind.name, refused)
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
