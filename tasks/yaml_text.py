"""YAML and JSON texts as values, and values as YAML: definitions of tasks as people write them."""

import json
import re
from typing import Any, Final

import yaml

_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's loader if PyYAML was built with it: ten times as fast."""

_JSON: Final = frozenset(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map"))
_UNREAD: Final = frozenset({"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"})


CHARS_MAX: Final = 64 * 1024 * 1024
"""Limit for a YAML text with its aliases expanded, unless four times its own length is more: without a limit, ten lines
can expand to terabytes ("billion laughs")."""


class YamlUnreadable(ValueError):
    """A text is neither YAML nor JSON, or is too large. Says so in a clause that follows the text's name."""


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


def documents(text: str) -> list[Any]:
    """The documents in a text. JSON is tried first: PyYAML reads JSON too, but takes a hundred times as long.

    Raises `YamlUnreadable`.
    """
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError):
        return yaml_documents(text)  # not JSON; the YAML reader reports where an error is


def yaml_documents(text: str) -> list[Any]:
    """The YAML documents in a text. Raises `YamlUnreadable`.

    >>> yaml_documents("[1, x]"), yaml_documents("2026-01-01"), yaml_documents("")
    ([[1, 'x']], ['2026-01-01'], [])
    """
    try:
        found = list(yaml.load_all(text, Loader=_Yaml))
        _check_size(found, max(CHARS_MAX, 4 * len(text)), {})
        json.dumps(found)  # fails on a value that contains itself: valid YAML, but it cannot be sent
    except YamlUnreadable:
        raise
    except (yaml.YAMLError, ValueError, LookupError, RecursionError) as error:
        # ValueError and LookupError come from values that do not fit their tag: PyYAML does not catch them.
        raise YamlUnreadable(f"cannot be read as YAML or JSON: {error}") from error
    return found


def as_yaml(value: Any) -> str:
    r"""A value as YAML, its fields in their order.

    >>> as_yaml({"name": "a", "argv": ["x"]})
    'name: a\nargv:\n- x\n'
    """
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)


def line_of(text: str, field: str) -> int | None:
    r"""The line, from 1 on, at which a field such as `params.argv[0]` begins; of one that is missing, what lacks it.

    None if the text is not a mapping.

    >>> line_of("name: a\nparams:\n  argv: [x]\n", "params.argv[0]"), line_of("name: a\n", "kind")
    (3, 1)
    """
    try:
        node = yaml.compose(text, Loader=_Yaml)
    except yaml.YAMLError:
        return None
    if not isinstance(node, yaml.MappingNode):
        return None
    line = node.start_mark.line
    for part in re.findall(r"[^.\[\]]+", field):
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == part), None)
            if found is None:
                break
            line, node = found[0].start_mark.line, found[1]
        elif isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
            node = node.value[int(part)]
            line = node.start_mark.line
        else:
            break
    return int(line) + 1


def _check_size(value: Any, most: int, known: dict[int, int]) -> int:
    """The approximate length of `value` as JSON, aliases expanded. Raises `YamlUnreadable` if it exceeds `most`.

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
        raise YamlUnreadable(
            f"with its aliases (*NAME) expanded is longer than {CHARS_MAX >> 20} MiB: use fewer aliases"
        )
    return known[id(value)]
