"""An HTTP server on a port of its own that answers as a test says: for commands and clients of the API."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Request:
    """A request as it arrived; `target` is the path with its query."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


@dataclass(frozen=True)
class Response:
    """The answer to a request. The pieces of `body` are sent as they come."""

    status: int = 200
    body: Iterator[bytes] = field(default_factory=lambda: iter(()))
    headers: Mapping[str, str] = field(default_factory=dict)


def as_json(content: Any, status: int = 200, **headers: str) -> Response:
    """A response with JSON; header names are written with `_` for `-`."""
    return Response(status, iter([json.dumps(content).encode()]), {k.replace("_", "-"): v for k, v in headers.items()})


@contextmanager
def api_server(answer: Callable[[Request], Response], *, of_node: bool = True) -> Iterator[str]:
    """Serve until the end of the block; `answer` is called in a thread for each request. Yields the server's URL.

    Responses have the header that every response of a node has, unless `of_node` is False.
    """
    mark = {"Rota-Index": "1"} if of_node else {}

    class Handler(BaseHTTPRequestHandler):
        def _respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            response = answer(Request(self.command, self.path, dict(self.headers), body))
            self.send_response(response.status)
            for name, value in {**mark, **response.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            for piece in response.body:
                self.wfile.write(piece)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _respond  # noqa: N815 - the base class calls these names

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
