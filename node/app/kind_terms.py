"""What the kinds that a member offers ask of it: settings for their workers, preparations, and bounds of their own."""

from collections.abc import Mapping

from node.app.setting_values import integer_between
from node.duty.room import KindTerms
from node.execution.preparation import Preparation
from tasks.installed_kinds import KindEntry, KindError

MOST = 10_000
"""The largest bound that a setting may give."""


def environment_for(kind: KindEntry | None, settings: Mapping[str, str]) -> dict[str, str]:
    """The variables that a kind asks for, as far as their settings are set."""
    asked = {} if kind is None else kind.environment
    return {variable: settings[name] for variable, name in asked.items() if name in settings}


def preparations_of(kinds: Mapping[str, KindEntry], settings: Mapping[str, str]) -> dict[str, Preparation]:
    """The preparations by their names: each with the variables and tools of all kinds that have it."""
    found: dict[str, Preparation] = {}
    for kind in kinds.values():
        if kind.preparation:
            env, tools = found.get(kind.preparation, Preparation({}))
            more = (tool for tool in kind.preparation_tools if tool not in tools)
            found[kind.preparation] = Preparation({**env, **environment_for(kind, settings)}, (*tools, *more))
    return found


def terms_of(kinds: Mapping[str, KindEntry], settings: Mapping[str, str], max_runs: int) -> dict[str, KindTerms]:
    """The terms of each kind that has a preparation or a bound. Raises `KindError` for a setting that is no bound.

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
