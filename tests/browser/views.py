"""The views of the page: each is tested by `test_every_view.py`, and has its pictures in docs/images."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from playwright.sync_api import Page


def _as_it_is(page: Page) -> None:
    """Nothing is done before the picture."""


def _something_happens(page: Page) -> None:
    """Run a task while the node follows the events, and come back to the view."""
    view = page.url
    page.goto(view.removesuffix("/events") + "/tasks")
    page.locator("#live[data-state=yes]").wait_for()
    page.get_by_role("button", name="Run customers-to-lake").click()
    page.locator(".notice").wait_for()
    page.goto(view)
    page.get_by_role("row").filter(has_text="succeeded").first.wait_for()


@dataclass(frozen=True)
class View:
    """A view. `path` is given the last run of each task of `showcase`. `prepare` shows what a click would show."""

    name: str
    path: Callable[[dict[str, str]], str]
    prepare: Callable[[Page], None] = _as_it_is


VIEWS: Final = (
    View("overview", lambda runs: "/"),
    View("tasks", lambda runs: "/tasks"),
    View("timeline", lambda runs: "/timeline"),
    View("what-if", lambda runs: "/timeline?past_h=1&ahead_h=6&without=node-3"),
    View("members", lambda runs: "/members"),
    View("events", lambda runs: "/events", _something_happens),
)
