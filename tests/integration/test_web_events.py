"""The page of events and `/v1/events/kept` over a real HTTP server: what is kept, filters, pages, and since when."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape

import pytest

from node.http.api.event_hub import RECONNECT_S, ClusterEvent, EventHub
from node.state.members import Drain
from node.web.views.events import event_lines
from testkit.http.http_cluster import Servers, on_loop, servers
from testkit.http.web_visitor import Visitor, fail, text_of

pytestmark = pytest.mark.integration

THREE = ("node-1", "node-2", "node-3")


@asynccontextmanager
async def followed(served: Servers) -> AsyncIterator[None]:
    """While somebody follows the events."""
    async with served.session.get(served.url("/v1/events")) as response:
        assert b"connected" in await response.content.readany()
        yield


async def kept(served: Servers, query: str, count: int) -> list[dict[str, object]]:
    """The events that are kept, once there are so many."""
    async with asyncio.timeout(10):
        while True:
            page = (await served.get(f"/v1/events/kept?{query}")).json
            if len(page["items"]) >= count:
                return list(page["items"])
            await asyncio.sleep(0.01)


@on_loop
async def test_events_are_kept_while_somebody_follows_them() -> None:
    async with servers(THREE) as served:
        visitor = Visitor(served)
        assert (await served.get("/v1/events/kept")).json == {"since": None, "items": [], "next": None}
        assert "has kept no events yet" in text_of(await visitor.get("/events"))
        await served.put_task("nightly")
        async with followed(served):
            since = (await served.get("/v1/events/kept")).json["since"]
            assert since is not None
            await fail(served, "nightly", "<b>the disk</b> is full")
            served.cluster.ok(Drain(served.cluster.now_us, "node-2", True))
            items = await kept(served, "", 5)
            assert [one["event"] for one in items][-1] == "run", "the newest come first"
            page = await visitor.get("/events")
            said = text_of(page)
            assert "has all events since" in said
            assert "member node-2 draining" in said
            assert "failed on node-1 <b>the disk</b> is full" in said, "as text"
            assert b"<b>the disk" not in page.body
            assert 'href="./runs/nightly~' in page.body.decode()
            [member] = await kept(served, "event=member", 1)
            assert member["data"]["status"] == "draining"  # type: ignore[index]
            assert await kept(served, "task=NIGHT&event=run", 1)
            assert (await served.get("/v1/events/kept?task=other")).json["items"] == []
            assert {one["event"] for one in await kept(served, "node=node-2", 1)} <= {"member", "owner"}
            assert "nightly~" not in text_of(await visitor.part("/events?part=rows&event=member"))
            assert "No event that is kept fits" in text_of(await visitor.get("/events?task=other"))
        for wrong in ("event=other", "after=nonsense"):
            assert (await visitor.get(f"/events?{wrong}")).status == 422
            assert (await served.get(f"/v1/events/kept?{wrong}")).status == 422


@on_loop
async def test_older_events_are_on_the_next_pages() -> None:
    async with servers(("node-1", "node-2")) as served, followed(served):
        visitor = Visitor(served)
        for number in range(130):
            served.cluster.ok(Drain(served.cluster.now_us, "node-2", number % 2 == 0))
        await kept(served, "event=member&limit=1000", 130)
        first = await visitor.get("/events?event=member")
        older = re.search(r'href="\./(events\?[^"]+)" rel="next"', first.body.decode())
        assert older is not None
        second = await visitor.get("/" + unescape(older[1]))
        assert first.body.count(b'class="nowrap when"') == 100
        assert second.body.count(b'class="nowrap when"') == 30
        assert b"Newest" in second.body
        assert b'data-part="./events' not in second.body, "an older page stays as it is"
        seen, path = list[str](), "/v1/events/kept?event=member&limit=60"
        while path:
            page = (await served.get(path)).json
            seen += [one["id"] for one in page["items"]]
            path = page["next"] and f"/v1/events/kept?event=member&limit=60&after={page['next']}"
        assert len(set(seen)) == len(seen) == 130


def test_what_is_kept_is_forgotten_once_nobody_has_followed_for_a_while() -> None:
    now_s = [0.0]
    hub = EventHub("b", "node-1", 3, lambda: now_s[0], lambda: round(now_s[0] * 1e6))
    assert hub.kept().since_us is None
    now_s[0] = 5.0
    with hub.listener(None, 0, 1.0):
        hub._keep([ClusterEvent("owner", 1, {"task": "a", "from": None, "to": "node-1", "epoch": 1})])
        assert (hub.kept().since_us, hub.kept().forgotten) == (5_000_000, False)
        now_s[0] = 9.0
        hub._keep(ClusterEvent("owner", 1, {"task": f"{n}", "from": "x", "to": "y", "epoch": 1}) for n in range(4))
        assert (hub.kept().since_us, hub.kept().forgotten) == (9_000_000, True)
    now_s[0] += RECONNECT_S + 1
    assert not hub._is_needed()
    assert (hub.kept().events, hub.kept().since_us) == ((), None)


def test_tasks_that_move_at_once_are_one_line() -> None:
    hub = EventHub("b", "node-1")
    hub._keep(
        ClusterEvent("owner", 7, {"task": f"task-{n}", "from": "node-2", "to": f"node-{n % 2 + 3}", "epoch": 2})
        for n in range(40)
    )
    hub._keep([ClusterEvent("owner", 8, {"task": "gpu", "from": "node-2", "to": None, "epoch": 3})])
    lone, together = event_lines(list(reversed(hub.kept().events)))
    assert (lone.subject, lone.said, lone.look) == ("gpu", "owned by nobody any more, before by node-2", "bad")
    assert together.subject == "40 tasks"
    assert "20 moved from node-2 to node-3" in together.said
    assert together.more.endswith("and more")
