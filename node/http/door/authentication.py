"""Who sends a request: the role of its token or of its browser's session, and the CSRF token of its form.

After some wrong tokens, an address gets 429 for further ones. The right token is always let in: behind a proxy all
clients have one address, and a stranger must not lock them out. The token's length makes guessing hopeless; the limit
makes guesses visible in the log and cheap to answer.
"""

import logging
import secrets
from collections import OrderedDict
from math import ceil
from time import monotonic
from typing import Final

from node.http.door.connection_limits import origin_of
from node.http.door.endpoint import OF_BROWSERS, Endpoint
from node.http.door.header_checks import shown_token, tokens_equal
from node.http.door.problems import Problem
from node.http.door.request_context import RequestContext
from node.http.door.session import ENDS_S, ID_HEX, SESSION_S, BrowserSession, Role, SessionRejected, cookie_name
from node.settings.table import NodeSettings

BURST: Final = 20
"""How many wrong tokens an address may show at once: a person's mistakes, a few programs with an old token."""

EVERY_S: Final = 3.0
"""The seconds after which an address may show one more wrong token."""

NEWS_S: Final = 60.0
"""The shortest time between two log lines about too many wrong tokens, in seconds."""

ORIGINS_MAX: Final = 4096
"""How many addresses are remembered. Of more, the address whose last wrong token is oldest is forgotten first."""


class WrongTokens:
    """Counts wrong tokens by origin (`origin_of`). Times are seconds of one monotonic clock."""

    def __init__(self, burst: int = BURST, every_s: float = EVERY_S, origins_max: int = ORIGINS_MAX) -> None:
        self._burst, self._every_s, self._origins_max = burst, every_s, origins_max
        self._spent_until_s: OrderedDict[str, float] = OrderedDict()
        self._next_news_s = float("-inf")

    def __len__(self) -> int:
        return len(self._spent_until_s)

    def wrong(self, origin: str, now_s: float) -> int | None:
        """Count a wrong token. Returns None, or the seconds to wait if its address has shown too many.

        >>> tokens = WrongTokens(burst=2, every_s=3)
        >>> [tokens.wrong("10.0.0.7", now_s) for now_s in (0, 0, 0, 1, 3, 3)]
        [None, None, 3, 2, None, 3]
        """
        # One number is enough: the time at which the address has its whole burst again. A wrong token moves it later.
        until_s = max(now_s, self._spent_until_s.get(origin, now_s)) + self._every_s
        wait_s = until_s - now_s - self._burst * self._every_s
        if wait_s > 0:
            return ceil(wait_s)
        self._spent_until_s[origin] = until_s
        self._spent_until_s.move_to_end(origin)
        if len(self._spent_until_s) > self._origins_max:
            self._spent_until_s.popitem(last=False)
        return None

    def is_news(self, now_s: float) -> bool:
        """Decide whether to log that a wrong token came too soon: once in `NEWS_S` at most, for all addresses."""
        if now_s < self._next_news_s:
            return False
        self._next_news_s = now_s + NEWS_S
        return True


_log = logging.getLogger("rota.http")
CSRF_FIELD: Final = "csrf"
"""The field of a form with the CSRF token of its session."""


def role_of(token: str, settings: NodeSettings) -> Role | None:
    """Return the role of a token; None if this node does not know it."""
    if settings.token is not None and tokens_equal(token, settings.token):
        return "operator"
    if settings.read_token is not None and tokens_equal(token, settings.read_token):
        return "reader"
    return None


def check_tries(context: RequestContext) -> None:
    """Count the request's wrong token. Raises `Problem` wrong-tokens after too many from its address."""
    origin = origin_of(context.request.remote or "")
    wrong_tokens, now_s = context.server.kept(WrongTokens), monotonic()
    wait_s = wrong_tokens.wrong(origin, now_s)
    if wait_s is None:
        return
    if wrong_tokens.is_news(now_s):
        _log.warning("too many wrong tokens from %s: they are answered with 429", origin)
    raise Problem(
        "wrong-tokens",
        f"too many wrong tokens came from this address: wait {wait_s} s before the next one; the right one is let in",
        headers={"Retry-After": str(wait_s)},
    )


