"""The page at /: how soon it is there, how soon it shows what happens, and what open pages cost a node.

    python -m bench.page [--pages 200] [--seconds 20] [--tasks 10000]

First paint is a browser's own figure (Paint Timing), of the overview with so many tasks registered; without Chromium
and Playwright (make test-browser) it is left out. An event is a run that is started through another node: the time
from that node's answer until the stream of an open page has brought the part that shows it, and until a browser's
document has it. Open pages are streams as browsers hold them, each
with a session, on one node: at rest, and while runs begin and end each second. Their cost is the node's processor time;
beside it, how late the node's threads were, and how long runs took from their due time to their begin.
"""

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from http.cookies import SimpleCookie
from itertools import count
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import aiohttp

from bench.beginning import options_of, ready_cluster
from bench.idle import cost_of
from bench.sizing.figures import fresh_window, late
from node.cli.local import LocalCluster
from tests.browser.chromium import FIRST_PAINT_MS, chromium, lacking

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PARTS: Final = [f"/?part={part}" for part in ("verdict", "running", "attention", "members", "coming")]
SHOWN: Final = "node-2"
"""The node whose page is open."""

EVENTS: Final = 20
NOTE_WHAT_IS_SEEN: Final = """
    window.seen = {};
    new MutationObserver(() => {
        for (const link of document.querySelectorAll("#running a.name")) seen[link.textContent] ??= Date.now();
    }).observe(document.body, { childList: true, subtree: true });
"""
PAINTS: Final = 7


async def signed_in(session: aiohttp.ClientSession, cluster: LocalCluster) -> dict[str, str]:
    """The headers of a browser that has signed in at `SHOWN`."""
    url = cluster.url(SHOWN)
    async with session.get(f"{url}/sign-in") as answer:
        cookies = SimpleCookie(answer.headers["Set-Cookie"])
        csrf = (await answer.text()).partition('name="csrf" value="')[2].partition('"')[0]
    form = {"csrf": csrf, "token": cluster.token or "", "next": "/"}
    sent = {"Cookie": _cookie(cookies), "Origin": url}
    async with session.post(f"{url}/sign-in", data=form, headers=sent, allow_redirects=False) as answer:
        assert answer.status == 303, await answer.text()
        return {"Cookie": _cookie(SimpleCookie(answer.headers["Set-Cookie"]))}


def _cookie(cookies: SimpleCookie) -> str:
    return "; ".join(f"{name}={morsel.value}" for name, morsel in cookies.items())


@asynccontextmanager
async def open_page(
    session: aiohttp.ClientSession, cluster: LocalCluster, headers: dict[str, str]
) -> AsyncIterator[aiohttp.ClientResponse]:
    """The stream of one open overview."""
    url = f"{cluster.url(SHOWN)}/live?parts={quote(json.dumps(PARTS))}"
    async with session.get(url, headers=headers, timeout=aiohttp.ClientTimeout(total=None)) as stream:
        assert stream.status == 200, await stream.text()
        yield stream


async def _drain(
    session: aiohttp.ClientSession, cluster: LocalCluster, headers: dict[str, str], got: list[int]
) -> None:
    async with open_page(session, cluster, headers) as stream:
        async for piece in stream.content.iter_any():
            got[0] += len(piece)


async def cost_of_pages(cluster: LocalCluster, pages: int, seconds: float, what: str) -> None:
    """Print what so many open pages cost."""
    pid, got = cluster.pid(SHOWN), [0]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), read_bufsize=2**20) as session:
        headers = await signed_in(session, cluster)
        streams = [asyncio.create_task(_drain(session, cluster, headers, got)) for _ in range(pages)]
        await asyncio.sleep(5)
        await asyncio.to_thread(fresh_window)
        before, begun_s, bytes_before = cost_of(pid).cpu_s, time.monotonic(), got[0]
        since = datetime.now().astimezone()
        await asyncio.sleep(seconds)
        share = 100 * (cost_of(pid).cpu_s - before) / (time.monotonic() - begun_s)
        sent_kib = (got[0] - bytes_before) / 1024 / (time.monotonic() - begun_s)
        worst = await asyncio.to_thread(late, cluster, SHOWN)
        assert not any(stream.done() for stream in streams), "a stream has ended"
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
    print(
        f"  {pages} open pages, {what}: {share:.1f} % of a core, {sent_kib:.0f} KiB/s sent; at worst loop "
        f"{worst.loop_ms:.0f} ms late, heartbeats {worst.heartbeat_ms:.0f} ms, answers after {worst.answer_ms:.0f} ms"
        f"{_delays(cluster, since)}",
        flush=True,
    )


def _delays(cluster: LocalCluster, since: datetime) -> str:
    found = [
        1000 * (datetime.fromisoformat(run["started_at"]) - datetime.fromisoformat(run["fire_at"])).total_seconds()
        for run in cluster.client.get("/v1/runs", limit=1000)["items"]
        if run["started_at"] and datetime.fromisoformat(run["fire_at"]) > since
    ]
    return f"; due to begun: median {statistics.median(found):.0f} ms, worst {max(found):.0f} ms" if found else ""


