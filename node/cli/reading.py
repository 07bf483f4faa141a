"""Reads YAML and JSON that a caller gives. An error in it is a wrong call (exit code 2)."""

import json
from typing import Any, Final

import click
import yaml

_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's loader if PyYAML was built with it: ten times as fast."""

_JSON: Final = frozenset(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map"))
_UNREAD: Final = frozenset({"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"})


CHARS_MAX: Final = 64 * 1024 * 1024
"""Limit for a YAML text with its aliases expanded, unless four times its own length is more: without a limit, ten lines
can expand to terabytes ("billion laughs")."""


class _TooLarge(Exception):
    """A text with its aliases expanded exceeds `CHARS_MAX`."""


class _Yaml(_Loader):  # type: ignore[valid-type, misc]
    """YAML restricted to what JSON can express: a timestamp stays text, which the API checks; so does a lone `=`."""


_Yaml.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _UNREAD]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# The constructor for None handles every other tag: it raises an error that names the tag.
_Yaml.yaml_constructors = {
    tag: construct for tag, construct in yaml.SafeLoader.yaml_constructors.items() if tag in _JSON or tag is None
}


def documents(what: str, text: str) -> list[Any]:
    """The documents in a text. JSON is tried first: PyYAML reads JSON too, but takes a hundred times as long.

    Error messages call the text `what`. Raises `click.UsageError`.
    """
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError):
        pass  # not JSON; the YAML reader reports where an error is
    return _yaml(what, text)


def value(what: str, text: str) -> Any:
    """The single YAML value in an argument of the command line. Raises `click.UsageError`.

    >>> value("--param", "2026-01-01"), value("--param", "[1, x]"), value("--param", "")
    ('2026-01-01', [1, 'x'], None)
    """
    found = _yaml(what, text)
    if len(found) > 1:
        raise click.UsageError(f"{what} holds {len(found)} YAML documents: give one value")
    return found[0] if found else None


def _yaml(what: str, text: str) -> list[Any]:
    try:
        found = list(yaml.load_all(text, Loader=_Yaml))
        _check_size(found, max(CHARS_MAX, 4 * len(text)), {})
        json.dumps(found)  # fails on a value that contains itself: valid YAML, but it cannot be sent
    except _TooLarge:
        raise click.UsageError(
            f"{what}: with its aliases (*NAME) expanded it is longer than {CHARS_MAX >> 20} MiB: use fewer aliases"
        ) from None
    except (yaml.YAMLError, ValueError, LookupError, RecursionError) as error:
        # ValueError and LookupError come from values that do not fit their tag: PyYAML does not catch them.
        raise click.UsageError(f"{what} cannot be read as YAML or JSON: {error}") from error
    return found


def _check_size(value: Any, most: int, known: dict[int, int]) -> int:
    """The approximate length of `value` as JSON, aliases expanded. Raises `_TooLarge` if it exceeds `most`.

    `known` caches the lengths of lists and mappings by identity; for a value that contains itself, the JSON encoder
    reports the error.
    """
    if isinstance(value, str):
        return 1 + len(value)
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = 0
        inside = (*value, *value.values()) if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_check_size(item, most, known) for item in inside)
    if known[id(value)] > most:
        raise _TooLarge
    return known[id(value)]
