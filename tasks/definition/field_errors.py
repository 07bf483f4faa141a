"""What is wrong with a definition or with params, field by field, in the user's own terms."""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong with one field. `field` is its path as the user wrote it: `params.argv[0]`."""

    field: str
    message: str


def dotted(path: Sequence[str | int]) -> str:
    """A path as users write it.

    >>> dotted((3, "retry", "attempts")), dotted(("params", "sources", 0)), dotted(())
    ('[3].retry.attempts', 'params.sources[0]', '')
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def raise_all(model: str, wrong: Iterable[str]) -> None:
    """Raise all that a check of several fields has found, for a validator of pydantic; nothing if it has found nothing.

    A validator that raises `ValueError` at the first of them hides the others.
    """
    details = [
        InitErrorDetails(type=PydanticCustomError("value_error", "{said}", {"said": said}), input=None)
        for said in wrong
    ]
    if details:
        raise ValidationError.from_exception_data(model, details)


def all_errors(model: type[BaseModel], given: Mapping[str, Any]) -> list[FieldError]:
    """All errors of `given` as that model, also those of checks that run only if each field by itself is valid.

    For these, the invalid fields are left out and the rest is checked again, until no further field is invalid. An
    error that names a field that was left out is not returned: it says nothing new.
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
"""How often a definition is checked, at most."""


def _path_in(given: Any, place: Sequence[str | int]) -> Path:
    """The path of the innermost field of an object that an error at `place` is about; () if it is about all of it."""
    path: list[str | int] = []
    for part in place:
        inner = _inner(given, part)
        if inner is _NOTHING:
            continue  # pydantic's name of an alternative, which is no field
        if isinstance(part, int):
            break  # only the list as a whole can be left out: without one item, the others would be at other places
        path.append(part)
        given = inner
    return tuple(path)


_NOT_AN_OBJECT: Final = ("model_type", "model_attributes_type")


class UnionForms(NamedTuple):
    """A union of models that users write as alternative forms of one field.

    `keys`: by the name of each model, the field that marks its form. `expected`: the message if no form fits.
    """

    keys: Mapping[str, str]
    expected: str


def message(finding: ErrorDetails) -> str:
    """An error of pydantic as a clause that follows the field's path."""
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
    """What pydantic found wrong with `given`, each error with the path of its field under `within`.

    Pydantic's paths contain the names of models and validators where a field may be one of several. They are left out,
    and only the errors of the closest alternative are returned: of a union of models in `forms`, in its words. No value
    is repeated: it may be a secret.
    """
    found = error.errors(include_url=False, include_input=False, include_context=False)
    findings = [_Finding.of(detail, given, within) for detail in found]
    return list(dict.fromkeys(finding.error for finding in _closest(findings, 0, forms)))


class _Finding(NamedTuple):
    """`choices`: each place where one of several alternatives had to be chosen, and the alternative that this is about.

    `distance`: how strongly it indicates that the user did not mean that alternative.
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
    """The findings, without those about alternatives that the user hardly meant."""
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
    """The name of the model in pydantic's label of a union's member: `Cron` in `function-after[_fires(), Cron]`."""
    return str(alternative).rpartition(" ")[2].rstrip("]")


def _of_form(place: Path, by_model: Mapping[str, list[_Finding]], forms: UnionForms) -> list[_Finding]:
    """The findings about the closest form; if none was meant, one that lists all forms."""
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
