"""The views of the page: each is tested by `test_every_view.py`, and has its pictures in docs/images."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from playwright.sync_api import Page


def _as_it_is(page: Page) -> None:
    """Nothing is done before the picture."""


@dataclass(frozen=True)
class View:
    """A view. `path` is given the last run of each task of `showcase`. `prepare` shows what a click would show."""

    name: str
    path: Callable[[dict[str, str]], str]
    prepare: Callable[[Page], None] = _as_it_is


VIEWS: Final = (
    View("overview", lambda runs: "/"),
    View("tasks", lambda runs: "/tasks"),
)
