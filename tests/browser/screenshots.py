"""`make screenshots`: takes the pictures of docs/images, each view in light and dark, wide and on a phone.

python -m tests.browser.screenshots [VIEW ...]
"""

import sys
import tempfile
from pathlib import Path
from typing import Final

from testkit.cluster import Cluster
from tests.browser.chromium import chromium, lacking
from tests.browser.showcase import ENV, TOKEN, fill

FOLDER: Final = Path(__file__).parents[2] / "docs/images"


def main() -> int:
    """Take the pictures of the views that are named, or of all. Returns 0, or 1 where there is no browser."""
    if (why := lacking()) is not None:
        print(f"screenshots: none was taken, since {why}")
        return 1
    from tests.browser.tab import SIZES, open_tab
    from tests.browser.views import VIEWS

    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Cluster(Path(folder), env=ENV, open_to_all=False) as cluster:
        cluster.start()
        cluster.wait_until_whole()
        runs = fill(cluster)
        with chromium() as browser:
            for width in SIZES:
                for scheme in ("light", "dark"):
                    tab = open_tab(browser, cluster.url("node-1"), scheme, width).sign_in(TOKEN)
                    for view in VIEWS:
                        if view.name in (sys.argv[1:] or [view.name]):
                            tab.go(view.path(runs))
                            view.prepare(tab.page)
                            view.before_picture(tab.page)
                            tab.screenshot(FOLDER / f"{view.name}-{scheme}-{width}.png")
                    tab.page.context.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