async def time_to_be_seen(cluster: LocalCluster) -> None:
    """Print how long it takes until an open page shows that a run has begun."""
    times_ms = []
    async with aiohttp.ClientSession(read_bufsize=2**20) as session:
        headers = await signed_in(session, cluster)
        async with open_page(session, cluster, headers) as stream:
            numbers = count(1)
            for _ in range(EVENTS):
                await asyncio.sleep(1.5)
                name = f"seen-{next(numbers)}"
                spec = {"kind": "command", "params": {"argv": ["sleep", "1"]}}
                await asyncio.to_thread(cluster.client.call, "PUT", f"/v1/tasks/{name}", body=spec)
                await asyncio.sleep(1.5)
                await asyncio.to_thread(cluster.client_of("node-1").call, "POST", f"/v1/tasks/{name}/runs", body={})
                began_s = time.monotonic()
                while f"{name}~".encode() not in await stream.content.readline():
                    pass
                times_ms.append(1000 * (time.monotonic() - began_s))
    print(f"  a run is started elsewhere, until the open page has it: {_spread(times_ms)}", flush=True)


def time_to_be_seen_in_a_browser(cluster: LocalCluster) -> None:
    """Print how long it takes from another node's answer until a browser's document shows that a run has begun."""
    if lacking() is not None:
        return
    times_ms: list[float] = []
    with chromium() as browser:
        page = signed_in_page(browser, cluster)
        page.goto(cluster.url(SHOWN) + "/")
        page.wait_for_selector("#live[data-state=yes]")
        page.evaluate(NOTE_WHAT_IS_SEEN)
        for number in range(EVENTS):
            name = f"seen-in-browser-{number}"
            spec = {"kind": "command", "params": {"argv": ["sleep", "1"]}}
            cluster.client.call("PUT", f"/v1/tasks/{name}", body=spec)
            page.wait_for_timeout(1500)
            cluster.client_of("node-1").call("POST", f"/v1/tasks/{name}/runs", body={})
            answered_ms = 1000 * time.time()
            while not (seen_ms := page.evaluate("name => window.seen[name] ?? 0", name)):
                page.wait_for_timeout(50)  # the page allows no expression that would wait in it
            times_ms.append(seen_ms - answered_ms)
            page.wait_for_timeout(1500)
    print(f"  the same, until a browser's document has it: {_spread(times_ms)}", flush=True)


def signed_in_page(browser: "Browser", cluster: LocalCluster) -> "Page":
    """A tab that has signed in at `SHOWN`."""
    page = browser.new_context().new_page()
    page.goto(cluster.url(SHOWN) + "/sign-in")
    page.get_by_label("Token").fill(cluster.token or "")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(lambda url: "/sign-in" not in url)
    return page


def first_paint(cluster: LocalCluster) -> None:
    """Print when a browser shows something of the overview, and when it is complete."""
    if (why := lacking()) is not None:
        print(f"  first paint is not measured: {why}")
        return
    paints_ms, loaded_ms = [], []
    with chromium() as browser:
        page = signed_in_page(browser, cluster)
        for _ in range(PAINTS):
            page.goto(cluster.url(SHOWN) + "/")
            page.wait_for_selector("#live[data-state=yes]")
            paints_ms.append(page.evaluate(FIRST_PAINT_MS))
            loaded_ms.append(page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    print(f"  first contentful paint of the overview: {_spread(paints_ms)}; loaded: {_spread(loaded_ms)}", flush=True)


def _spread(times_ms: list[float]) -> str:
    return f"median {statistics.median(times_ms):.0f} ms, worst {max(times_ms):.0f} ms ({len(times_ms)} times)"


def _specs(tasks: int) -> Iterator[list[dict[str, object]]]:
    for first in range(0, tasks, 1000):
        yield [
            {
                "name": f"task-{number:06}",
                "kind": "command",
                "params": {"argv": ["true"]},
                "schedule": {"cron": f"{number % 60} {number // 60 % 24} 1 1 *"},
            }
            for number in range(first, min(first + 1000, tasks))
        ]


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = options_of(__doc__)
    parser.add_argument("--pages", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--tasks", type=int, default=10_000)
    options = parser.parse_args(arguments)
    with ready_cluster() as cluster:
        for specs in _specs(options.tasks):
            cluster.client.call("POST", "/v1/tasks", body=specs)
        print(f"{options.tasks} tasks:", flush=True)
        first_paint(cluster)
        asyncio.run(time_to_be_seen(cluster))
        time_to_be_seen_in_a_browser(cluster)
        for busy in (False, True):
            what = "a run each second" if busy else "at rest"
            if busy:
                spec = {"kind": "command", "params": {"argv": ["true"]}, "schedule": {"every_s": 1}}
                cluster.client.call("PUT", "/v1/tasks/each-second", body=spec)
            for pages in (0, options.pages):
                asyncio.run(cost_of_pages(cluster, pages, options.seconds, what))


if __name__ == "__main__":
    main()
