"""The errors of a definition or of params, field by field, in the user's own terms."""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class FieldError:
    """An error in one field. `field` is its path as the user would write it, such as `params.argv[0]`."""

    field: str
    message: str


def dotted(path: Sequence[str | int]) -> str:
    """Return a path as users write it.

    >>> dotted((3, "retry", "attempts")), dotted(("params", "sources", 0)), dotted(())
    ('[3].retry.attempts', 'params.sources[0]', '')
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def raise_all(model: str, wrong: Iterable[str]) -> None:
    """Raise one `ValidationError` with all messages in `wrong`, in a pydantic validator. Does nothing if it is empty.

    A validator that raised `ValueError` for the first message would hide the others.
    """
    raise_at(model, (((), said) for said in wrong))


def raise_at(model: str, wrong: Iterable[tuple[Path, str]]) -> None:
    """Like `raise_all`, for messages about the fields at these paths."""
    details = [
        InitErrorDetails(type=PydanticCustomError("value_error", "{said}", {"said": said}), loc=path, input=None)
        for path, said in wrong
    ]
    if details:
        raise ValidationError.from_exception_data(model, details)


def all_errors(model: type[BaseModel], given: Mapping[str, Any]) -> list[FieldError]:
    """All errors of `given` under `model`, even of checks that pydantic runs only if each field by itself is valid.

    To find these, the invalid fields are left out and the rest is checked again, until no further field is invalid. An
    error that names a field that was left out is not returned, as it may be due to the missing field.
    """
    errors: list[FieldError] = []
    rest, left_out = deepcopy(dict(given)), dict[str, str]()
    for _ in range(_LOOKS):
        try:
            model.model_validate(rest)
            break
        except ValidationError as error:
            found = field_errors(error, rest)
            errors += [one for one in found if one not in errors and not _of_what_is_left_out(one, left_out)]
            details = error.errors(include_url=False, include_input=False, include_context=False)
            wrong = [path for detail in details if (path := _path_in(rest, detail["loc"]))]
        if not wrong:
            break
        for path in wrong:
            left_out[dotted(("params", *path))] = str(path[-1])
            inner: Any = rest
            for part in path[:-1]:
                inner = inner.get(part, {}) if isinstance(inner, dict) else {}
            inner.pop(path[-1], None)
    return errors


def _of_what_is_left_out(error: FieldError, left_out: Mapping[str, str]) -> bool:
    return error.field in left_out or any(f"`{name}`" in error.message for name in left_out.values())


_LOOKS: Final = 4
"""The maximum number of times that a definition is checked."""


def _path_in(given: Any, place: Sequence[str | int]) -> Path:
    """Find the path in `given` of the innermost object field on the way to `place`; () if there is none."""
    path: list[str | int] = []
    for part in place:
        inner = _inner(given, part)
        if inner is _NOTHING:
            continue  # pydantic's label of a union's member, not a field
        if isinstance(part, int):
            break  # the list must be left out as a whole: without this item, later items would get other indexes
        path.append(part)
        given = inner
    return tuple(path)


_NOT_AN_OBJECT: Final = ("model_type", "model_attributes_type")


class UnionForms(NamedTuple):
    """A union of models that users write as alternative forms of one field.

    `keys`: the field that marks each form, by the name of its model. `expected`: the message if no form fits.
    """

    keys: Mapping[str, str]
    expected: str


def message(finding: ErrorDetails) -> str:
    """Return the text of a pydantic error, as a clause that follows the field's path."""
    return _MESSAGES.get(finding["type"]) or finding["msg"].removeprefix("Value error, ")


_MESSAGES: Final = {
    "extra_forbidden": "there is no such field",
    "missing": "is missing",
    "string_type": "must be text (in YAML, put yes, no, on, off, numbers and dates in quotes)",
    "list_type": "must be a list",
    "timezone_aware": "must end with Z or an offset, such as 2026-11-21T03:00:00Z",
    **dict.fromkeys((*_NOT_AN_OBJECT, "dict_type"), "must be an object"),
}


