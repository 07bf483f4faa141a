"""Who may ask: bearer tokens, the names this node goes by, and what no web page can send.

A page in somebody's browser can send requests to 127.0.0.1. It cannot send JSON or a token elsewhere
without being allowed to first (CORS, which is never granted here), and a name that its owner points at
this machine afterwards (DNS rebinding) arrives in `Host`.
"""

import base64
import hmac
import ipaddress
from collections.abc import Container
from typing import Final

from aiohttp import web

from node.http.problems import Problem

JSON: Final = "application/json"


def same(shown: str, expected: str) -> bool:
    """Whether two tokens are equal, in a time that does not tell how much of them is."""
    # As headers are decoded: one that is not UTF-8 is a wrong token, like any other.
    return hmac.compare_digest(shown.encode("utf-8", "surrogateescape"), expected.encode("utf-8", "surrogateescape"))


def shown_token(authorization: str | None, *, basic: bool = False) -> str | None:
    """The token in an Authorization header; with `basic` also as a password, for pages opened in a browser."""
    scheme, _, rest = (authorization or "").strip().partition(" ")
    if scheme.lower() == "bearer" and rest.strip():
        return rest.strip()
    if basic and scheme.lower() == "basic":
        try:
            return base64.b64decode(rest, validate=True).decode().partition(":")[2] or None
        except ValueError:  # also where it is not even ASCII
            return None
    return None


def check_host(host: str, names: Container[str]) -> None:
    """Refuse a request meant for another name. An IP address, `localhost` and `names` (lower case) are this node's.

    Raises `Problem` misdirected.
    """
    name = _without_port(host)
    if name == "localhost" or name.endswith(".localhost") or name in names or _is_address(name):
        return
    raise Problem(
        "misdirected",
        f"the Host header says {host!r}, which is no name of this node or of a member; "
        "call it by its address or by a member's host name, or add the name to ROTA_HOSTS",
    )


def check_target(target: str) -> None:
    """Refuse a path or a query that is not ASCII, as aiohttp's fast parser does, and the other one does not.

    Raises `Problem` bad-request.
    """
    if not target.isascii():
        raise Problem("bad-request", f"{target[:200]!r} is not ASCII: percent-encode it (RFC 3986)")


def check_encoding(request: web.BaseRequest) -> None:
    """Refuse a compressed body, before any of it is read: a few kilobytes may be gigabytes of zeros.

    Raises `Problem` media-type.
    """
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if request.body_exists and encoding not in ("", "identity"):
        raise Problem("media-type", "the body has a Content-Encoding: send it as it is, 1 MiB at most")


def check_origin(request: web.BaseRequest, names: Container[str], *, reads: bool, page: bool) -> None:
    """Refuse what another site's page sends: writes, and reads with credentials (a browser adds those it knows).

    `names` are those of ROTA_HOSTS: a proxy in front of this node may go by one. A page that somebody opens by a link
    on another site (`page`) is theirs. Raises `Problem` foreign-page.
    """
    headers = request.headers
    if reads and "Authorization" not in headers:
        return
    if page and headers.get("Sec-Fetch-Mode") == "navigate":
        return
    origin = headers.get("Origin")
    at = None if origin is None else origin.partition("://")[2].lower()
    ours = at is None or (at != "" and (at == headers.get("Host", "").lower() or _without_port(at) in names))
    if not ours or headers.get("Sec-Fetch-Site") == "cross-site":
        raise Problem(
            "foreign-page",
            f"a page of {'another site' if origin is None else repr(origin[:200])} has sent this; where that is a name "
            "of this node, add it to ROTA_HOSTS",
        )


def check_content_type(request: web.BaseRequest) -> None:
    """Let writes through whose body is JSON, and those without a body. Raises `Problem` media-type."""
    if not request.body_exists or (request.content_type == JSON and "Content-Type" in request.headers):
        return
    raise Problem("media-type", f"a {request.method} must bear Content-Type: {JSON}, and its body must be JSON")


def _without_port(host: str) -> str:
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
