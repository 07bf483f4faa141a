"""A task's deadlines, as a part of its definition: by when its runs must have begun, and succeeded."""

from functools import lru_cache
from typing import Annotated, Any, Final, Literal, get_args

import msgpack
from pydantic import BaseModel, ConfigDict, Field, model_validator

DeadlineName = Literal["start_within", "finish_within", "success_every"]
"""The name of a deadline: that of its field, without the unit."""

DEADLINES: Final[tuple[DeadlineName, ...]] = get_args(DeadlineName)

Limit = Annotated[float, Field(ge=1, le=366 * 86_400)]


class Deadlines(BaseModel):
    """Deadlines for a task's runs. A missed deadline does not change the runs: it is only shown, and sent on channels.

    A paused or disabled task misses no deadline; when it is resumed, the time is counted from then.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    start_within_s: Limit | None = Field(
        default=None,
        description="A run must have begun this long after it is due, in seconds; null: no deadline. A run that was "
        "started by hand is due at once",
    )
    finish_within_s: Limit | None = Field(
        default=None,
        description="A run must have succeeded this long after it is due, in seconds; null: no deadline. Where it has "
        "failed for good, a later one may succeed in its place",
    )
    success_every_s: Limit | None = Field(
        default=None,
        description="A run must succeed at least this often, in seconds: since the last success, or since the task was "
        "registered or resumed if that is later; null: no deadline",
    )

    @model_validator(mode="after")
    def _in_order(self) -> "Deadlines":
        start_s, finish_s = self.start_within_s, self.finish_within_s
        if start_s is not None and finish_s is not None and finish_s < start_s:
            raise ValueError(f"finish_within_s ({finish_s:g}) may not be less than start_within_s ({start_s:g})")
        return self

    def limit_us(self, name: DeadlineName) -> int | None:
        """Return the time that the deadline `name` allows, in microseconds; None: the task has no such deadline."""
        limit_s: float | None = getattr(self, f"{name}_s")
        return None if limit_s is None else round(limit_s * 1_000_000)


def deadlines_of(packed: bytes) -> Deadlines | None:
    """Return the deadlines of a spec that `tasks.definition.spec.Spec.pack` packed; None if it has none.

    Raises the same errors as `tasks.definition.spec.cached_spec`.

    >>> from tasks.definition.spec import Spec
    >>> deadlines_of(Spec(name="a", kind="command", deadlines={"finish_within_s": 60}).pack()).finish_within_s
    60.0
    >>> deadlines_of(Spec(name="a", kind="command").pack()) is None
    True
    """
    # Make a quick test first, because most tasks have no deadlines, and a new leader checks all tasks.
    return _deadlines_of(packed) if b"deadlines" in packed else None


@lru_cache(maxsize=1024)
def _deadlines_of(packed: bytes) -> Deadlines | None:
    raw = msgpack.unpackb(packed).get("deadlines")
    return _deadlines(tuple(raw.items())) if raw else None


@lru_cache(maxsize=256)
def _deadlines(items: tuple[tuple[str, Any], ...]) -> Deadlines:
    return Deadlines.model_validate(dict(items))
