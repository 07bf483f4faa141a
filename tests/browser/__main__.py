"""`make test-browser`: the page in this machine's Chromium, with real nodes behind it.

    python -m tests.browser [ARGUMENTS of pytest]

Where there is no browser, it says what is not tested and why, and ends with 0.
"""

import sys

import pytest

from tests.browser.chromium import lacking


def main() -> int:
    """Run the tests of this folder. Returns pytest's exit code."""
    if (why := lacking()) is not None:
        print(f"test-browser: NOT TESTED: the page in a browser (tests/browser), since {why}")
        return 0
    given = sys.argv[1:]
    paths = [] if any(one.startswith("tests/browser") for one in given) else ["tests/browser"]
    return int(pytest.main(["-m", "browser and not soak", *paths, *given]))


if __name__ == "__main__":
    sys.exit(main())
