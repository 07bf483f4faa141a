"""What is wrong with what a user wrote, field by field, in the user's own terms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong with one field. `field` is its path as it was written: `params.argv[0]`."""

    field: str
    message: str


def dotted(path: Sequence[str | int]) -> str:
    """A path as people write it.

    >>> dotted((3, "retry", "attempts")), dotted(("params", "sources", 0)), dotted(())
    ('[3].retry.attempts', 'params.sources[0]', '')
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def message(finding: ErrorDetails) -> str:
    """What pydantic found, as a clause."""
    if finding["type"] == "extra_forbidden":
        return "there is no such field"
    if finding["type"] == "missing":
        return "is missing"
    return finding["msg"].removeprefix("Value error, ")


def field_errors(error: ValidationError, given: Any, within: str = "params") -> list[FieldError]:
    """What pydantic found wrong with `given`, each with the path of its field under `within`.

    Pydantic's paths hold the names of models and validators where a field may be one of several; they are left
    out. Of such a field, what is told is what is wrong with the alternative that it comes closest to. No value is
    repeated: it may be a secret.
    """
    found = error.errors(include_url=False, include_input=False, include_context=False)
    told = (_Finding.of(detail, given, within) for detail in found)
    return list(dict.fromkeys(finding.told for finding in _closest(list(told), 0)))


class _Finding(NamedTuple):
    """`choices`: each place where one of several alternatives had to be chosen, and which of them this is about.

    `distance`: how much it speaks against that alternative's having been meant.
    """

    told: FieldError
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
    """The findings, less those about alternatives that were hardly meant."""
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
