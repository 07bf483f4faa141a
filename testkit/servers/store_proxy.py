"""A proxy in front of an S3 API on loopback: it can be slow, and can begin to refuse credentials."""

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import urlsplit

_PIECE_BYTES: Final = 1 << 16
_EXPIRED: Final = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>ExpiredToken</Code>'
    b"<Message>The provided token has expired.</Message></Error>"
)


class StoreProxy:
    """Passes requests on. `bytes_per_s` limits each body that is sent to the store; None: no limit.

    `puts_left` is the number of PUT requests after which every request is answered by 403 ExpiredToken; None: never.
    `may_delete`: False: a DELETE is answered so, too.
    """

    def __init__(self, endpoint: str, url: str) -> None:
        self.store = urlsplit(url)
        self.endpoint = endpoint
        self.bytes_per_s: float | None = None
        self.puts_left: int | None = None
        self.may_delete = True
        self.lock = threading.Lock()

    def refuses(self, method: str) -> bool:
        """Whether a request is refused, which counts a PUT."""
        with self.lock:
            if method == "DELETE" and not self.may_delete:
                return True
            if self.puts_left is None:
                return False
            if self.puts_left <= 0:
                return True
            self.puts_left -= method == "PUT"
            return False


@contextmanager
def store_proxy(endpoint: str) -> Iterator[StoreProxy]:
    """A proxy in front of the store at `endpoint`, until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def _pass_on(self) -> None:
            body = self._body()
            if proxy.refuses("DELETE" if self.path.endswith("?delete") else self.command):
                self._answer(403, [("Content-Type", "application/xml")], _EXPIRED)
                return
            store = http.client.HTTPConnection(str(proxy.store.hostname), proxy.store.port, timeout=60)
            try:
                headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
                store.request(self.command, self.path, body, headers)
                answer = store.getresponse()
                self._answer(answer.status, answer.getheaders(), answer.read())
            finally:
                store.close()

        def _body(self) -> bytes:
            left, pieces = int(self.headers.get("Content-Length", 0)), []
            while left:
                piece = self.rfile.read(min(left, _PIECE_BYTES))
                left -= len(piece)
                pieces.append(piece)
                if proxy.bytes_per_s is not None:
                    time.sleep(len(piece) / proxy.bytes_per_s)
            return b"".join(pieces)

        def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            self.send_response_only(status)
            head = self.command == "HEAD"
            for name, value in headers:
                if name.lower() not in {"transfer-encoding", "connection"} and (
                    head or name.lower() != "content-length"
                ):
                    self.send_header(name, value)
            if not head:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if not head:
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815  the names that the library looks for

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy = StoreProxy(f"http://127.0.0.1:{server.server_address[1]}", endpoint)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
