"""The queries of the page's endpoints."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from node.web.board import Mark
from node.web.overview_parts import OverviewPart


class _PageQuery(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class SignInQuery(_PageQuery):
    """Where to go after signing in."""

    next: str = Field(default="/", max_length=2000)


class AssetQuery(_PageQuery):
    """The version of an asset."""

    v: str = ""


class OverviewQuery(_PageQuery):
    """Which part of the overview; None: the whole page."""

    part: OverviewPart | None = None


class TaskPageQuery(_PageQuery):
    """Which part of a task's page, None: all of it; and before which run the list of its runs begins."""

    part: Literal["now", "past", "panel"] | None = None
    after: str | None = Field(default=None, max_length=1000)


class RunPageQuery(_PageQuery):
    """Which part of a run's page, None: all of it."""

    part: Literal["now"] | None = None


class TasksPageQuery(_PageQuery):
    """Which tasks to show: words of their names, what stands out of them, their kind and owner."""

    q: str = Field(default="", max_length=200)
    show: Mark | None = None
    kind: str | None = Field(default=None, max_length=200)
    owner: str | None = Field(default=None, max_length=200)
    after: str | None = Field(default=None, max_length=1000)
    part: Literal["rows"] | None = None
