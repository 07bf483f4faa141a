"""A browser's session on a server of `http_cluster`: pages, parts of them, and buttons that are pressed."""

import re
from collections.abc import Mapping
from html import unescape
from urllib.parse import urlencode

import aiohttp

from node.state.attempts import Finish
from testkit.http.http_cluster import Servers
from testkit.http.reply import Reply

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def text_of(reply: Reply) -> str:
    """What a page says, without its elements."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", reply.body.decode())).split())


class Visitor:
    """A browser's session on one server, with its cookies."""

    def __init__(self, served: Servers) -> None:
        self.served = served
        # Cookies of an address, not only of a name.
        served.session._cookie_jar = aiohttp.CookieJar(unsafe=True)

    async def get(self, path: str, **headers: str) -> Reply:
        reply = await self.served.get(path, headers=headers)
        assert reply.headers["Content-Type"].startswith("text/html"), reply.body
        return reply

    async def part(self, path: str) -> Reply:
        return await self.get(path, **{"HX-Request": "true"})

    async def press(self, path: str, back: str = "/", **headers: str) -> Reply:
        """Press a button: the form with the CSRF token that the page has."""
        csrf = re.search(r'name="csrf" value="(\w+)"', (await self.get("/tasks")).body.decode())
        return await self.send(path, {"csrf": csrf[1] if csrf else "", "back": back}, **headers)

    async def send(self, path: str, fields: Mapping[str, str], **headers: str) -> Reply:
        """Send a form with its fields as they are."""
        form = urlencode(fields)
        return await self.served.ask("POST", path, data=form.encode(), headers={**FORM, **headers})


async def fail(served: Servers, task: str, error: str) -> None:
    run_id = await served.start_run(task)
    token = served.claim(run_id)
    served.cluster.ok(Finish(served.cluster.now_us, run_id, token, "failed", None, error, False))
