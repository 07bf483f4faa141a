"""Reads YAML and JSON texts as values, and writes values as YAML: the definitions of tasks that people write."""

import json
import math
import re
import sys
from typing import Any, Final

import yaml

_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's loader, which is ten times as fast, if PyYAML was built with it; else PyYAML's own."""

_JSON: Final = frozenset(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map"))
_UNREAD: Final = frozenset({"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"})


CHARS_MAX: Final = 64 * 1024 * 1024
"""The limit for a YAML text with its aliases expanded; for a long text, four times its own length. Without a limit, ten
lines could expand to terabytes ("billion laughs")."""


_BREAKS: Final = re.compile("[\x85\u2028\u2029\ufeff]")

DEPTH_MAX: Final = 200
"""The deepest nesting of a YAML text. libyaml recurses for each level: at about ten thousand levels, its stack
overflows, which kills the process.
"""


class YamlUnreadable(ValueError):
    """A text is neither YAML nor JSON, or is too large. The message is a clause that follows the text's name."""


class _Yaml(_Loader):  # type: ignore[valid-type, misc]
    """Loads YAML restricted to JSON's types. A timestamp stays text, which the API checks; a lone `=` stays text too.

    A key must be text, and must be unique in its mapping; a mapping's own keys override those that `<<` merges.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._checked: dict[int, yaml.MappingNode] = {}

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge the mappings that `<<` names into `node`. Called before a mapping is read, maybe more than once."""
        if id(node) not in self._checked:
            self._checked[id(node)] = node
            _check_keys(node)
        super().flatten_mapping(node)


_Yaml.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _UNREAD]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# The constructor for None handles every other tag: it raises an error that names the tag.
_Yaml.yaml_constructors = {
    tag: construct for tag, construct in yaml.SafeLoader.yaml_constructors.items() if tag in _JSON or tag is None
}


class _Dumper(yaml.SafeDumper):
    """Writes text with Unicode's line breaks in double quotes, as a reader of plain text takes them for spaces.

    Text of several lines, such as a script, is written line by line if YAML can express it so.
    """


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = '"' if _BREAKS.search(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def documents(text: str) -> list[Any]:
    """Read the documents in a text, first as JSON, because PyYAML reads JSON too, but a hundred times as slowly.

    Raises `YamlUnreadable`.
    """
    try:
        # Python's JSON reader accepts NaN and Infinity, which JSON does not have. In YAML they are text.
        return [json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant, parse_float=_finite)]
    except YamlUnreadable:
        raise
    except (ValueError, RecursionError):
        return yaml_documents(text)  # not JSON; the YAML reader reports the position of an error


def yaml_documents(text: str) -> list[Any]:
    """Return the YAML documents in a text. Raises `YamlUnreadable`.

    >>> yaml_documents("[1, x]"), yaml_documents("2026-01-01"), yaml_documents("")
    ([[1, 'x']], ['2026-01-01'], [])
    """
    try:
        _check_depth(text)
        found = list(yaml.load_all(text, Loader=_Yaml))
        _check_size(found, max(CHARS_MAX, 4 * len(text)), {})
        json.dumps(found)  # fails on a value that contains itself: valid YAML, but it cannot be sent
    except YamlUnreadable:
        raise
    except (yaml.YAMLError, ValueError, LookupError, RecursionError) as error:
        # PyYAML does not catch the ValueError and LookupError that it gets from values that do not fit their tag.
        raise YamlUnreadable(f"cannot be read as YAML or JSON: {error}") from error
    return found


def as_yaml(value: Any) -> str:
    r"""Return a value as YAML. Fields keep their order, and no line of a text is split.

    >>> as_yaml({"name": "a", "argv": ["sh", "-c", "cd /srv\n./sync\n"]})
    'name: a\nargv:\n- sh\n- -c\n- |\n  cd /srv\n  ./sync\n'
    """
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=sys.maxsize))


def line_of(text: str, field: str) -> int | None:
    r"""Return the line number, from 1, of a field such as `params.argv[0]`, or of its container if it is missing.

    None if the text is not a mapping.

    >>> line_of("name: a\nparams:\n  argv: [x]\n", "params.argv[0]"), line_of("name: a\n", "kind")
    (3, 1)
    """
    try:
        _check_depth(text)
        node = yaml.compose(text, Loader=_Yaml)
    except (YamlUnreadable, yaml.YAMLError):
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


def _check_depth(text: str) -> None:
    """Raise `YamlUnreadable` if a YAML text is nested too deeply, and yaml.YAMLError if it is not YAML."""
    depth = 0
    for event in yaml.parse(text, Loader=_Yaml):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                raise YamlUnreadable(f"is nested more than {DEPTH_MAX} levels deep in line {_line(event)}")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _check_keys(node: yaml.MappingNode) -> None:
    """Raise `YamlUnreadable` for a key that is not text, and for a key that occurs twice. `on`, `no` ... are text."""
    lines: dict[str, int] = {}
    for key, _ in node.value:
        kind = key.tag.rpartition(":")[2]
        if kind == "merge" or not isinstance(key, yaml.ScalarNode):
            continue  # the constructor refuses lists and mappings as keys
        if kind == "bool":
            kind, key.tag = "str", "tag:yaml.org,2002:str"  # `on:` can mean nothing else than the field `on`
        if kind != "str":
            raise YamlUnreadable(
                f"has the key {key.value or 'null'} in line {_line(key)}, which YAML does not read as text ({kind}): "
                "put it in quotes"
            )
        if key.value in lines:
            raise YamlUnreadable(_twice(key.value, f", in lines {lines[key.value]} and {_line(key)}"))
        lines[key.value] = _line(key)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        name = next(name for name in names if names.count(name) > 1)
        raise YamlUnreadable(_twice(name, " in one object"))
    return found


def _twice(name: str, where: str) -> str:
    return f"has the key {name!r} twice{where}: keep one of the two"


def _line(at: Any) -> int:
    return int(at.start_mark.line) + 1


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _finite(number: str) -> float:
    found = float(number)
    _check_finite(found)
    return found


def _check_finite(number: float) -> None:
    if not math.isfinite(number):
        raise YamlUnreadable(f"has the number {number}, which the API cannot take: give one that is finite")


def _check_size(value: Any, most: int, known: dict[int, int]) -> int:
    """Return the approximate length of `value` as JSON, aliases expanded. Raises `YamlUnreadable` if it exceeds `most`.

    `known` caches the lengths of lists and mappings by identity; for a value that contains itself, the JSON encoder
    reports the error.
    """
    if isinstance(value, str):
        return 1 + len(value)
    if not isinstance(value, dict | list):
        if isinstance(value, float):
            _check_finite(value)
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
