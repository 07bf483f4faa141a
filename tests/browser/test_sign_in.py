"""Signing in, and what each role may press."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from testkit.cluster import Cluster
from tests.browser.showcase import TOKEN
from tests.browser.tab import Tab

pytestmark = pytest.mark.browser


def test_a_token_opens_the_page_that_was_asked_for(cluster: Cluster, tab_of: Callable[..., Tab]) -> None:
    tab = tab_of()
    page = tab.page
    tab.expected_error = "401"
    page.get_by_role("button", name="Sign out").click()
    page.goto(tab.url + "/tasks?q=uploads")
    expect(page).to_have_title("Sign in: Rota")
    page.get_by_label("Token").fill("a guess")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("not a token of this cluster")
    tab.axe()
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Tasks")).to_be_visible()
    expect(tab.row("uploads")).to_be_visible()
    assert page.url.endswith("/tasks?q=uploads")
    assert page.evaluate("document.cookie") == "", "no script reads the session"


def test_a_button_pressed_as_soon_as_it_is_there_leaves_the_page_open(
    cluster: Cluster, tab_of: Callable[..., Tab]
) -> None:
    tab = tab_of("/tasks")
    page = tab.page
    page.evaluate("""() => {
      document.addEventListener("htmx:afterSwap", () => queueMicrotask(() => {
        document.querySelector("#rows form[action$='reindex-search/pause'] button").click();
      }), { once: true });
      window.same = true;
    }""")
    page.locator("#search").fill("reindex")
    expect(page.locator("#notice")).to_contain_text("reindex-search is paused")
    assert page.evaluate("window.same"), "htmx sent the form: the browser did not leave the page"
    page.get_by_role("button", name="Resume reindex-search").click()
    expect(page.get_by_role("button", name="Pause reindex-search")).to_be_visible()


def test_buttons_work_from_the_keyboard(cluster: Cluster, tab_of: Callable[..., Tab]) -> None:
    tab = tab_of("/tasks")
    page = tab.page
    page.keyboard.press("/")
    page.keyboard.type("reindex")
    expect(page.locator("#rows tbody tr")).to_have_count(1)
    assert page.url.endswith("/tasks?q=reindex")
    page.get_by_role("button", name="Pause reindex-search").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#notice")).to_contain_text("reindex-search is paused")
    expect(page.get_by_role("button", name="Resume reindex-search")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Pause reindex-search")).to_be_visible()
