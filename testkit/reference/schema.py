"""Markdown tables from the JSON schemas that pydantic makes of models."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel

Schema = Mapping[str, Any]

_NAMES: Final = {"string": "text", "boolean": "true or false", "null": "null", "object": "object"}
_REFERENCE: Final = "[reference to a secret](#references-to-secrets)"
_KNOWN: Final = {"JsonValue": "any JSON value", "SecretFile": _REFERENCE, "SecretEnv": _REFERENCE}
"""Types that are defined elsewhere on a page."""


def table(model: type[BaseModel], headings: Mapping[str, str]) -> str:
    """A table of a model's fields: name, type with bounds, default, meaning.

    `headings` maps the names of other models to the headings under which the page describes them.
    """
    schema = model.model_json_schema()
    required = schema.get("required", ())
    rows = []
    for name, about in schema["properties"].items():
        rows.append((f"`{name}`", type_of(about, headings), _default(about, name in required), _meaning(about)))
    return rows_of(("field", "type", "default", "meaning"), rows)


def rows_of(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def type_of(schema: Schema, headings: Mapping[str, str]) -> str:
    """A type in words, its bounds in parentheses. Raises `ValueError` for a type that no model has had so far."""
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            kinds = list(dict.fromkeys(type_of(one, headings) for one in schema[choice]))
            return ", or ".join([", ".join(kinds[:-1]), kinds[-1]]) if len(kinds) > 1 else kinds[0]
    if "$ref" in schema:
        return _named(schema["$ref"].rpartition("/")[2], headings)
    if "const" in schema:
        return _code(schema["const"])
    if "enum" in schema:
        return ", ".join(map(_code, schema["enum"]))
    match schema.get("type"):
        case "array":
            return "list of " + type_of(schema["items"], headings)
        case "object" if schema.get("additionalProperties"):
            return "map from text to " + type_of(schema["additionalProperties"], headings)
        case "object" if "patternProperties" in schema:
            (values,) = schema["patternProperties"].values()
            return "map from text to " + type_of(values, headings)
        case "integer" | "number" as number:
            bounds = _bounds(schema)
            return f"{number} ({bounds})" if bounds else number
        case "string" if schema.get("format") == "date-time":
            return "time (RFC 3339)"
        case "string":
            return "text" + (f" ({schema['maxLength']:,} characters at most)" if "maxLength" in schema else "")
        case str(name):
            return _NAMES[name]
    raise ValueError(f"a type that the reference has no words for: {schema}")


def _named(name: str, headings: Mapping[str, str]) -> str:
    if name in _KNOWN:
        return _KNOWN[name]
    heading = headings[name]
    return f"[{heading}](#{heading.lower().replace(' ', '-')})"


def _bounds(schema: Schema) -> str:
    most = f"{schema['maximum']:,}" if "maximum" in schema else ""
    if "exclusiveMinimum" in schema:
        return f"more than {schema['exclusiveMinimum']:,}" + (f", {most} at most" if most else "")
    if "minimum" not in schema:
        return f"{most} at most" if most else ""
    return f"{schema['minimum']:,} to {most}" if most else f"{schema['minimum']:,} at least"


def _default(schema: Schema, required: bool) -> str:
    if required:
        return "required"
    return "its own defaults" if "$ref" in schema else _code(schema.get("default"))


def _meaning(schema: Schema) -> str:
    """The field's own description, else those of its alternatives: pydantic puts some there."""
    own = schema.get("description")
    if own is None:
        own = next((one["description"] for one in schema.get("anyOf", ()) if "description" in one), None)
    if own is None:
        raise ValueError(f"the field {schema.get('title')!r} has no description")
    examples = schema.get("examples") or ()
    return str(own) + (". For example " + _code(examples[0]) if examples else "")


def _code(value: Any) -> str:
    return f"`{value if isinstance(value, str) and value else json.dumps(value)}`"
