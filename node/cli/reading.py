"""YAML and JSON that a caller gives. Whatever is wrong with it is a wrong call (exit code 2)."""

import json
from typing import Any, Final

import click
import yaml

_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one in C where PyYAML was built with it: it is ten times as fast."""

_JSON: Final = frozenset(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map"))
_UNREAD: Final = frozenset({"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"})


CHARS_MAX: Final = 64 * 1024 * 1024
"""The length of a YAML text with its aliases written out, or four times its own: ten lines can stand for terabytes."""


class _TooLarge(Exception):
    """A text is longer than that."""


class _Yaml(_Loader):  # type: ignore[valid-type, misc]
    """YAML as far as JSON goes: a time stays the text that it is, for the API to check; so does a lone `=`."""


_Yaml.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _UNREAD]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# None stands for every other tag, and says which it does not know.
_Yaml.yaml_constructors = {
    tag: construct for tag, construct in yaml.SafeLoader.yaml_constructors.items() if tag in _JSON or tag is None
}


def documents(what: str, text: str) -> list[Any]:
    """What a text holds. JSON is YAML, too, but as such it takes a hundred times as long to read.

    `what` names it where it is wrong. Raises `click.UsageError`.
    """
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError):
        pass  # it is YAML, then, or neither: the YAML reader says where it is wrong
    return _yaml(what, text)


def value(what: str, text: str) -> Any:
    """The one value that a word of the command line holds, as YAML. Raises `click.UsageError`.

    >>> value("--param", "2026-01-01"), value("--param", "[1, x]"), value("--param", "")
    ('2026-01-01', [1, 'x'], None)
    """
    found = _yaml(what, text)
    if len(found) > 1:
        raise click.UsageError(f"{what} holds {len(found)} YAML documents: one value is wanted")
    return found[0] if found else None


def _yaml(what: str, text: str) -> list[Any]:
    try:
        found = list(yaml.load_all(text, Loader=_Yaml))
        _check_size(found, max(CHARS_MAX, 4 * len(text)), {})
        json.dumps(found)  # a value that holds itself is YAML, and cannot be sent
    except _TooLarge:
        raise click.UsageError(
            f"{what}: with its aliases (*NAME) written out it would be longer than {CHARS_MAX >> 20} MiB: use fewer"
        ) from None
    except (yaml.YAMLError, ValueError, LookupError, RecursionError) as error:
        # Also what Python says of a value that is not of the type that its tag says: PyYAML lets it through.
        raise click.UsageError(f"{what} cannot be read as YAML or JSON: {error}") from error
    return found


def _check_size(value: Any, most: int, known: dict[int, int]) -> int:
    """The length of `value` about as JSON, counted as often as an alias repeats it. Raises `_TooLarge` beyond `most`.

    `known` has those of lists and mappings by their identity; what holds itself is left to whoever writes it out.
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
