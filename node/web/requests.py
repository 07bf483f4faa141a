"""The queries of the page's endpoints."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from node.web.board import Mark
from node.web.overview_parts import OverviewPart
from node.web.task_search import TaskSort


class _PageQuery(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


NamesGiven = Annotated[tuple[str, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)]
"""Names, of which a query has one or several."""


class SignInQuery(_PageQuery):
    """Where to go after signing in."""

    next: str = Field(default="/", max_length=2000)


class AssetQuery(_PageQuery):
    """The version of an asset."""

    v: str = ""


class LiveQuery(_PageQuery):
    """The parts that an open page shows: a JSON list of paths with queries, such as `["/?part=running"]`."""

    parts: str = Field(max_length=20_000)


class OverviewQuery(_PageQuery):
    """Which part of the overview; None: the whole page."""

    part: OverviewPart | None = None


class TimelineQuery(_PageQuery):
    """How many hours back and ahead, and without which members or with which ones back (each may be repeated)."""

    past_h: Literal[1, 6, 24] = 6
    ahead_h: Literal[1, 6, 24] = 24
    without: NamesGiven = ()
    back: NamesGiven = ()
    part: Literal["plan"] | None = None

    @field_validator("past_h", "ahead_h", mode="before")
    @classmethod
    def _number(cls, given: object) -> object:
        return int(given) if isinstance(given, str) and given.isdecimal() else given


class TaskPageQuery(_PageQuery):
    """Which part of a task's page, None: all of it; and before which run the list of its runs begins."""

    part: Literal["now", "past", "panel", "definition"] | None = None
    after: str | None = Field(default=None, max_length=1000)


class RunFormQuery(_PageQuery):
    """The run whose params are given again; None: those of the task."""

    like: str | None = Field(default=None, max_length=300)


class NewPageQuery(_PageQuery):
    """The task whose definition is copied; None: an example."""

    like: str | None = Field(default=None, max_length=200)


class RunPageQuery(_PageQuery):
    """Which part of a run's page, None: all of it."""

    part: Literal["now"] | None = None


class MembersPageQuery(_PageQuery):
    """Which part; `preview`: what would move if `member` were drained, or if it were back."""

    part: Literal["cards", "preview"] | None = None
    member: str = Field(default="", max_length=200)


class EventsPageQuery(_PageQuery):
    """Which events to show: their sort, a part of their task's name, a member that they name."""

    event: Literal["member", "owner", "run", "deadline"] | None = None
    task: str = Field(default="", max_length=200)
    node: str | None = Field(default=None, max_length=200)
    after: str | None = Field(default=None, max_length=1000)
    part: Literal["rows"] | None = None


class TasksPageQuery(_PageQuery):
    """Which tasks to show: words of their names, what stands out of them, their kind, owner, set and label; and how."""

    q: str = Field(default="", max_length=200)
    show: Mark | None = None
    kind: str | None = Field(default=None, max_length=200)
    owner: str | None = Field(default=None, max_length=200)
    set: str | None = Field(default=None, max_length=200)
    label: str | None = Field(default=None, max_length=1000)
    sort: TaskSort = "name"
    after: str | None = Field(default=None, max_length=1500)
    part: Literal["rows"] | None = None
