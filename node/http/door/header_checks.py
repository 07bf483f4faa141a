"""Checks of a request's headers: the bearer token, the host name, and what a foreign web page cannot send.

A web page in a browser can send requests to 127.0.0.1. It cannot send JSON or a token to another site unless that site
allows it first (CORS, which this API never grants). A page whose host name is pointed at this machine afterwards (DNS
rebinding) sends that name in `Host`, so a request with an IP address in `Host` never comes from such a page.
"""

import base64
import hmac
import ipaddress
from collections.abc import Container, Mapping
from typing import Final

from aiohttp import web

from node.http.door.problems import Problem

JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"


def tokens_equal(shown: str, expected: str) -> bool:
    """Return whether two tokens are equal. Compares in constant time."""
    # Encoded in the way in which headers are decoded, so that a token that is not UTF-8 is merely wrong.
    return hmac.compare_digest(shown.encode("utf-8", "surrogateescape"), expected.encode("utf-8", "surrogateescape"))


def shown_token(authorization: str | None, *, basic: bool = False) -> str | None:
    """Return the token in an Authorization header; with `basic`, also one sent by a browser as the Basic password."""
    scheme, _, rest = (authorization or "").strip().partition(" ")
    if scheme.lower() == "bearer" and rest.strip():
        return rest.strip()
    if basic and scheme.lower() == "basic":
        try:
            return base64.b64decode(rest, validate=True).decode().partition(":")[2] or None
        except ValueError:  # also raised for a value that is not ASCII
            return None
    return None


def check_host(host: str, names: Container[str]) -> None:
    """Refuse a request for another host name. IP addresses, `localhost` and `names` (lower case) are accepted.

    Raises `Problem` misdirected.
    """
    name = _without_port(host)
    if name == "localhost" or name.endswith(".localhost") or name in names or _is_address(name):
        return
    raise Problem(
        "misdirected",
        f"the Host header is {host!r}, which is not a name of this node or of a member; "
        "use its IP address or a member's host name, or add the name to ROTA_HOSTS",
    )


def check_target(target: str) -> None:
    """Refuse a path or a query that is not ASCII. aiohttp's parser in C refuses it, its parser in Python does not.

    Raises `Problem` bad-request.
    """
    if not target.isascii():
        raise Problem("bad-request", f"{target[:200]!r} is not ASCII: percent-encode it (RFC 3986)")


def check_encoding(request: web.BaseRequest) -> None:
    """Refuse a compressed body before it is read: a few kilobytes can be gigabytes of zeros.

    Raises `Problem` media-type.
    """
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if request.body_exists and encoding not in ("", "identity"):
        raise Problem("media-type", "the body has a Content-Encoding: send it uncompressed, 1 MiB at most")


def check_origin(headers: Mapping[str, str], names: Container[str], *, reads: bool, known: bool, page: bool) -> None:
    """Refuse requests of another origin's page: writes, and reads of a client that is `known` to the browser.

    A browser adds the password and the cookie that it knows to requests of any page. A read without them is allowed,
    since a foreign page cannot see the response. `names` are those of ROTA_HOSTS, under which a proxy may serve this
    node. A navigation to a `page` by a link on another site is allowed. Raises `Problem` foreign-page.
    """
    if reads and not known:
        return
    if reads and page and headers.get("Sec-Fetch-Mode") == "navigate":
        return
    origin = headers.get("Origin")
    at = None if origin is None else origin.partition("://")[2].lower()
    ours = at is None or (at != "" and (at == headers.get("Host", "").lower() or _without_port(at) in names))
    # A page on another port of the same host is of another origin, although of the same site.
    if not ours or headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"):
        raise Problem(
            "foreign-page",
            f"this request comes from a page of {'another site' if origin is None else repr(origin[:200])}; "
            "if that is a name of this node, add it to ROTA_HOSTS",
        )


def check_content_type(request: web.BaseRequest, media_type: str = JSON) -> None:
    """Refuse a write whose body is of another type. A write without a body passes. Raises `Problem` media-type."""
    if not request.body_exists or (request.content_type == media_type and "Content-Type" in request.headers):
        return
    raise Problem("media-type", f"a {request.method} needs Content-Type: {media_type}, and a body of that type")


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
