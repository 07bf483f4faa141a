"""The entry that changes the cluster's settings, and their valid values."""

import re
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from node.state.copying import replace
from node.state.draft import DONE, Draft, refused
from node.state.entries import Entry, applies
from node.state.facts import SINCE_RULES
from node.state.pools import POOLS_MAX, RULES_POOLS, removal_fault, resize
from node.state.set_owned import owner_after, owner_fault, prune_fault
from node.state.value import Result
from node.state.watchdog import watchdog_of
from tasks.definition.pools import CAPACITY_MAX, POOL_PATTERN

SECONDS: Final[dict[str, tuple[float, float]]] = {
    "lease_s": (0.5, 600.0),
    "window_s": (0.3, 600.0),
    "margin_s": (0.05, 600.0),
}
"""The bounds of each setting, in seconds. Heartbeats are 0.25 s apart: a lease or window must outlast two of them."""

SLACK_MILLI_MAX: Final = 1_000_000
HISTORY_DAYS_MAX: Final = 36_500


@dataclass(frozen=True, slots=True)
class ChangeSettings(Entry):
    """Change settings, by their names in `Settings`."""

    settings: dict[str, Any]
    #: The set of files that the pools are of which this makes; a set removes its own only. "": none, or all.
    by_set: str = ""
    #: Whether the pools become those of `by_set` though another set made them.
    adopt: bool = False


@applies(ChangeSettings, code=8)
def change(draft: Draft, entry: ChangeSettings) -> Result:
    """Change the named settings, all or none. `balance_slack_milli` None turns balancing off.

    `pools` names only the pools that change; None removes one.
    """
    values: dict[str, Any] = {}
    if (fault := owner_fault(draft.lead.rules, entry.by_set)) is not None:
        return refused("invalid", fault)
    for name, value in entry.settings.items():
        if (fault := setting_fault(name, value)) is not None:
            return refused("invalid", fault)
        if name == "watchdog" and draft.lead.rules < SINCE_RULES:
            return refused("invalid", f"there is no setting {name!r}")
        found = _capacities(draft, value, entry.by_set) if name == "pools" else _value(name, value)
        if isinstance(found, str):
            return refused("invalid", found)
        values[name] = found
        if name == "pools":
            values["pool_sets"] = _owners(draft, value, entry)
    after = replace(draft.settings, **values)
    if after.balance_slack_milli != draft.settings.balance_slack_milli:
        draft.placing_changed = True
    if after.pools != draft.settings.pools:
        resize(draft, after.pools, entry.at_us)
    draft.settings = after
    return DONE


def _owners(draft: Draft, changes: dict[str, int | None], entry: ChangeSettings) -> tuple[tuple[str, str], ...]:
    """Return the sets of the pools after these changes, sorted by pool."""
    found, known = dict(draft.settings.pool_sets), dict(draft.settings.pools)
    for name, capacity in changes.items():
        owner = found.pop(name, "")
        if capacity is not None and (after := owner_after(name in known, owner, entry.by_set, adopt=entry.adopt)):
            found[name] = after
    return tuple(sorted(found.items()))


def _capacities(draft: Draft, changes: dict[str, int | None], by_set: str) -> tuple[tuple[str, int], ...] | str:
    """Return all pools after these changes, sorted; None removes one, of `by_set` if it is given. Or the fault."""
    if draft.lead.rules < RULES_POOLS:
        return "pools need a leader of this version"
    found, owners = dict(draft.settings.pools), dict(draft.settings.pool_sets)
    for name, capacity in changes.items():
        if capacity is not None:
            found[name] = capacity
        elif found.pop(name, None) is None:
            return f"there is no pool {name}"
        elif why := prune_fault(f"the pool {name}", owners.get(name, ""), by_set) or removal_fault(draft, name):
            return why
    return tuple(sorted(found.items())) if len(found) <= POOLS_MAX else f"a cluster has {POOLS_MAX} pools at most"


def _value(name: str, value: Any) -> Any:
    """Convert a valid setting to its type in `Settings`."""
    if name == "watchdog" and value is not None:
        return watchdog_of(value)
    return float(value) if name in SECONDS else value


def setting_fault(name: str, value: Any) -> str | None:
    """Describe the fault of a setting in a sentence; None if it is valid."""
    if name in SECONDS:
        least, most = SECONDS[name]
        if type(value) not in (int, float) or not isfinite(value) or not least <= value <= most:
            return f"{name} is a number of seconds from {least} to {most}"
        return None
    if name == "balance_slack_milli":
        fits = value is None or (type(value) is int and 0 <= value <= SLACK_MILLI_MAX)
        return None if fits else f"balance_slack is a number from 0 to {SLACK_MILLI_MAX // 1000}, or null"
    if name == "history_days":
        fits = type(value) is int and 1 <= value <= HISTORY_DAYS_MAX
        return None if fits else f"history_days is a whole number from 1 to {HISTORY_DAYS_MAX}"
    if name == "refusal_is_death":
        return None if type(value) is bool else "refusal_is_death is true or false"
    if name == "watchdog":
        watchdog = None if value is None else watchdog_of(value)
        return watchdog if isinstance(watchdog, str) else None
    if name == "pools":
        return _pools_fault(value)
    return f"there is no setting {name!r}"


def _pools_fault(value: Any) -> str | None:
    if not isinstance(value, dict):
        return "pools is a table of names and numbers, as {dumps: 2}"
    for name, capacity in value.items():
        if type(name) is not str or re.fullmatch(POOL_PATTERN, name) is None:
            return f"{name!r} is no name of a pool: letters, digits and . _ : / - are, 128 at most"
        if capacity is not None and not (type(capacity) is int and 0 <= capacity <= CAPACITY_MAX):
            return f"the pool {name} has a whole number from 0 to {CAPACITY_MAX}, not {capacity!r}"
    return None
