"""What is wrong with a definition or with params, field by field, in the user's own terms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

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


def message(finding: ErrorDetails) -> str:
    """What pydantic found, as a clause that follows the field's path."""
    return _MESSAGES.get(finding["type"]) or finding["msg"].removeprefix("Value error, ")


_MESSAGES: Final = {
    "extra_forbidden": "there is no such field",
    "missing": "is missing",
    "string_type": "must be text (in YAML, put yes, no, on, off, numbers and dates in quotes)",
}


def field_errors(error: ValidationError, given: Any, within: str = "params") -> list[FieldError]:
    """What pydantic found wrong with `given`, each with the path of its field under `within`.

    If a field may have one of several types, pydantic's paths name the models and validators that were tried; these
    names are left out, and only the errors of the type that fits best are reported. No value is repeated: it may be a
    secret.
    """
    found = error.errors(include_url=False, include_input=False, include_context=False)
    findings = [_Finding.of(detail, given, within) for detail in found]
    return list(dict.fromkeys(finding.error for finding in _closest(findings, 0)))


class _Finding(NamedTuple):
    """One of pydantic's errors.

    `choices`: the places where one of several alternatives was tried, and the alternative that this error is about.
    `distance`: how strongly the error suggests that this alternative was not meant.
    """

    error: FieldError
    choices: tuple[tuple[Path, str | int], ...]
    distance: int

    @classmethod
    def of(cls, detail: ErrorDetails, given: Any, within: str) -> "_Finding":
        kind, place = detail["type"], detail["loc"]
        path: list[str | int] = [within]
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
        return cls(FieldError(dotted(path), message(detail)), tuple(choices), distance)


_NOTHING: Final = object()


def _inner(given: Any, part: str | int) -> Any:
    if isinstance(given, Mapping):
        return given.get(part, _NOTHING)
    if isinstance(given, list) and isinstance(part, int) and part < len(given):
        return given[part]
    return _NOTHING


def _closest(findings: list[_Finding], depth: int) -> list[_Finding]:
    """The findings about the best-fitting alternative at each place, and those that are about no alternative."""
    kept: list[_Finding] = []
    places: dict[Path, dict[str | int, list[_Finding]]] = {}
    for finding in findings:
        if len(finding.choices) == depth:
            kept.append(finding)
        else:
            place, alternative = finding.choices[depth]
            places.setdefault(place, {}).setdefault(alternative, []).append(finding)
    for alternatives in places.values():
        closest = (_closest(about, depth + 1) for about in alternatives.values())
        kept += min(closest, key=lambda about: sum(finding.distance for finding in about))
    return kept
