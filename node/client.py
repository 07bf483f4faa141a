"""A blocking client of the API: for the command line, a node that joins, the demo, benchmarks and tests.

Several addresses may be given: if a member cannot be reached, the next one is called. A write is sent to another member
only if the first member cannot have received it.
"""

import json
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    import urllib3

DEFAULT_URL: Final = "http://127.0.0.1:8101"


MARK: Final = "Rota-Index"
"""A header of every response of a node to an authenticated client."""

_TAGS: Final = re.compile(r"<(style|script|title|head)\b.*?</\1>|<[^>]*>", re.DOTALL)

NO_PROBLEM: Final = "about:blank"
"""The type of an error response that is no problem document. Most likely a proxy in front of the nodes sent it."""


class Unreachable(Exception):
    """No member answered."""


@dataclass(eq=False)
class ApiProblem(Exception):
    """An error response: a problem document (RFC 9457)."""

    #: The HTTP status.
    status: int
    #: The problem's type, such as `no-quorum`.
    type: str
    #: What is wrong with requests of this type.
    title: str
    #: What is wrong with this request.
    detail: str
    #: The fields that are wrong, each with its message.
    errors: tuple[tuple[str, str], ...] = ()
    #: The response's headers.
    headers: Mapping[str, str] = field(default_factory=dict)
    hint: str = ""
    """A possible cause that the caller knows and the answering node does not; "": none."""

    def __str__(self) -> str:
        hint = [self.hint] if self.hint else []
        if self.errors:  # the errors are in the detail too, on one line
            lines = (f"{field}: {message}" if field else message for field, message in self.errors)
            return "\n  ".join((self.title, *lines, *hint))
        return "\n".join((f"{self.title}: {self.detail}" if self.detail else self.title, *hint))

    @property
    def no_quorum(self) -> bool:
        """Whether the cluster could not decide, or a proxy could not reach it. False: the cluster refused."""
        return self.status in (503, 504) or (self.status == 502 and self.type == NO_PROBLEM)


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """A member's response; `json` is its parsed body (None: no body), `body` the bytes."""

    status: int
    headers: Mapping[str, str]
    json: Any
    body: bytes = b""


def path(*parts: str) -> str:
    """Return a path with each part quoted, slashes too. Undecodable bytes of a command line are sent unchanged.

    >>> path("v1", "tasks", "a b", "owner")
    '/v1/tasks/a%20b/owner'
    """
    return "".join(f"/{quote(part, safe='', errors='surrogateescape')}" for part in parts)


def _target(path: str, query: Mapping[str, Any]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given, errors='surrogateescape')}" if given else path


