"""A tab of a browser on the page of one node, and what must hold in every one of them."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, expect

Scheme = Literal["light", "dark"]
Width = Literal["wide", "phone"]

SIZES: Final[dict[Width, tuple[int, int]]] = {"wide": (1280, 860), "phone": (390, 844)}
WAIT_MS: Final = 30_000
"""The deadline of what a test waits for, in milliseconds."""

expect.set_options(timeout=WAIT_MS)


@dataclass
class Tab:
    """A signed-in tab. `errors` is what the console said, `foreign` what was asked of another host than `url`'s.

    A test that asks for what a node refuses says so with `expected_error`, a pattern.
    """

    page: Page
    url: str
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    expected_error: str | None = None

    def __post_init__(self) -> None:
        self.page.set_default_timeout(WAIT_MS)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.errors.append(f"exception: {error}"))
        self.page.on("request", self._on_request)

    def go(self, path: str = "/") -> "Tab":
        """Open a path of the page, and wait until its scripts run and events arrive."""
        self.page.goto(self.url + path)
        if self.page.locator("#live").count():
            expect(self.page.locator("#live")).to_have_attribute("data-state", re.compile("yes|still"))
        return self

    def sign_in(self, token: str) -> "Tab":
        """Exchange a token for a session."""
        self.page.goto(self.url + "/sign-in")
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(lambda url: "/sign-in" not in url)
        return self

    def row(self, task: str) -> Locator:
        """The row of a table that names a task."""
        return self.page.get_by_role("row").filter(has=self.page.get_by_text(task, exact=True))

    def mark(self) -> None:
        """Mark this document: `unreloaded` holds until another one is loaded."""
        self.page.evaluate("window.sameDocument = true")

    def unreloaded(self) -> bool:
        """Whether the document is still the one that was marked."""
        return bool(self.page.evaluate("window.sameDocument === true"))

    def axe(self) -> None:
        """Raise `AssertionError` where axe-core finds a violation of its rules."""
        found = Axe().run(self.page).response["violations"]
        assert not found, "\n".join(map(_violation, found))

    def fits(self) -> None:
        """Raise `AssertionError` where the page is wider than the window."""
        wide = self.page.evaluate(
            "[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1"
            " && !e.closest('.hear, .scrolls')).map(e => e.outerHTML.slice(0, 120))"
        )
        assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), wide

    def clean(self) -> None:
        """Raise `AssertionError` where the console said something, or another host was asked."""
        errors = without_aborted(self.errors)
        said = [one for one in errors if not (self.expected_error and re.search(self.expected_error, one))]
        assert not said, said
        assert not self.foreign, self.foreign

    def screenshot(self, file: Path) -> None:
        """A picture of the whole page, with few colours, so that it is small."""
        from PIL import Image

        self.page.mouse.move(0, 0)
        self.page.screenshot(path=file, full_page=True, animations="disabled", caret="hide")
        with Image.open(file) as picture:
            # An adaptive palette: letters stay smooth, and a picture has a third of its size.
            method = Image.Quantize.FASTOCTREE
            picture.convert("RGB").quantize(256, method, dither=Image.Dither.NONE).save(file, optimize=True)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.url + "/", "data:", "blob:")):
            self.foreign.append(request.url)


def without_aborted(errors: list[str]) -> list[str]:
    """The errors without those of requests that the browser ended as the page was left: htmx says two of each.

    >>> without_aborted(["error: htmx:afterRequest, a", "error: htmx:sendAbort, a", "error: htmx:afterRequest, b"])
    ['error: htmx:afterRequest, b']
    """
    kept: list[str] = []
    for one in errors:
        if one.startswith("error: htmx:sendAbort, ") and kept and kept[-1].startswith("error: htmx:afterRequest, "):
            kept.pop()
        else:
            kept.append(one)
    return kept


def open_tab(browser: Browser, url: str, scheme: Scheme = "light", width: Width = "wide", cookies: Any = None) -> Tab:
    """A tab with a profile of its own, with the cookies of another one (its `storage_state`), or not signed in."""
    wide, high = SIZES[width]
    context = browser.new_context(
        storage_state=cookies,
        color_scheme=scheme,
        viewport={"width": wide, "height": high},
        reduced_motion="reduce",
        locale="en-GB",
        timezone_id="Europe/Paris",
    )
    return Tab(context.new_page(), url)


def _violation(found: dict[str, Any]) -> str:
    places = "; ".join(" ".join(map(str, node["target"])) + " " + node["html"][:200] for node in found["nodes"][:3])
    return f"{found['id']} ({found['impact']}): {found['help']}: {places}"
