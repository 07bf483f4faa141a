"""The doors of a real node, as a browser and as a foreign web page find them."""

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import pytest
import urllib3

from node.http.door.authentication import BURST as WRONG_BURST
from node.http.door.session import ENDS_S, SESSION_S, BrowserSession, Role, SessionSigner, cookie_name
from testkit.cluster import Cluster

pytestmark = pytest.mark.integration

TOKEN: Final = "a token of an operator"
READ_TOKEN: Final = "a token of a reader"


@dataclass
class Browser:
    """Keeps cookies, and sends forms as a browser does."""

    url: str
    cookies: dict[str, str] = field(default_factory=dict)
    pool: urllib3.PoolManager = field(default_factory=lambda: urllib3.PoolManager(retries=False))

    def ask(
        self, method: str, path: str, form: Mapping[str, str] | None = None, /, **headers: str
    ) -> urllib3.BaseHTTPResponse:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if form is not None:
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        body = None if form is None else urlencode(form).encode()
        response = self.pool.request(method, self.url + path, body=body, headers=sent, redirect=False, timeout=20)
        for line in response.headers.getlist("Set-Cookie"):
            for name, morsel in SimpleCookie(line).items():
                self.cookies[name] = morsel.value
                assert morsel["httponly"]
                assert morsel["samesite"] == "Strict"
        return response

    def csrf(self, path: str) -> str:
        [found] = {*re.findall(r'name="csrf" value="([0-9a-f]{64})"', self.ask("GET", path).data.decode())}
        return str(found)

    def sign_in(self, token: str) -> urllib3.BaseHTTPResponse:
        self.cookies.clear()
        return self.ask("POST", "/sign-in", {"csrf": self.csrf("/sign-in"), "token": token, "next": "/tasks?q=a"})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("doors")
    env = {"ROTA_TOKEN": TOKEN, "ROTA_READ_TOKEN": READ_TOKEN}
    with Cluster(folder, 1, env=env, open_to_all=False) as cluster:
        cluster.start()
        cluster.wait_until_ready()
        cluster.register("a")
        yield cluster


@pytest.fixture
def browser(cluster: Cluster) -> Browser:
    return Browser(cluster.url("node-1"))


def session_of(
    cluster: Cluster, role: Role, expires_in_s: int, secret: str = "", cluster_id: str = ""
) -> dict[str, str]:
    """The cookie of a session that begins as given."""
    known = str(cluster.get("/v1/cluster")["id"])
    signer = SessionSigner(
        secret or (cluster.folder / "secret").read_text().strip(), {"operator": TOKEN, "reader": READ_TOKEN}
    )
    session = BrowserSession(role, int(time.time()) + expires_in_s, "a" * 32, int(time.time()) + ENDS_S)
    return {cookie_name(known): signer.cookie(session, cluster_id or known)}


def test_a_token_is_exchanged_for_a_session_that_is_not_the_token(cluster: Cluster, browser: Browser) -> None:
    refused = browser.ask("GET", "/")
    assert (refused.status, refused.headers["Location"]) == (303, "./sign-in?next=%2F")
    wrong = browser.sign_in("guess")
    assert (wrong.status, "not a token of this cluster" in wrong.data.decode()) == (401, True)
    assert browser.ask("GET", "/").status == 303
    signed_in = browser.sign_in(TOKEN)
    assert (signed_in.status, signed_in.headers["Location"]) == (303, "./tasks?q=a")
    assert TOKEN not in str(browser.cookies)
    page = browser.ask("GET", "/")
    assert page.status == 200
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert "unsafe" not in page.headers["Content-Security-Policy"]
    # The session reads the API as well, events among it.
    assert browser.ask("GET", "/v1/tasks/a").status == 200
    assert Browser(browser.url).ask("GET", "/v1/tasks/a").status == 401
    out = browser.ask("POST", "/sign-out", {"csrf": browser.csrf("/")})
    assert (out.status, browser.ask("GET", "/").status) == (303, 303)


def test_a_form_needs_the_csrf_token_of_its_session(cluster: Cluster, browser: Browser) -> None:
    browser.sign_in(TOKEN)
    old = browser.csrf("/")
    other = Browser(browser.url)
    other.sign_in(TOKEN)
    browser.sign_in(TOKEN)
    for csrf in ({}, {"csrf": ""}, {"csrf": old}, {"csrf": other.csrf("/")}):
        refused = browser.ask("POST", "/sign-out", csrf)
        assert (refused.status, "earlier session" in refused.data.decode()) == (403, True)
    assert browser.ask("GET", "/").status == 200


def test_nothing_is_changed_by_a_page_of_another_origin(cluster: Cluster, browser: Browser) -> None:
    browser.sign_in(TOKEN)
    form = {"csrf": browser.csrf("/")}
    for foreign in (
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ):
        refused = browser.ask("POST", "/sign-out", form, **foreign)
        assert (refused.status, "add it to ROTA_HOSTS" in refused.data.decode()) == (403, True), foreign
        assert browser.ask("GET", "/v1/tasks", **foreign).status == 403
        as_client = browser.ask("POST", "/v1/tasks/a/pause", Authorization=f"Bearer {TOKEN}", **foreign)
        assert (as_client.status, b"foreign-page" in as_client.data) == (403, True)
    assert browser.ask("GET", "/", Sec_Fetch_Site="same-origin").status == 200
    # A link on another site: the browser keeps the cookie back, and our own page then leads on.
    link = Browser(browser.url).ask("GET", "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")
    assert (link.status, b'http-equiv="refresh"' in link.data, "Set-Cookie" in link.headers) == (200, True, False)


