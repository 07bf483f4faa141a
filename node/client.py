"""A blocking client of the API: for the command line, a node that joins, the demo, benchmarks and tests.

Several addresses may be given: a member that cannot be reached is passed over, and a write is sent to
another member only if the first one cannot have received it.
"""

import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    import urllib3

DEFAULT_URL: Final = "http://127.0.0.1:8101"


class Unreachable(Exception):
    """No member answered."""


@dataclass(eq=False)
class ApiProblem(Exception):
    """An answer that is a problem document (RFC 9457)."""

    status: int
    type: str
    title: str
    detail: str
    errors: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.errors:  # the detail says them too, on one line
            lines = (f"{field}: {message}" if field else message for field, message in self.errors)
            return "\n  ".join((self.title, *lines))
        return f"{self.title}: {self.detail}" if self.detail else self.title

    @property
    def no_quorum(self) -> bool:
        """Whether the cluster could not decide, as opposed to having said no."""
        return self.status in (503, 504)


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """A member's answer; `json` is its body, None where it has none, `body` the same as it came."""

    status: int
    headers: Mapping[str, str]
    json: Any
    body: bytes = b""


def path(*parts: str) -> str:
    """A path with each part quoted, slashes too. A word of a command line that is no text goes as the bytes it is.

    >>> path("v1", "tasks", "a b", "owner")
    '/v1/tasks/a%20b/owner'
    """
    return "".join(f"/{quote(part, safe='', errors='surrogateescape')}" for part in parts)


def _target(path: str, query: Mapping[str, Any]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given, errors='surrogateescape')}" if given else path


class Client:
    """Speaks to a cluster. Keeps its connections; use one for many calls.

    `timeout_s` is how long an answer may be silent; `token_from` says where the token comes from, for when it is
    refused. Raises `ValueError` for a token that no header can bear.
    """

    def __init__(
        self,
        urls: Sequence[str] = (DEFAULT_URL,),
        token: str | None = None,
        timeout_s: float = 15,
        token_from: str = "",
    ) -> None:
        self._token_from = token_from
        self.urls = tuple(url.rstrip("/") for url in urls)
        self._headers = {"Authorization": f"Bearer {_sendable(token)}"} if token else {}
        self._timeout_s = timeout_s
        import urllib3  # here and below: a node imports this module, and seldom asks anything by it

        self._pool = urllib3.PoolManager(retries=False, maxsize=8)

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> ApiAnswer:
        """One request. Raises `ApiProblem` for an answer of 400 and more, `Unreachable` if none came."""
        target = _target(path, query or {})
        all_headers = {**self._headers, **(headers or {})}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            all_headers["Content-Type"] = "application/json"
        elif method in ("POST", "PUT", "PATCH", "DELETE"):
            all_headers["Content-Type"] = "application/json"
        response = self._send(method, target, data, all_headers, timeout_s or self._timeout_s, preload=True)
        if response.status >= 400:
            raise self._refused(response)
        try:
            told = json.loads(response.data) if response.data else None
            return ApiAnswer(response.status, response.headers, told, response.data)
        except ValueError as error:
            raise Unreachable(f"what answers at {', '.join(self.urls)} is no Rota: it sends no JSON") from error

    def get(self, path: str, **query: Any) -> Any:
        """The body of a GET."""
        return self.call("GET", path, query=query).json

    def items(self, path: str, **query: Any) -> Iterator[Any]:
        """All items of a list, page by page."""
        after: str | None = None
        while True:
            page = self.get(path, **{"limit": 1000, **query, "after": after})
            yield from page["items"]
            after = page["next"]
            if after is None:
                return

    def stream(self, path: str, *, endless: bool = False, **query: Any) -> Iterator[bytes]:
        """The body of a GET as it comes. Raises as `call` does.

        An `endless` one may be silent for as long as it likes once it has begun; where the machine at the other
        end is gone, it ends after half a minute.
        """
        import urllib3

        target = _target(path, query)
        response = self._send("GET", target, None, self._headers, self._timeout_s, preload=False)
        try:
            if response.status >= 400:
                raise self._refused(response)
            # The library has one limit for the beginning and for the rest.
            if endless and (sock := getattr(response.connection, "sock", None)) is not None:
                sock.settimeout(None)
                _probe(sock)
            while chunk := response.read1(65_536):
                yield chunk
        except urllib3.exceptions.HTTPError as error:
            raise Unreachable(f"the answer has broken off: {_reason(error)}") from error
        finally:
            response.close()

    def _refused(self, response: "urllib3.BaseHTTPResponse") -> ApiProblem:
        problem = _problem(response)
        if problem.status == 401 and self._token_from:
            problem.detail += f" (this one is from {self._token_from})"
        return problem

    def _send(
        self,
        method: str,
        target: str,
        data: bytes | None,
        headers: Mapping[str, str],
        timeout_s: float,
        preload: bool,
    ) -> "urllib3.BaseHTTPResponse":
        import urllib3

        failures: list[str] = []
        for url in self.urls:
            try:
                return self._pool.request(
                    method,
                    f"{url}{target}",
                    body=data,
                    headers=dict(headers),
                    timeout=urllib3.Timeout(connect=3, read=timeout_s),
                    preload_content=preload,
                )
            except (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError) as error:
                failures.append(f"{url}: cannot connect ({_reason(error)})")
            except urllib3.exceptions.LocationValueError as error:
                raise Unreachable(f"{url} is no address: give ROTA_URL as http://host:port") from error
            except urllib3.exceptions.HTTPError as error:
                failures.append(f"{url}: {_reason(error)}")
                if method != "GET":
                    break  # it may have been received: sending it elsewhere might do it twice
        raise Unreachable("no member answered: " + "; ".join(failures))


def _probe(sock: socket.socket) -> None:
    """Let the kernel ask whether the other end is still there: one that has lost its power says nothing of it."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Else it begins after two hours. Not every system has names for these.
    for name, figure in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), figure)


def _sendable(token: str) -> str:
    """A token as a header bears it: in UTF-8, as nodes read it, where the library would write Latin-1.

    >>> _sendable("t0ken"), _sendable("é")
    ('t0ken', 'Ã©')
    """
    if not token.isprintable():
        raise ValueError("a token is one line of text in UTF-8, without control characters")
    return token.encode().decode("latin-1")


def _reason(error: Exception) -> str:
    return str(error).rpartition(": ")[2]


def _problem(response: "urllib3.BaseHTTPResponse") -> ApiProblem:
    try:
        body = json.loads(response.data)
        return ApiProblem(
            response.status,
            str(body["type"]),
            str(body["title"]),
            str(body.get("detail", "")),
            tuple((str(error["field"]), str(error["message"])) for error in body.get("errors", ())),
            response.headers,
        )
    except (ValueError, KeyError, TypeError):
        text = response.data[:200].decode(errors="replace")
        return ApiProblem(response.status, "about:blank", f"HTTP {response.status}", text, headers=response.headers)
