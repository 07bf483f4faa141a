"""What those who show no token cost a real node, and what they learn from it."""

import re
import selectors
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest

from node.cli.local import wait_for
from testkit.cluster import Cluster
from tests.integration.test_web_doors import TOKEN, Browser

pytestmark = pytest.mark.integration

HOST: Final = b"Host: localhost\r\n"
FORM: Final = b"POST /sign-in HTTP/1.1\r\n" + HOST + b"Content-Type: application/x-www-form-urlencoded\r\n"
GET: Final = b"GET /healthz HTTP/1.1\r\n" + HOST
MIB: Final = 1024 * 1024

SENT: Final[dict[str, bytes]] = {
    "a body of 1 MiB": FORM + b"Content-Length: %d\r\n\r\n" % MIB + b"a" * (MIB - 1),
    "a body that is short enough": FORM + b"Content-Length: 4096\r\n\r\n" + b"a" * 4095,
    "chunks of one byte": FORM + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 170_000,
    "a body that nobody asked for": GET + b"Content-Length: %d\r\n\r\n" % MIB + b"a" * (MIB - 1),
    "a head of 1 MiB": GET + b"".join(b"X-%d: %b\r\n" % (number, b"a" * 8100) for number in range(120)),
    "a head of 60 KiB": GET + b"".join(b"X-%d: %b\r\n" % (number, b"a" * 500) for number in range(118)),
    "many short headers": GET + b"".join(b"a%d:b\r\n" % number for number in range(120)),
    "many requests at once": (GET + b"\r\n") * 20_000,
    "a file that is not read": (b"GET /static/page.css HTTP/1.1\r\n" + HOST + b"\r\n") * 2000,
    "a WebSocket": GET + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n" + b"a" * MIB,
    "a tunnel": b"CONNECT /healthz HTTP/1.1\r\n" + HOST + b"\r\n" + b"a" * MIB,
    "what is not HTTP": b"\x16\x03\x01" + b"z" * 8000 + b"\r\n\r\n",
    "nothing": b"",
}
MORE_MIB: Final = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("strangers")
    with Cluster(folder, 1, env={"ROTA_TOKEN": TOKEN}, open_to_all=False) as cluster:
        cluster.start()
        cluster.wait_until_ready()
        cluster.register("a")
        yield cluster