class Client:
    """A client of one cluster. It keeps its connections, so use one client for many calls.

    `urls` are addresses of members, `host:port` or `http://host:port`. `timeout_s` limits the silence of a response.
    `token_from` names the source of the token, for the message if it is refused. Raises `ValueError` for a token that
    cannot be sent in a header.
    """

    def __init__(
        self,
        urls: Sequence[str] = (DEFAULT_URL,),
        token: str | None = None,
        timeout_s: float = 15,
        token_from: str = "",
    ) -> None:
        self._token_from = token_from
        self.urls = tuple(_base_url(url) for url in urls)
        self._headers = {"Authorization": f"Bearer {_sendable(token)}"} if token else {}
        self._timeout_s = timeout_s
        import urllib3  # here and below: a node imports this module, and seldom uses it

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
        """Send a request. Raises `ApiProblem` for a status of 400 or more, `Unreachable` if no member answers."""
        target = _target(path, query or {})
        all_headers = {**self._headers, **(headers or {})}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            all_headers["Content-Type"] = "application/json"
        elif method in ("POST", "PUT", "PATCH", "DELETE"):
            all_headers["Content-Type"] = "application/json"
        response = self._send(method, target, data, all_headers, timeout_s or self._timeout_s, preload=True)
        self._check_answer(response)
        try:
            parsed = json.loads(response.data) if response.data else None
            return ApiAnswer(response.status, response.headers, parsed, response.data)
        except ValueError as error:
            raise self._not_a_node("its answer is not JSON") from error

    def get(self, path: str, **query: Any) -> Any:
        """Return the body of a GET."""
        return self.call("GET", path, query=query).json

    def items(self, path: str, **query: Any) -> Iterator[Any]:
        """Yield all items of a list, page by page."""
        after: str | None = None
        while True:
            page = self.get(path, **{"limit": 1000, **query, "after": after})
            yield from page["items"]
            after = page["next"]
            if after is None:
                return

    def stream(self, path: str, *, endless: bool = False, **query: Any) -> Iterator[bytes]:
        """Yield the body of a GET, piece by piece. Raises as `call` does.

        An `endless` stream may be silent for any time once it has begun. If the machine at the other end fails, the
        stream ends after half a minute.
        """
        import urllib3

        target = _target(path, query)
        response = self._send("GET", target, None, self._headers, self._timeout_s, preload=False)
        try:
            self._check_answer(response)
            # urllib3 has one timeout for the beginning and for the rest.
            if endless and (sock := getattr(response.connection, "sock", None)) is not None:
                sock.settimeout(None)
                _probe(sock)
            while chunk := response.read1(65_536):
                yield chunk
        except urllib3.exceptions.HTTPError as error:
            raise Unreachable(f"the answer has broken off: {_reason(error)}") from error
        finally:
            response.close()

    def _check_answer(self, response: "urllib3.BaseHTTPResponse") -> None:
        """Raise `ApiProblem` for an error, `Unreachable` for an answer that no node sends."""
        if response.status >= 400:
            raise self._refused(response)
        if response.status >= 300:
            raise self._not_a_node(f"it redirects to {response.headers.get('Location', 'nowhere')}")
        if MARK not in response.headers:
            raise self._not_a_node(f"its answer lacks the header {MARK}")

    def _not_a_node(self, why: str) -> Unreachable:
        return Unreachable(f"the server at {', '.join(self.urls)} is not a Rota node: {why}")

    def _refused(self, response: "urllib3.BaseHTTPResponse") -> Exception:
        problem = _problem(response)
        if problem.type == NO_PROBLEM and problem.status in (404, 405, 501) and MARK not in response.headers:
            return self._not_a_node(f"it answers {problem.status}, and not as a node does")
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
                raise Unreachable(f"{url} is not an address: write it as http://host:port") from error
            except urllib3.exceptions.SSLError as error:
                failures.append(f"{url}: {_tls_reason(error)}")
            except urllib3.exceptions.HTTPError as error:
                failures.append(f"{url}: {_reason(error)}")
                if method != "GET":
                    break  # the member may have received the write: another one could apply it again
        raise Unreachable("no member answered: " + "; ".join(failures))


def _probe(sock: socket.socket) -> None:
    """Let the kernel probe the other end (TCP keepalive): a machine without power does not close its connections."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # By default it begins after two hours. Not every system has these options.
    for name, figure in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), figure)


def _sendable(token: str) -> str:
    """Return a token as it is sent in a header: in UTF-8, as nodes read it, since urllib3 would encode it as Latin-1.

    >>> _sendable("t0ken"), _sendable("é")
    ('t0ken', 'Ã©')
    """
    if not token.isprintable():
        raise ValueError("a token is one line of text in UTF-8, without control characters")
    return token.encode().decode("latin-1")


def _base_url(address: str) -> str:
    """Return the URL of a member's API.

    >>> _base_url("127.0.0.1:8101"), _base_url("http://host:8101/")
    ('http://127.0.0.1:8101', 'http://host:8101')
    """
    address = address.strip()
    return (address if "://" in address else f"http://{address}").rstrip("/")


def _tls_reason(error: Exception) -> str:
    """Say why a TLS handshake failed: most often because a node answers it in plain text."""
    if "WRONG_VERSION_NUMBER" in str(error) or "RECORD_LAYER_FAILURE" in str(error):
        return "nodes speak no TLS: use http:// (https:// is for a proxy in front of them)"
    return str(error)


def _reason(error: Exception) -> str:
    import urllib3

    if isinstance(error, urllib3.exceptions.ProtocolError) and error.args[0] == "Connection aborted.":
        # A node that is just stopping hangs up like this, and so does a Raft or heartbeat port.
        return "it hung up without an answer in HTTP (is this the HTTP port of a node?)"
    return str(error).rpartition(": ")[2]


def _problem(response: "urllib3.BaseHTTPResponse") -> ApiProblem:
    try:
        body = json.loads(response.data)
        return ApiProblem(
            status=response.status,
            type=str(body["type"]),
            title=str(body["title"]),
            detail=str(body.get("detail", "")),
            errors=tuple((str(error["field"]), str(error["message"])) for error in body.get("errors", ())),
            headers=response.headers,
        )
    except (ValueError, KeyError, TypeError):
        text = " ".join(_TAGS.sub(" ", response.data[:1000].decode(errors="replace")).split())[:200]
        return ApiProblem(response.status, NO_PROBLEM, f"HTTP {response.status}", text, headers=response.headers)
