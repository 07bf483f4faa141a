"""The form for the params of one run, made from the JSON schema of the kind's model. Pure.

An empty field is left out of the params. A field that the user did not change keeps its exact value.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from tasks.definition.field_errors import FieldError, dotted
from tasks.definition.yaml_text import YamlUnreadable, as_yaml, documents

FIELDS_MAX: Final = 150
"""With more fields than this, the form has one field for all params: a form may have 200 fields
(`node.http.door.request_context.FORM_FIELDS_MAX`)."""

LINE_CHARS: Final = 90
"""A text longer than this gets a field with several lines."""

Look = Literal["line", "text", "choice", "yaml"]
"""How the user fills in a field: one line of text, several lines, one of several values, or YAML."""

_LEFT_OUT: Final = object()


@dataclass(frozen=True, slots=True)
class ParamField:
    """A field of the form."""

    #: The names that lead to the field in the params.
    path: tuple[str, ...]
    #: How the user fills it in.
    look: Look
    #: The text that it shows at first; "" if the params do not have it.
    text: str
    #: The value that it has while the text is not changed.
    value: Any
    #: Whether the params have it.
    given: bool
    #: Whether the kind needs it.
    required: bool
    #: The default of an empty field, as text.
    default: str
    #: The description from the kind's model.
    about: str
    #: The texts of a "choice", each with its value.
    choices: tuple[tuple[str, Any], ...] = ()
    #: Whether the value is a number.
    is_number: bool = False

    @property
    def label(self) -> str:
        """Its name within the params, such as `source.path`."""
        return ".".join(self.path) or "params"

    @property
    def name(self) -> str:
        """Its name in the form that a browser sends."""
        return f"param:{json.dumps(self.path)}"

    @property
    def rows(self) -> int:
        """The number of lines to show."""
        return min(max(self.text.count("\n") + 2, 2), 16)


def fields_of(schema: Mapping[str, Any] | None, params: Mapping[str, Any]) -> list[ParamField]:
    """Return the fields of the form, those that `params` have first. `schema` None: not known; then one YAML field.

    >>> schema = {"properties": {"n": {"type": "integer", "default": 3}, "source": {"type": "string"}}}
    >>> [(field.label, field.look, field.text, field.default) for field in fields_of(schema, {"source": "x"})]
    [('source', 'line', 'x', ''), ('n', 'line', '', '3')]
    """
    whole = ParamField(
        path=(),
        look="yaml",
        text=_yaml(params),
        value=dict(params),
        given=True,
        required=True,
        default="",
        about="All params of the run",
    )
    if not (schema and schema.get("properties")):
        return [whole]
    found = list(_Fields(schema).of(schema, params, ()))
    if len(found) > FIELDS_MAX:
        return [whole]
    return sorted(found, key=lambda field: not field.given)


def params_of(fields: Sequence[ParamField], sent: Mapping[str, str]) -> tuple[dict[str, Any], list[FieldError]]:
    """Return the params from the texts `sent` (by the names of `fields`), and the errors of unreadable texts."""
    params: dict[str, Any] = {}
    errors: list[FieldError] = []
    for field in fields:
        try:
            value = _read(field, sent.get(field.name))
        except YamlUnreadable as unreadable:
            errors.append(FieldError(dotted(("params", *field.path)), f"the text {unreadable}"))
            continue
        if not field.path:
            if not isinstance(value, dict):
                errors.append(FieldError("params", "must be fields and their values, such as `source: x`"))
                continue
            return value, errors
        within = params
        for name in field.path[:-1]:
            within = within.setdefault(name, {})
        if value is not _LEFT_OUT:
            within[field.path[-1]] = value
    _drop_emptied(fields, params)
    return params, errors


def _drop_emptied(fields: Sequence[ParamField], params: dict[str, Any]) -> None:
    """Remove each object, such as a reference to a secret, all of whose fields the user has emptied."""
    objects = {field.path[:size] for field in fields if field.given for size in range(1, len(field.path))}
    for path in sorted(objects, key=len, reverse=True):
        within = params
        for name in path[:-1]:
            within = within[name]
        if within[path[-1]] == {}:
            del within[path[-1]]


def texts_sent(fields: Sequence[ParamField], sent: Mapping[str, str]) -> dict[str, str]:
    """Return the text that each field shows after the form was sent, by the field's name."""
    return {field.name: _lines(sent.get(field.name, field.text)) for field in fields}


def errors_by_field(
    fields: Sequence[ParamField], errors: Sequence[FieldError]
) -> tuple[dict[str, list[str]], list[FieldError]]:
    """Return the errors of each field, by its name, and the errors that belong to no field.

    >>> [field] = fields_of({"properties": {"argv": {"type": "array"}}}, {})
    >>> errors_by_field([field], [FieldError("params.argv[0]", "is no text"), FieldError("params.x", "is not known")])
    ({'param:["argv"]': ['[0] is no text']}, [FieldError(field='params.x', message='is not known')])
    """
    of_fields: dict[str, list[str]] = {}
    others = []
    by_length = sorted((field for field in fields if field.path), key=lambda field: -len(field.label))
    for error in errors:
        where = error.field.removeprefix("params.")
        field = next((one for one in by_length if re.match(re.escape(one.label) + r"(?![^.\[])", where)), None)
        if field is None:
            others.append(error)
        else:
            rest = where.removeprefix(field.label).lstrip(".")
            of_fields.setdefault(field.name, []).append(f"{rest} {error.message}".strip())
    return of_fields, others


