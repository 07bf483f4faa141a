"""Finds the Chromium of this machine, and starts it for Playwright. Nothing is downloaded."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES: Final = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

FLAGS: Final = (
    "--no-sandbox",  # Chromium refuses root without it; it shows nothing but pages of these tests
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--font-render-hinting=none",  # the same letters on every machine
)

FIRST_PAINT_MS: Final = """new Promise(painted => new PerformanceObserver(seen => {
  for (const one of seen.getEntriesByName('first-contentful-paint')) painted(one.startTime);
}).observe({type: 'paint', buffered: true}))"""
"""Evaluates to when the page first showed something, once it has: that may be after it is loaded."""


def found() -> str | None:
    """The path of a Chromium: `CHROMIUM`, or the first of its names on the PATH; None: there is none."""
    if given := os.environ.get("CHROMIUM"):
        return given if os.access(given, os.X_OK) else None
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def lacking() -> str | None:
    """Why the page cannot be tested in a browser here, with what to do about it; None: it can."""
    if find_spec("playwright") is None or find_spec("axe_playwright_python") is None:
        return "Playwright is not installed (pip install -e '.[browser]')"
    if found() is None:
        how = "as root: apt-get install chromium; or CHROMIUM=/path/of/a/chromium"
        return f"there is no Chromium on this machine ({how})"
    return None


@contextmanager
def chromium() -> Iterator["Browser"]:
    """A Chromium without a window, with a new profile, which ends with the block."""
    from playwright.sync_api import sync_playwright  # not at the top: it may not be installed

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found(), headless=True, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()
