"""Who may ask: bearer tokens, the names this node goes by, and what no web page can send.

A page in somebody's browser can send requests to 127.0.0.1. It cannot send JSON or a token elsewhere
without being allowed to first (CORS, which is never granted here), and a name that its owner points at
this machine afterwards (DNS rebinding) arrives in `Host`.
"""

import base64
import hashlib
import hmac
import ipaddress
from collections.abc import Container
from typing import Final

from aiohttp import web

from node.http.problems import Problem

JSON: Final = "application/json"


def member_credential(secret: str) -> str:
    """What members show one another over HTTP: derived from the cluster's secret, and not it."""
    return hmac.new(secret.encode(), b"rota: members over http, 1", hashlib.sha256).hexdigest()


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


def check_content_type(request: web.BaseRequest) -> None:
    """Let writes through whose body is JSON, and those without a body that do not come from a foreign page.

    Raises `Problem` media-type.
    """
    if request.content_type == JSON and "Content-Type" in request.headers:
        return
    if not request.body_exists:
        origin = request.headers.get("Origin")
        if origin is None or origin.partition("://")[2].lower() == request.headers.get("Host", "").lower():
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