class _Fields:
    """Walks over params and the schema of their model."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def of(self, schema: Mapping[str, Any], given: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[ParamField]:
        """Yield the fields of an object: first the given ones in their order, then the others in the schema's order."""
        known, required = schema.get("properties", {}), schema.get("required", ())
        for name in dict.fromkeys((*given, *known)):
            about = known.get(name, {})
            yield from self._field(about, given.get(name, _LEFT_OUT), (*path, name), required=name in required)

    def _field(
        self, schema: Mapping[str, Any], value: Any, path: tuple[str, ...], *, required: bool
    ) -> Iterator[ParamField]:
        forms = [self._resolved(one) for one in schema.get("anyOf") or schema.get("oneOf") or [schema]]
        if isinstance(value, dict) and (form := next((one for one in forms if _fits(one, value)), None)) is not None:
            yield from self.of(form, value, path)
            return
        nullable = any(form.get("type") == "null" for form in forms)
        kinds = [form for form in forms if form.get("type") != "null"]
        one = kinds[0] if len(kinds) == 1 else {}
        default = schema.get("default")
        choices = _choices(one)
        look = _look(one, value, choices, nullable=nullable and default is not None)
        given = value is not _LEFT_OUT
        yield ParamField(
            path,
            look,
            text=_text(look, value) if given else "",
            value=value,
            given=given,
            required=required,
            default=_default(default),
            about=schema.get("description") or one.get("description") or "",
            choices=choices if look == "choice" else (),
            is_number=one.get("type") in ("integer", "number"),
        )

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        if (reference := schema.get("$ref")) is None:
            return schema
        found: Any = self._root
        for part in str(reference).removeprefix("#/").split("/"):
            found = found.get(part, {})
        return found if isinstance(found, dict) else {}


def _fits(form: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    """Return whether an object fits this schema: all required fields, no unknown ones, and the schema's constants."""
    known = form.get("properties", {})
    marks = all(value.get(name, of["const"]) == of["const"] for name, of in known.items() if "const" in of)
    return bool(known) and value.keys() <= known.keys() and value.keys() >= set(form.get("required", ())) and marks


def _choices(form: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    if form.get("type") == "boolean" and "const" not in form:
        return (("true", True), ("false", False))
    values = form.get("enum") or ([form["const"]] if "const" in form else [])
    return tuple((_plain(value), value) for value in values)


def _look(form: Mapping[str, Any], value: Any, choices: tuple[tuple[str, Any], ...], *, nullable: bool) -> Look:
    """Decide how a field is filled in. `nullable`: null is allowed but is not the default.

    A field that may be null is YAML, so that the user can type null.
    """
    if nullable or value is None or value == "":
        return "yaml"
    if choices and (value is _LEFT_OUT or any(same(value, one) for _, one in choices)):
        return "choice"
    match form.get("type"):
        case "integer" | "number" if value is _LEFT_OUT or type(value) in (int, float):
            return "line"
        case "string" if value is _LEFT_OUT:
            return "line" if form.get("maxLength", 0) <= 4096 else "text"
        case "string" if isinstance(value, str) and _is_shown(value) and value.strip():
            return "text" if "\n" in value or len(value) > LINE_CHARS else "line"
    return "yaml"


def _is_shown(text: str) -> bool:
    """Return whether a browser shows a text and sends it back unchanged. Other texts are typed as YAML with escapes."""
    return all(character in "\n\t" or character.isprintable() for character in text)


def same(one: Any, other: Any) -> bool:
    """Return whether two values are the same as JSON, where true is not 1."""
    return type(one) is type(other) and bool(one == other)


def _text(look: Look, value: Any) -> str:
    return _yaml(value) if look == "yaml" else _plain(value)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _yaml(value: Any) -> str:
    return as_yaml(value).removesuffix("...\n").removesuffix("\n") if value != {} else ""


def _default(value: Any) -> str:
    return "" if value is None or value in ({}, [], "") else _plain(value)


def _lines(text: str) -> str:
    """Return a text with the CRLF of browsers replaced by LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _read(field: ParamField, sent: str | None) -> Any:
    """Return the value of a field whose text was sent (None: it was not). Raises `YamlUnreadable`."""
    text = None if sent is None else _lines(sent)
    if text is None or text == field.text:
        return field.value
    if not text.strip():
        return {} if not field.path else _LEFT_OUT
    if field.look == "choice":
        return next((value for choice, value in field.choices if choice == text), text)
    if field.look == "yaml":
        return _document(text)
    return _number(text) if field.is_number else text


def _document(text: str) -> Any:
    found = documents(f"{text}\n")  # a script's last line needs its line end, too
    if len(found) != 1:
        raise YamlUnreadable("must be one value, as YAML")
    return found[0]


def _number(text: str) -> Any:
    """Return the number in a text. If it is no number, return the text itself, which the kind then refuses."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if type(found) in (int, float) else text
