"""Requests JSON from one HTTP server: waits if the server asks for it, retries, and never follows a link to another
server.

Secrets go with each request, so a redirect or a link to the next page is followed only at the origin (protocol, host
and port) of the task's own URL, which the node allows.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urljoin, urlsplit

from spark_tasks.contracts.source import SourceUnfit
from spark_tasks.http.params import HttpRows
from tasks.access import addresses
from tasks.errors import Failed
from tasks.retry_after import asked_wait_s

if TYPE_CHECKING:
    import urllib3

PAGE_BYTES_MAX: Final = 16 << 20
"""The most bytes of a page: its records are in memory at once."""

WAIT_MAX_S: Final = 60.0
"""The longest wait before a page is asked for again, unless the server asks for a longer one."""

PATIENCE_S: Final = 600.0
"""If a server asks for a longer wait than this, the attempt fails, and another one tries again."""

REDIRECTS_MAX: Final = 5

_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_STEP_S: Final = 0.2
_CHUNK_BYTES: Final = 1 << 16


class ApiAway(Failed):
    """An HTTP API does not answer, is overloaded, or refuses the credentials. Another attempt may succeed."""


class ApiReadStopped(Failed):
    """The attempt was asked to stop while it read an HTTP API."""


@dataclass(frozen=True)
class ApiReply:
    """The server's answer: the body, unpacked, the headers in lower case, and the URL that was asked."""

    url: str
    body: bytes
    headers: Mapping[str, str]


