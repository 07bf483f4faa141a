"""The views of the page: each is tested by `test_every_view.py`, and has its pictures in docs/images."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from playwright.sync_api import Page, expect


def _as_it_is(page: Page) -> None:
    """Nothing is done before the picture."""


def _open_panel(page: Page) -> None:
    page.get_by_role("link", name="orders-to-lake").click()
    if page.viewport_size and page.viewport_size["width"] > 1200:
        expect(page.locator("#panel h2")).to_be_visible()
    else:
        page.wait_for_url("**/tasks/orders-to-lake")  # no room beside the list


def _change_schedule(page: Page) -> None:
    text = page.get_by_label("Definition")
    text.fill(text.input_value().replace("keep: 7", "keep: 14").replace("30 2", "30 3"))
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#changes")).to_be_visible()


def _make_errors(page: Page) -> None:
    text = page.get_by_label("Definition")
    text.fill(text.input_value().replace("keep: 7", "keep: none\n  colour: red").replace("30 2 * * *", "30 25 * * *"))
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#errors")).to_be_visible()


def _open_delete(page: Page) -> None:
    page.locator(".confirm summary").click()
    expect(page.get_by_role("button", name="Delete photos-weekly")).to_be_visible()


def _make_param_wrong(page: Page) -> None:
    page.get_by_label("keep").fill("none")
    page.get_by_role("button", name="Run with these params").click()
    expect(page.locator("#errors")).to_be_visible()
    page.get_by_text("left out, with").click()


def _wait_for_chart(page: Page) -> None:
    expect(page.locator("#chart-took canvas")).to_be_visible()


def _wait_for_rate(page: Page) -> None:
    expect(page.locator("[data-rate]")).to_contain_text("left")


def _wait_for_week(page: Page) -> None:
    page.wait_for_url("**timezone=Europe**")  # the browser's own, by a script


def _wait_for_log(page: Page) -> None:
    expect(page.locator("#log div").first).to_be_visible()


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
    """A view. `path` is given the last run of each task of `showcase`. `prepare` shows what a click would show.

    `expected_error` is what the console says of it, a pattern. A picture is taken once `before_picture` has returned.
    """

    name: str
    path: Callable[[dict[str, str]], str]
    prepare: Callable[[Page], None] = _as_it_is
    expected_error: str | None = None
    before_picture: Callable[[Page], None] = _as_it_is


VIEWS: Final = (
    View("overview", lambda runs: "/"),
    View("tasks", lambda runs: "/tasks"),
    View("tasks-panel", lambda runs: "/tasks", _open_panel),
    View("task", lambda runs: "/tasks/invoices", _wait_for_chart),
    View("graph", lambda runs: f"/tasks/sales-join/graph?run_id={runs['sales-join']}"),
    View("task-calendar", lambda runs: "/tasks/payroll"),
    View("task-each", lambda runs: "/tasks/clean-tmp"),
    View("task-pool", lambda runs: "/tasks/dump-orders"),
    View("task-template", lambda runs: "/tasks/day-of-sales"),
    View("run-each", lambda runs: f"/runs/{runs['clean-tmp']}"),
    View("run-template", lambda runs: f"/runs/{runs['day-of-sales']}"),
    View("run-backfill", lambda runs: f"/runs/{runs['backfill']}"),
    View("graph-set", lambda runs: "/graph?set=dumps"),
    View("graph-all", lambda runs: "/graph"),
    View("task-delete", lambda runs: "/tasks/photos-weekly", _open_delete),
    View("task-run", lambda runs: "/tasks/uploads/run-with", _make_param_wrong, "422"),
    View("task-edit", lambda runs: "/tasks/uploads/edit", _change_schedule),
    View("task-edit-errors", lambda runs: "/tasks/uploads/edit", _make_errors, "422"),
    View("run", lambda runs: f"/runs/{runs['clickstream']}", _wait_for_log, before_picture=_wait_for_rate),
    View("run-failed", lambda runs: f"/runs/{runs['currency-rates']}", _wait_for_log),
    View("run-given", lambda runs: f"/runs/{runs['given']}"),
    View("task-backups", lambda runs: "/tasks/uploads/backups"),
    View("run-backup", lambda runs: f"/runs/{runs['uploads']}"),
    View("timeline", lambda runs: "/timeline"),
    View("what-if", lambda runs: "/timeline?past_h=1&ahead_h=6&without=node-3"),
    View("week", lambda runs: "/week", _wait_for_week),
    View("members", lambda runs: "/members"),
    View("events", lambda runs: "/events", _something_happens),
)