def test_a_name_that_is_pointed_at_the_node_reads_nothing(cluster: Cluster, browser: Browser) -> None:
    browser.sign_in(TOKEN)
    port = browser.url.rpartition(":")[2]
    for path in ("/", "/sign-in", "/static/page.css", "/v1/tasks", "/healthz", "/metrics"):
        refused = browser.ask("GET", path, Host=f"evil.example:{port}")
        assert (refused.status, b"ROTA_HOSTS" in refused.data) == (421, True)
        for host in (f"localhost:{port}", f"127.0.0.1:{port}"):
            assert browser.ask("GET", path, Host=host).status in (200, 303)


def test_only_a_session_of_this_cluster_that_has_not_expired_lets_in(cluster: Cluster, browser: Browser) -> None:
    browser.cookies = session_of(cluster, "operator", 60)
    assert browser.ask("GET", "/").status == browser.ask("GET", "/v1/tasks").status == 200
    for cookie in (
        session_of(cluster, "operator", -1),
        session_of(cluster, "operator", 60, secret="of another cluster"),
        session_of(cluster, "operator", 60, cluster_id="of another cluster"),
        session_of(cluster, "guest", 60),
        dict.fromkeys(browser.cookies, "nonsense"),
        {name: value.replace("operator", "reader") for name, value in browser.cookies.items()},
    ):
        stranger = Browser(browser.url, dict(cookie))
        assert stranger.ask("GET", "/").status == 303
        assert stranger.ask("GET", "/v1/tasks").status == 401
        assert stranger.ask("GET", "/", HX_Request="true").status == 401


def test_a_reader_reads_everything_and_changes_nothing(cluster: Cluster, browser: Browser) -> None:
    browser.sign_in(READ_TOKEN)
    page = browser.ask("GET", "/")
    assert (page.status, "read only" in page.data.decode()) == (200, True)
    as_reader = {"Authorization": f"Bearer {READ_TOKEN}"}
    assert cluster.ask("GET", "/v1/tasks/a", headers=as_reader).status == 200
    for method, path in (("POST", "/v1/tasks/a/pause"), ("POST", "/v1/tasks/a/runs"), ("DELETE", "/v1/tasks/a")):
        refused = cluster.ask(method, path, headers=as_reader)
        assert (refused.status, refused.problem) == (403, "read-only")
    tasks = [{"name": "new", "kind": "command", "params": {"argv": ["true"]}}]
    assert cluster.ask("POST", "/v1/tasks", json=tasks, headers=as_reader, dry_run="true").status == 200
    for dry_run in (None, "false", ""):
        refused = cluster.ask("POST", "/v1/tasks", json=tasks, headers=as_reader, dry_run=dry_run)
        assert (refused.status, refused.problem) == (403, "read-only")
    assert cluster.ask("GET", "/v1/tasks/new", headers=as_reader).status == 404
    # A session never writes by the API, whoever has signed in.
    browser.sign_in(TOKEN)
    assert browser.ask("POST", "/v1/tasks/a/pause").status == 401
    assert cluster.get("/v1/tasks/a")["paused"] is False


def test_many_wrong_tokens_are_refused_and_the_right_one_is_let_in(cluster: Cluster, browser: Browser) -> None:
    for path in ("/v1/tasks", "/metrics", "/docs"):
        wrong = [browser.ask("GET", path, Authorization=f"Bearer guess {n}") for n in range(WRONG_BURST + 3)]
        assert {answer.status for answer in wrong} <= {401, 429}
        assert wrong[-1].status == 429
        assert 1 <= int(wrong[-1].headers["Retry-After"]) <= 3
        assert browser.ask("GET", path, Authorization=f"Bearer {TOKEN}").status == 200
    form = browser.sign_in("guess")
    assert (form.status, "Retry-After" in form.headers) == (429, True)
    assert "Too many wrong tokens" in form.data.decode()
    assert "<form" in form.data.decode(), "to try again"
    assert browser.sign_in(TOKEN).status == 303
    assert browser.ask("GET", "/").status == 200


def test_a_session_that_is_used_lasts_longer(cluster: Cluster, browser: Browser) -> None:
    browser.cookies = session_of(cluster, "operator", 600)
    before = dict(browser.cookies)
    csrf = browser.csrf("/tasks")
    assert browser.cookies.keys() == before.keys()
    [cookie] = browser.cookies.values()
    assert abs(int(cookie.split(".")[1]) - time.time() - SESSION_S) < 60
    assert browser.ask("GET", "/tasks").headers.getlist("Set-Cookie") == [], "not with each request"
    assert browser.ask("POST", "/tasks/a/resume", {"csrf": csrf, "back": "/tasks"}).status == 303
