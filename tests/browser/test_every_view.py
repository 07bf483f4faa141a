"""What holds for each view: no violation found by axe, an empty console, no request to another host, no overflow."""

from collections.abc import Callable

import pytest

from tests.browser.tab import SIZES, Tab
from tests.browser.views import VIEWS, View

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("view", VIEWS, ids=[view.name for view in VIEWS])
def test_a_view_is_accessible_and_fits(view: View, tab_of: Callable[..., Tab], runs: dict[str, str]) -> None:
    tab = tab_of(view.path(runs))
    tab.expected_error = view.expected_error
    view.prepare(tab.page)
    tab.axe()
    tab.fits()
    tab.page.emulate_media(color_scheme="dark")
    tab.axe()
    wide, high = SIZES["phone"]
    tab.page.set_viewport_size({"width": wide, "height": high})
    tab.fits()
    tab.axe()


def test_a_view_has_no_buttons_for_a_reader(tab_of: Callable[..., Tab], runs: dict[str, str]) -> None:
    tab = tab_of(reader=True)
    for view in VIEWS:
        tab.go(view.path(runs))
        buttons = tab.page.locator("main form[method=post] button").all_text_contents()
        assert buttons == [], (view.name, buttons)
    tab.axe()


def test_the_door_is_accessible(tab_of: Callable[..., Tab]) -> None:
    tab = tab_of()
    tab.page.get_by_role("button", name="Sign out").click()
    tab.page.wait_for_url("**/sign-in*")
    tab.axe()
    tab.page.set_viewport_size({"width": 390, "height": 844})
    tab.fits()
