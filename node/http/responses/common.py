"""What several responses have: times, cursors, and problem documents."""

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"}, description="RFC 3339, UTC")]
Cursor = Annotated[str | None, Field(description="Send it as `after` to get the next page; null on the last page")]


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
