"""Errors as RFC 9457 problem documents, each with a `type` of its own.

A handler raises a `Problem`; the middleware `problem_responses` turns it into a response. `CATALOGUE` lists every type;
/openapi.json is generated from it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from aiohttp import web
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json
from typing_extensions import TypedDict

from tasks.definition.field_errors import FieldError, Path, UnionForms, field_errors
from tasks.definition.spec import NAME_PATTERN

TYPE_PREFIX: Final = "urn:rota:problem:"
MEDIA_TYPE: Final = "application/problem+json"
MAX_ERRORS: Final = 100
CATALOGUE: Final[dict[str, tuple[int, str]]] = {
    "bad-request": (400, "The request does not parse"),
    "unauthorized": (401, "Not authorized"),
    "foreign-page": (403, "The request comes from another site's web page"),
    "read-only": (403, "This token may read only"),
    "stale-form": (403, "The form is not of this session"),
    "not-found": (404, "Not found"),
    "method-not-allowed": (405, "This path does not support the method"),
    "request-timeout": (408, "The body did not arrive in time"),
    "conflict": (409, "Not possible in the present state"),
    "version-conflict": (412, "The version is another one"),
    "too-large": (413, "The request is too large"),
    "media-type": (415, "The body must be uncompressed JSON"),
    "misdirected": (421, "The host name is not one of this node"),
    "other-cluster": (421, "The request is for another cluster"),
    "invalid": (422, "Some fields are invalid"),
    "not-sent": (502, "The message was not accepted"),
    "wrong-tokens": (429, "Too many wrong tokens from this address"),
    "internal": (500, "This node failed to answer"),
    "no-quorum": (503, "There is no quorum; nothing was changed"),
    "not-ready": (503, "This node is not ready"),
    "behind": (503, "This node has not applied that index yet"),
    "member-away": (503, "The member that has the data does not answer"),
    "overloaded": (503, "This node is overloaded; nothing was changed"),
    "stopping": (503, "This node is stopping"),
    "outcome-unknown": (504, "The outcome is unknown; the change may yet be committed"),
}
"""Problem types: the status and the title of each."""


class FieldProblem(TypedDict):
    """An error in one field. `field` is its path, such as `[3].retry.attempts`."""

    field: str
    message: str


class ProblemDocument(TypedDict, total=False):
    """RFC 9457: what went wrong, and what to do about it."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldProblem]


class Problem(Exception):
    """An error response. `kind` is a key of `CATALOGUE`; `detail` says what is wrong and what to do.

    `errors` are errors of single fields; `more` are further members of the document.
    """

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
        """Return the problem document."""
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
        """Return the response; a 503 has a Retry-After header."""
        headers = dict(self.headers)
        if self.status == 503:
            headers.setdefault("Retry-After", "1")
        document = self.document()
        try:
            body = to_json(document)
        except PydanticSerializationError:
            # The detail quotes text that is not UTF-8, which `json` escapes.
            body = json.dumps(document).encode()
        return web.Response(body=body, status=self.status, content_type=MEDIA_TYPE, headers=headers)


def invalid(errors: Sequence[FieldError], what: str = "the body") -> Problem:
    """Make a 422 problem: `errors` names the fields of `what` that are invalid, and why."""
    shown = "; ".join(f"{error.field}: {error.message}" if error.field else error.message for error in errors[:3])
    more = f"; and {len(errors) - 3} more" if len(errors) > 3 else ""
    return Problem("invalid", f"in {what}: {shown}{more}", errors=errors)


def invalid_field(field: str, message: str, what: str = "the body") -> Problem:
    """Make a 422 problem for one field."""
    return invalid([FieldError(field, message)], what)


NAME_RULE: Final = (
    "must begin with a letter or digit and have only letters, digits, '.', '_' and '-' (no slash), "
    "128 characters at most"
)
_SCHEDULE: Final = UnionForms(
    {"Cron": "cron", "Every": "every_s", "At": "at", "Continuous": "continuous"},
    "must be one of {cron, timezone}, {every_s}, {at}, {continuous: true}, or null",
)


def body_errors(error: ValidationError, given: Any, place: Path = ()) -> list[FieldError]:
    """Return the errors that pydantic found in `given`: a body, a query, or the part of a body at `place`."""
    return [
        replace(one, message=NAME_RULE) if NAME_PATTERN in one.message else one
        for one in field_errors(error, given, place, _SCHEDULE)
    ]
