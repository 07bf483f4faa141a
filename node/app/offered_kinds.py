"""Which kinds of task this member offers: those that are installed, load, and find here what they need."""

import importlib.util
import logging
from collections.abc import Mapping

from tasks.kinds import KindEntry, KindError, load

_log = logging.getLogger("rota.kinds")


def offered(installed: Mapping[str, KindEntry], allow_command: bool) -> dict[str, KindEntry]:
    """The kinds to offer, by name. `command` only if it is allowed; the others if the packages that their class
    names in `requires`, if it has that, can be imported here.
    """
    return {name: kind for name, kind in installed.items() if (allow_command or name != "command") and _usable(kind)}


def _usable(kind: KindEntry) -> bool:
    try:
        needed = getattr(load(kind.target), "requires", ())
    except KindError as error:
        _log.error("the kind %s is not offered: %s", kind.name, error)
        return False
    missing = [package for package in needed if not _there(package)]
    if missing:
        _log.info("the kind %s is not offered: not installed here: %s", kind.name, ", ".join(missing))
    return not missing


def _there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False  # of "a.b", a is not there