def field_errors(
    error: ValidationError, given: Any, within: Sequence[str | int] = ("params",), forms: UnionForms | None = None
) -> list[FieldError]:
    """Return the errors that pydantic found in `given`, each with the path of its field under `within`.

    For a union, pydantic reports the errors of every alternative, with its name in the path. These names are left out,
    and only the errors of the closest alternative are returned; for the union in `forms`, with the messages of `forms`.
    No error contains a value, which may be a secret.
    """
    found = error.errors(include_url=False, include_input=False, include_context=False)
    findings = [_Finding.of(detail, given, within) for detail in found]
    return list(dict.fromkeys(finding.error for finding in _closest(findings, 0, forms)))


class _Finding(NamedTuple):
    """An error of pydantic. `choices`: the path of each union on the way, and the alternative that the error is about.

    `distance`: how strongly the error suggests that the user did not mean this alternative.
    """

    error: FieldError
    path: Path
    kind: str
    choices: tuple[tuple[Path, str | int], ...]
    distance: int

    @classmethod
    def of(cls, detail: ErrorDetails, given: Any, within: Sequence[str | int]) -> "_Finding":
        kind, place = detail["type"], detail["loc"]
        path: list[str | int] = [*within]
        choices: list[tuple[Path, str | int]] = []
        for depth, part in enumerate(place):
            inner = _inner(given, part)
            if inner is not _NOTHING:
                given = inner
                path.append(part)
            elif kind == "missing" and depth == len(place) - 1:
                path.append(part)
            else:
                choices.append((tuple(path), part))
        distance = 2 if kind.endswith("_type") else int(kind in ("missing", "extra_forbidden"))
        return cls(FieldError(dotted(path), message(detail)), tuple(path), kind, tuple(choices), distance)


_NOTHING: Final = object()


def _inner(given: Any, part: str | int) -> Any:
    if isinstance(given, Mapping):
        return given.get(part, _NOTHING)
    if isinstance(given, list) and isinstance(part, int) and part < len(given):
        return given[part]
    return _NOTHING


def _closest(findings: list[_Finding], depth: int, forms: UnionForms | None) -> list[_Finding]:
    """Pick the findings of the alternatives that the user most likely meant. `depth` counts unions chosen so far."""
    kept: list[_Finding] = []
    places: dict[Path, dict[str | int, list[_Finding]]] = {}
    for finding in findings:
        if len(finding.choices) == depth:
            kept.append(finding)
        else:
            place, alternative = finding.choices[depth]
            places.setdefault(place, {}).setdefault(alternative, []).append(finding)
    for place, alternatives in places.items():
        by_model = {_model_named(alternative): about for alternative, about in alternatives.items()}
        if forms is not None and by_model.keys() <= forms.keys.keys():
            kept += _of_form(place, by_model, forms)
            continue
        closest = (_closest(about, depth + 1, forms) for about in alternatives.values())
        kept += min(closest, key=lambda about: sum(finding.distance for finding in about))
    return kept


def _model_named(alternative: str | int) -> str:
    """Extract the model's name from pydantic's label of a union member: `Cron` in `function-after[_fires(), Cron]`."""
    return str(alternative).rpartition(" ")[2].rstrip("]")


def _of_form(place: Path, by_model: Mapping[str, list[_Finding]], forms: UnionForms) -> list[_Finding]:
    """Return the findings about the closest form; if no form fits, one finding with the message `forms.expected`."""
    model, meant = min(by_model.items(), key=lambda item: (sum(one.kind == "missing" for one in item[1]), len(item[1])))
    key = forms.keys[model]
    if any(one.kind in ("missing", *_NOT_AN_OBJECT) for one in meant):
        return [meant[0]._replace(error=FieldError(dotted(place), forms.expected))]
    found: list[_Finding] = []
    for one in meant:
        path = one.path if one.path != place else (*place, key)
        text = f"cannot be combined with {key}" if one.kind == "extra_forbidden" else one.error.message
        found.append(one._replace(error=FieldError(dotted(path), text)))
    return found
