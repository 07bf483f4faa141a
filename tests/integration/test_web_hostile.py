"""Hostile requests to every route of the page: no answer is a 500, and nothing that was sent comes back unescaped."""

import re
from collections.abc import Iterator
from typing import Final

import pytest

from node.http.door.authentication import CSRF_FIELD
from node.http.door.endpoint import Endpoint
from node.http.door.session import BrowserSession, SessionSigner, cookie_name
from node.web.views import PAGES
from testkit.http.fake_node import SECRET
from testkit.http.hostile import EVERYWHERE, PATHS, QUERIES, say
from testkit.http.http_cluster import on_loop, servers

pytestmark = [pytest.mark.integration, pytest.mark.more]

NAMES: Final = (b"part", b"show", b"after", b"q", b"kind", b"owner", b"next", b"v", b"other")
SCRIPT: Final = b"%3Cscript%3Ealert(1)%3C/script%3E"
BODIES: Final = (
    b"",
    b"\xff",
    b"%ff=%ff",
    b"csrf",
    b"csrf=%00&back=%0d%0aX:1",
    b"&" * 10_000,
    b"back=//evil.example",
    b"token=%ff&next=\\\\evil",
    b"csrf=" + b"9" * 100_000,
    b"token=" + SCRIPT + b"&next=" + SCRIPT,
    b"definition=" + SCRIPT,
    b"definition=name:+a%0Akind:+" + SCRIPT + b"&version=" + SCRIPT + b"&step=" + SCRIPT + b"&checked=" + SCRIPT,
    b"definition=name:+a%0Akind:+[copy]%0Aparams:+%26a+[*a]",
    b"definition=name:+[a]%0Akind:+{a:+b}%0Agroup:+5&version=99999999999999999999&step=save",
    b"definition=" + b"%5B" * 20_000,
    b"definition=" + b"a:+%7B" * 5_000,
    b"definition=a:+%ED%A0%80%00",
)


def targets(path: str) -> Iterator[bytes]:
    """The path with each hostile part, and with each hostile query."""
    for part in (*PATHS, SCRIPT, b"a"):
        if "{" in path:
            yield part.join(re.split(rb"{\w+}", path.encode()))
    for name in NAMES:
        for value in (*QUERIES, SCRIPT):
            yield re.sub(r"{\w+}", "a", path).encode() + b"?" + name + b"=" + value


@pytest.mark.parametrize("endpoint", PAGES, ids=[f"{endpoint.method} {endpoint.path}" for endpoint in PAGES])
def test_no_request_breaks_the_page(endpoint: Endpoint) -> None:
    @on_loop
    async def tried() -> None:
        async with servers(token="a token") as served:
            await served.ask("PUT", "/v1/tasks/a", json={"kind": "copy", "params": {"source": "x"}}, headers=CLIENT)
            port, now_s = served.ports["node-1"], served.cluster.now_us // 1_000_000
            signer = SessionSigner(SECRET, {"operator": "a token"})
            session = BrowserSession("operator", now_s + 60, "a" * 32)
            cookie = f"{cookie_name('c-1')}={signer.cookie(session, 'c-1')}".encode()
            csrf = f"{CSRF_FIELD}={signer.csrf(session)}&".encode()
            known, form = {b"Cookie": cookie}, {b"Content-Type": b"application/x-www-form-urlencoded"}
            method, path = endpoint.method, endpoint.path
            plain = re.sub(r"{\w+}", "a", path).encode()
            sent = [(target, known | form, csrf if method == "POST" else b"") for target in targets(path)]
            sent += [(plain, known | {name: value}, b"") for name, values in EVERYWHERE.items() for value in values]
            sent += [(plain, {b"Cookie": cookie_name("c-1").encode() + b"=" + value}, b"") for value in (b"\xff", b"a")]
            if method == "POST":
                sent += [(plain, known | form, before + body) for body in BODIES for before in (b"", csrf)]
            for target, headers, body in sent:
                heard = await say(port, method, target, headers, body)
                assert heard.status not in (500, 504), (target, headers, body, heard)
                assert heard.headers["X-Content-Type-Options"] == "nosniff"
                if heard.headers.get("Content-Type", "").startswith("text/html"):
                    assert b"<script>alert" not in (heard.body or b""), (target, body)

    tried()


CLIENT: Final = {"Authorization": "Bearer a token"}