def tokens_of(settings: NodeSettings) -> dict[Role, str]:
    """Return the token of each role that has one."""
    of: tuple[tuple[Role, str | None], ...] = (("operator", settings.token), ("reader", settings.read_token))
    return {role: token for role, token in of if token is not None}


def identify(endpoint: Endpoint, context: RequestContext) -> None:
    """Set the role and the session of a request that no member has signed.

    Raises `Problem` unauthorized, wrong-tokens, read-only.
    """
    why = _read_session(context)
    context.role = _role(endpoint, context, why)
    if context.role != "guest":
        context.welcome()
    if endpoint.method != "GET" and endpoint.access != "visitor" and not endpoint.has_dry_run:
        refuse_reader(context)


def refuse_reader(context: RequestContext) -> None:
    """Refuse a change by a client that may only read. Raises `Problem` read-only."""
    if context.role == "reader":
        raise Problem("read-only", "use the one in ROTA_TOKEN to change something")


def is_known_to_the_browser(context: RequestContext) -> bool:
    """Return whether a browser may have added credentials to the request by itself: a password or a session cookie."""
    return "Authorization" in context.request.headers or context.session is not None


async def check_form(context: RequestContext) -> None:
    """Refuse a form whose CSRF token is not of the browser's session. Raises `Problem` stale-form."""
    shown = (await context.form()).get(CSRF_FIELD, "")
    if context.session is None or not context.server.signer.csrf_matches(context.session, shown):
        raise Problem(
            "stale-form", "nothing was changed: this form is of an earlier session; load the page again, and repeat it"
        )


def new_session(role: Role, now_s: float) -> BrowserSession:
    """Return a session that begins now."""
    return BrowserSession(role, int(now_s) + SESSION_S, secrets.token_hex(ID_HEX // 2), int(now_s) + ENDS_S)


def _read_session(context: RequestContext) -> str | None:
    """Set the session that the cookie states. Returns why the cookie is rejected (a sentence), or None."""
    cluster = context.state.cluster_id
    cookie = context.request.cookies.get(cookie_name(cluster))
    if cookie is None:
        return None
    try:
        context.session = context.server.signer.read(cookie, cluster, context.server.now_us() / 1e6)
    except SessionRejected as rejected:
        return str(rejected)
    return None


def _role(endpoint: Endpoint, context: RequestContext, rejected: str | None) -> Role:
    settings = context.node.settings
    if settings.token is None:
        return "operator"
    authorization = context.request.headers.get("Authorization")
    shown = shown_token(authorization, basic=endpoint.access == "page")
    if shown is not None and endpoint.access not in OF_BROWSERS:
        if (role := role_of(shown, settings)) is not None:
            return role
        check_tries(context)
    elif context.session is not None and (endpoint.method == "GET" or endpoint.access in OF_BROWSERS):
        # Only a form proves, by its CSRF token, that our own page has sent it, so other writes need the bearer token.
        role = context.session.role
        if role != "guest" or endpoint.access == "visitor":
            return role
    elif endpoint.access == "visitor":
        return "guest"
    if endpoint.access == "anyone":
        return "guest"
    if endpoint.access in OF_BROWSERS:
        raise Problem("unauthorized", rejected or "sign in first", code="no-session")
    raise _refusal(shown, authorization, page=endpoint.access == "page")


def _refusal(shown: str | None, authorization: str | None, *, page: bool) -> Problem:
    # Send one challenge only: browsers read only the first one in a header, and prompt only for Basic.
    challenge = 'Basic realm="rota", charset="UTF-8"' if page else 'Bearer realm="rota"'
    if shown is not None:
        code, detail = "wrong-token", "the token is wrong: it differs from this node's ROTA_TOKEN"
    elif authorization:
        code, detail = "no-token", "the Authorization header has no token: send Authorization: Bearer and ROTA_TOKEN"
    else:
        code, detail = "no-token", "there is no token: send Authorization: Bearer and ROTA_TOKEN"
    return Problem("unauthorized", detail, headers={"WWW-Authenticate": challenge}, code=code)