class ApiClient:
    """Requests with the task's headers and parameters, their secrets resolved. `stopped` returns True to give up."""

    def __init__(
        self,
        params: HttpRows,
        headers: Mapping[str, str],
        parameters: Mapping[str, str],
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        import urllib3

        self.params = params
        self.parameters = dict(parameters)
        self.stopped = stopped
        self._headers = {"Accept": "application/json", "User-Agent": "rota", "Accept-Encoding": "gzip"} | dict(headers)
        self._secrets = {
            name: value for name, value in parameters.items() if not isinstance(params.parameters[name], str)
        }
        waits = urllib3.Timeout(connect=min(10, params.timeout_s), read=params.timeout_s)
        self._pool = urllib3.PoolManager(retries=False, timeout=waits)

    def first(self, more: Mapping[str, str]) -> str:
        """Return the task's URL with its parameters, and those in `more`."""
        return with_parameters(self.params.url, self.parameters | dict(more))

    def follow(self, link: str, base: str, what: str) -> str:
        """Return the URL to which the server refers as `link` at `base`. Raises `SourceUnfit` if it is at another
        origin.
        """
        try:
            url = urljoin(base, link)
            same = origin(url) == origin(self.params.url)
        except ValueError:
            same = False
        if not same:
            raise SourceUnfit(
                f"{self.params.url}: {what} leads to {without_query(link)}, which is not at "
                f"{'://'.join(origin(self.params.url))}: the headers of this task are not sent to another server"
            )
        return with_parameters(url, self._secrets)  # links do not repeat secrets

    def get(self, url: str) -> ApiReply:
        """Return the answer to GET. Raises `ApiAway`, `ApiReadStopped`, and `SourceUnfit` for an error that a retry
        cannot solve.
        """
        for number in range(1, self.params.tries + 1):
            said, wait_s = "", None
            try:
                answer, said, wait_s = self._tried(url)
                if answer is not None:
                    return answer
            except _errors() as error:
                said = f"{type(error).__name__}: {error}"
            pause_s = _pause_s(number, wait_s)
            if number == self.params.tries or pause_s > PATIENCE_S:
                raise ApiAway(f"{without_query(url)}: {said.partition('?')[0]}; tried {number} times")
            self._wait(pause_s)
        raise AssertionError("the last try returns or raises")

    def _tried(self, url: str) -> tuple[ApiReply | None, str, float | None]:
        """Send one request. Returns the answer; or None, the reason, and the seconds that the server asks to wait."""
        for _ in range(REDIRECTS_MAX + 1):
            with self._opened(url) as response:
                if response.status in _REDIRECTS and "location" in response.headers:
                    url = self.follow(response.headers["location"], url, f"a redirect ({response.status})")
                    continue
                if response.status in _AGAIN:
                    wait_s = asked_wait_s(response.headers.get("retry-after"), datetime.now(UTC))
                    return None, f"the server answers {response.status}", wait_s
                if response.status in (401, 403):
                    raise ApiAway(
                        f"{without_query(url)}: the server refuses this task's credentials ({response.status})"
                    )
                if response.status != 200:
                    start = next(response.stream(200, decode_content=True), b"").decode("utf-8", "replace")
                    raise SourceUnfit(
                        f"{without_query(url)}: the server answers {response.status}: {' '.join(start.split())}"
                    )
                headers = {name.lower(): response.headers[name] for name in response.headers}
                return ApiReply(url, self._body(response, url), headers), "", None
        raise SourceUnfit(f"{without_query(url)}: more than {REDIRECTS_MAX} redirects")

    @contextmanager
    def _opened(self, url: str) -> "Iterator[urllib3.BaseHTTPResponse]":
        response = self._pool.request("GET", url, headers=self._headers, redirect=False, preload_content=False)
        with closing(response):
            yield response

    def _body(self, response: "urllib3.BaseHTTPResponse", url: str) -> bytes:
        found, size_bytes = [], 0
        for chunk in response.stream(_CHUNK_BYTES, decode_content=True):
            size_bytes += len(chunk)
            if size_bytes > PAGE_BYTES_MAX:
                raise SourceUnfit(
                    f"{without_query(url)}: the page has more than {PAGE_BYTES_MAX} bytes: ask for smaller ones"
                )
            if self.stopped():
                raise ApiReadStopped("asked to stop")
            found.append(chunk)
        return b"".join(found)

    def _wait(self, pause_s: float) -> None:
        until_s = time.monotonic() + pause_s
        while (left_s := until_s - time.monotonic()) > 0:
            if self.stopped():
                raise ApiReadStopped("asked to stop")
            time.sleep(min(left_s, _STEP_S))


def _errors() -> tuple[type[Exception], ...]:
    import urllib3

    return (urllib3.exceptions.HTTPError,)


def origin(url: str) -> tuple[str, str]:
    """Return the protocol, and the host with port. Raises `ValueError` for a URL that libraries may read in different
    ways.

    >>> origin("https://API.internal/v1?x=1"), origin("https://api.internal:443/")
    (('https', 'api.internal:443'), ('https', 'api.internal:443'))
    """
    scheme = url.partition("://")[0]
    if scheme not in ("http", "https") or "@" in urlsplit(url).netloc or "\\" in url:
        raise ValueError(f"{url} is not at an HTTP server")
    return scheme, addresses(url, {})[0]


def without_query(url: str) -> str:
    """Return a URL without its query, which may contain a secret."""
    return url.partition("?")[0][:500]


def with_parameters(url: str, parameters: Mapping[str, str]) -> str:
    """Return the URL with `parameters` in its query, in place of its own parameters of the same names.

    >>> with_parameters("http://a/b?x=1&limit=5", {"limit": "9", "at": "1 2"})
    'http://a/b?x=1&limit=9&at=1+2'
    """
    base, _, query = url.partition("?")
    kept = [part for part in query.split("&") if part and part.partition("=")[0] not in parameters]
    query = "&".join([*kept, urlencode(parameters)] if parameters else kept)
    return f"{base}?{query}" if query else base


def _pause_s(number: int, said_s: float | None) -> float:
    """Return how long to wait after try `number`, in seconds; `said_s` is the wait that the server asks for (pure).

    >>> _pause_s(1, None), _pause_s(3, None), _pause_s(20, None), _pause_s(1, 90)
    (1.0, 4.0, 60.0, 90)
    """
    return min(2.0 ** (number - 1), WAIT_MAX_S) if said_s is None else said_s
