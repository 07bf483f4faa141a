"""What goes wrong, as RFC 9457 problem documents, each with a `type` of its own.

A handler raises a `Problem`; the app turns it into an answer. `CATALOGUE` names every type there is:
/openapi.json is written from it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from aiohttp import web
from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError, to_json

from tasks.field_errors import FieldError, dotted, message
from tasks.spec import NAME_PATTERN

TYPE_PREFIX: Final = "urn:rota:problem:"
MEDIA_TYPE: Final = "application/problem+json"
MAX_ERRORS: Final = 100

CATALOGUE: Final[dict[str, tuple[int, str]]] = {
    "bad-request": (400, "The request does not parse"),
    "unauthorized": (401, "Not authorized"),
    "foreign-page": (403, "Another site's page has sent this"),
    "not-found": (404, "There is no such thing"),
    "method-not-allowed": (405, "This method is not for this path"),
    "request-timeout": (408, "The body did not arrive in time"),
    "conflict": (409, "This is not possible as things stand"),
    "version-conflict": (412, "It has changed meanwhile"),
    "too-large": (413, "That is too much at once"),
    "media-type": (415, "The body must be JSON, and not compressed"),
    "misdirected": (421, "This host name is not this node's"),
    "other-cluster": (421, "This is another cluster"),
    "invalid": (422, "Some fields are not right"),
    "internal": (500, "This node failed at it"),
    "no-quorum": (503, "There is no quorum; nothing was changed"),
    "not-ready": (503, "This node is not ready"),
    "behind": (503, "This node has not come that far"),
    "member-away": (503, "The member that has it does not answer"),
    "overloaded": (503, "Too much is under way here; nothing was changed"),
    "stopping": (503, "This node is stopping"),
    "outcome-unknown": (504, "It may yet be committed"),
}
"""Problem types: the status and the title of each."""


class Problem(Exception):
    """An answer other than the one hoped for. `kind` is a key of `CATALOGUE`; `detail` says what to do about it."""

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})
        self.more = more

    @property
    def status(self) -> int:
        """The HTTP status."""
        return CATALOGUE[self.kind][0]

    def document(self) -> dict[str, Any]:
        """The problem document."""
        status, title = CATALOGUE[self.kind]
        document: dict[str, Any] = {
            "type": TYPE_PREFIX + self.kind,
            "title": title,
            "status": status,
            "detail": self.detail,
            **self.more,
        }
        if self.errors:
            document["errors"] = [asdict(error) for error in self.errors[:MAX_ERRORS]]
        return document

    def response(self) -> web.Response:
        """The answer."""
        headers = dict(self.headers)
        if self.status == 503:
            headers.setdefault("Retry-After", "1")
        document = self.document()
        try:
            body = to_json(document)
        except PydanticSerializationError:
            # It quotes what is not UTF-8. It is to be told all the same, with those characters escaped.
            body = json.dumps(document).encode()
        return web.Response(body=body, status=self.status, content_type=MEDIA_TYPE, headers=headers)


def invalid(errors: Sequence[FieldError], what: str = "the body") -> Problem:
    """422: `errors` says which fields of `what`, and why."""
    shown = "; ".join(f"{error.field}: {error.message}" if error.field else error.message for error in errors[:3])
    more = f"; and {len(errors) - 3} more" if len(errors) > 3 else ""
    return Problem("invalid", f"in {what}: {shown}{more}", errors=errors)


def invalid_field(field: str, message: str, what: str = "the body") -> Problem:
    """422 for one field."""
    return invalid([FieldError(field, message)], what)


def field_errors(error: ValidationError) -> list[FieldError]:
    """What pydantic found, each field by its dotted path as the client wrote it.

    Of a schedule, which may be one of several forms, only what is wrong with the form that was meant is told.
    """
    found = error.errors(include_url=False, include_context=False, include_input=False)
    told: list[FieldError] = []
    forms: dict[tuple[str | int, ...], list[ErrorDetails]] = {}
    for detail in found:
        place = _place_of_schedule(detail["loc"])
        if place is None:
            told.append(FieldError(dotted(detail["loc"]), _message(detail)))
        else:
            forms.setdefault(place, []).append(detail)
    for place, details in forms.items():
        told += _of_form(place, details)
    return told


_FORMS: Final = {"Cron": "cron", "Every": "every_s", "At": "at", "Continuous": "continuous"}


def _place_of_schedule(loc: tuple[str | int, ...]) -> tuple[str | int, ...] | None:
    """Where the schedule stands that this is about, if pydantic names one of its forms; else None."""
    for depth in (1, 2):
        if len(loc) > depth and loc[depth - 1] == "schedule" and _form_named(loc[depth]) is not None:
            return loc[:depth]
    return None


def _form_named(label: str | int) -> str | None:
    """The form that pydantic means by `Every`, or by `function-after[_fires(), Cron]`."""
    name = str(label).rpartition(" ")[2].rstrip("]")
    return name if name in _FORMS else None


def _of_form(place: tuple[str | int, ...], details: Sequence[ErrorDetails]) -> list[FieldError]:
    by_form: dict[str, list[ErrorDetails]] = {}
    for detail in details:
        by_form.setdefault(_form_named(detail["loc"][len(place)]) or "", []).append(detail)
    form, meant = min(by_form.items(), key=lambda item: (sum(d["type"] == "missing" for d in item[1]), len(item[1])))
    if any(d["type"] in ("missing", "model_type", "model_attributes_type") for d in meant):
        message = "must be one of {cron, timezone}, {every_s}, {at}, {continuous: true}, or null"
        return [FieldError(dotted(place), message)]
    told = []
    for detail in meant:
        within = detail["loc"][len(place) + 1 :] or (_FORMS[form],)
        strange = detail["type"] == "extra_forbidden"
        message = f"does not go with {_FORMS[form]}" if strange else _message(detail)
        told.append(FieldError(dotted((*place, *within)), message))
    return told


def _message(detail: ErrorDetails) -> str:
    if detail["type"] == "string_pattern_mismatch" and NAME_PATTERN in detail["msg"]:
        return (
            "must begin with a letter or digit and hold only letters, digits, '.', '_' and '-' (no slash), 128 at most"
        )
    if detail["type"] == "model_type":
        return "must be an object"
    return message(detail)