def rss_mib(cluster: Cluster) -> float:
    status = Path(f"/proc/{cluster.pid('node-1')}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


class Strangers:
    """Connections that each send one text, as far as the node takes it."""

    def __init__(self, port: int, data: bytes) -> None:
        self._port, self._data = port, data
        self._waiting = selectors.DefaultSelector()
        self._open: list[socket.socket] = []

    def come(self, count: int) -> None:
        for _ in range(count):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(10)
            sock.connect(("127.0.0.1", self._port))
            sock.setblocking(False)
            self._open.append(sock)
            if self._data:
                self._waiting.register(sock, selectors.EVENT_WRITE, [0])

    def send(self) -> None:
        """Send what the node takes now."""
        for key, _ in self._waiting.select(0.02) if self._waiting.get_map() else ():
            try:
                key.data[0] += key.fileobj.send(self._data[key.data[0] : key.data[0] + 65_536])  # type: ignore[union-attr]
            except BlockingIOError:
                continue
            except OSError:
                key.data[0] = len(self._data)
            if key.data[0] >= len(self._data):
                self._waiting.unregister(key.fileobj)

    def close(self) -> None:
        self._waiting.close()
        for sock in self._open:
            sock.close()


@contextmanager
def strangers(cluster: Cluster, count: int, data: bytes) -> Iterator[float]:
    """So many strangers send that for 3 s; the most memory that the node has meanwhile, in MiB."""
    most_mib = 0.0
    with closing(Strangers(cluster.http_ports[0], data)) as them:
        for _ in range(count // 100):
            them.come(100)
            them.send()
            most_mib = max(most_mib, rss_mib(cluster))
        ends_s = time.monotonic() + 3
        while time.monotonic() < ends_s:
            them.send()
            most_mib = max(most_mib, rss_mib(cluster))
        yield most_mib


def _cost_little(cluster: Cluster, count: int, data: bytes) -> None:
    before_mib = rss_mib(cluster)
    with strangers(cluster, count, data) as most_mib:
        # The right token, and a browser with it, get in all the while.
        assert cluster.get("/v1/tasks/a")["name"] == "a"
        assert Browser(cluster.url("node-1")).sign_in(TOKEN).status == 303
        assert (
            cluster.ask("PUT", "/v1/tasks/a", json={"kind": "probe", "params": {"says": "x" * 500_000}}).status == 200
        )
    assert most_mib - before_mib <= MORE_MIB
    wait_for("they are forgotten", lambda: rss_mib(cluster) - before_mib <= MORE_MIB, 60)


@pytest.mark.more
@pytest.mark.parametrize("what", ["a body of 1 MiB", "many short headers", "a tunnel"])
def test_1500_strangers_cost_little_memory(cluster: Cluster, what: str) -> None:
    _cost_little(cluster, 1500, SENT[what])


@pytest.mark.more
@pytest.mark.parametrize("what", SENT)
def test_4000_strangers_cost_little_memory(cluster: Cluster, what: str) -> None:
    _cost_little(cluster, 4000, SENT[what])


def _heard(port: int, sent: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(sent)
        pieces = []
        try:
            while piece := sock.recv(65_536):
                pieces.append(piece)
        except ConnectionResetError:
            pass
        return b"".join(pieces)


@pytest.mark.parametrize(
    "rest", [b"Content-Length: 4097\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n1001\r\n" + b"a" * 4097 + b"\r\n"]
)
@pytest.mark.parametrize("path", [b"sign-in", b"sign-out"])
def test_a_stranger_s_body_has_4_kib(cluster: Cluster, rest: bytes, path: bytes) -> None:
    heard = _heard(cluster.http_ports[0], FORM.replace(b"sign-in", path) + rest)
    assert heard.split()[1] == b"413"
    assert b"larger than 4 KiB" in heard


PATHS: Final = (
    "/ /sign-in /tasks /tasks/a /members /events /live /healthz /readyz /metrics /docs /docs/start.js /openapi.json "
    "/v1/cluster /v1/tasks/a /v1/tasks/b /v1/nothing /nothing /peer/members /peer/nothing /static/page.css "
    "/static/live.js /static/htmx.min.js /static/nothing /%ff /?x=%00"
).split()
SHOWN: Final[tuple[bytes, ...]] = (
    b"",
    b"Authorization: Bearer guess\r\n",
    b"Authorization: Rota ;;;\r\n",
    b"Cookie: rota_00000000=operator.1.1.a.b\r\n",
    b"HX-Request: true\r\n",
    b"Expect: nonsense\r\n",
    b"Host: evil.example\r\n",
)
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "BREW")


def test_a_stranger_is_told_nothing_of_the_cluster(cluster: Cluster) -> None:
    known = cluster.get("/v1/cluster")
    head = "%s %s HTTP/1.1\r\nConnection: close\r\n"
    heads = [(head % (method, path)).encode() for method in METHODS for path in PATHS]
    asked = [each + HOST + shown + b"\r\n" for each in heads for shown in SHOWN]
    # What is not HTTP is answered after 1 to 3 s.
    with ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(lambda each: _heard(cluster.http_ports[0], each), asked))
    for each, heard in zip(asked, answers, strict=True):
        assert heard, each
        headers = heard.partition(b"\r\n\r\n")[0].lower()
        for name in (b"rota-index", b"rota-epoch", b"rota-cluster", b"\r\nserver:", b"aiohttp", b"python"):
            assert name not in headers, (name, each, heard[:500])
        for text in (known["id"], "node-1", str(cluster.folder)):
            assert text.encode() not in heard, (text, each, heard[:500])


def test_answers_of_the_api_are_not_kept(cluster: Cluster) -> None:
    for path in ("/v1/cluster", "/v1/tasks", "/v1/tasks/none", "/metrics"):
        assert cluster.ask("GET", path).headers["Cache-Control"] == "no-store"
    assert "Cache-Control: no-store" in _heard(cluster.http_ports[0], b"GET /v1/tasks HTTP/1.0\r\n\r\n").decode()


def test_a_right_token_is_told_what_probes_are_not(cluster: Cluster) -> None:
    assert cluster.ask("GET", "/readyz").json == {"status": "ready", "leader": "node-1"}
    assert cluster.ask("GET", "/readyz").headers["Rota-Index"].isdigit()
    stranger = cluster.ask("GET", "/readyz", headers={"Authorization": ""})
    assert (stranger.json, "Rota-Index" in stranger.headers) == ({"status": "ready"}, False)
