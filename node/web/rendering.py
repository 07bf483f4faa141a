"""Renders templates to responses: whole pages and parts, with the headers of every page and the session's cookie."""

import re
from functools import cache
from typing import Any, Final

from aiohttp import web
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from node.http.door.authentication import new_session
from node.http.door.request_context import RequestContext
from node.http.door.session import BrowserSession, cookie_name
from node.runtime.plain_text import plain
from node.web.assets import asset_path, page_version
from node.web.verdict import Finding, NodeSight, standing_of
from node.web.words import FILTERS

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    # With "no-referrer", browsers would send `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_NEXT: Final = re.compile(r"/(?![/\\])[\x21-\x7e]{0,1000}")


def page(
    context: RequestContext, template: str, status: int = 200, *, root: str | None = None, **values: Any
) -> web.Response:
    """Render a template to a response.

    A browser without a session gets a guest's session, for the forms of the page; a session in use is prolonged.
    `root`: the relative path to the page's root; None: as for a document at the path of the request.
    """
    session = context.session
    issued = session is None
    if session is None:
        session = new_session("guest", context.server.now_us() / 1e6)
    settings = context.node.settings
    text = (
        _templates()
        .get_template(template)
        .render(
            root=root_of(context.request.path) if root is None else root,
            path=context.request.path,
            csrf=context.server.signer.csrf(session),
            node=settings.node,
            secured=settings.token is not None,
            role=context.role,
            standing=_standing(context),
            now_us=context.server.now_us(),
            **values,
        )
    )
    response = web.Response(text=text, status=status, content_type="text/html", headers=HEADERS)
    if issued:
        if not is_part(context):  # parts are fetched at the same time: each would replace the session
            set_session(context, response, session)
    elif (renewed := session.renewed(context.server.now_us() / 1e6)) is not None:
        set_session(context, response, renewed)
    return response


def _standing(context: RequestContext) -> list[Finding]:
    node = context.node
    outlook = None if node.outlook is None else str(node.outlook)
    sight = NodeSight(node.settings.node, node.role, node.lease_held, outlook, lapsed_us=node.lease_lapsed_us)
    return standing_of(context.state, sight)


def redirect(context: RequestContext, target: str) -> web.Response:
    """Return a redirect (303) to a path below the page's root, such as `tasks`. Works behind a proxy's path prefix."""
    return web.Response(status=303, headers={**HEADERS, "Location": root_of(context.request.path) + target})


def set_session(context: RequestContext, response: web.Response, session: BrowserSession) -> None:
    """Set the session's cookie: SameSite=Strict, so that only our own pages send it, and hidden from scripts."""
    cluster = context.state.cluster_id
    response.set_cookie(
        cookie_name(cluster),
        context.server.signer.cookie(session, cluster),
        max_age=session.expires_s - context.server.now_us() // 1_000_000,
        path="/",
        secure=_is_secure(context.request),
        httponly=True,
        samesite="Strict",
    )


def end_session(context: RequestContext, response: web.Response) -> None:
    """Delete the session's cookie in the browser."""
    response.del_cookie(
        cookie_name(context.state.cluster_id),
        path="/",
        secure=_is_secure(context.request),
        httponly=True,
        samesite="Strict",
    )


def root_of(path: str) -> str:
    """Return the page's root, relative to a document at `path`, since a proxy may serve the page below a prefix.

    >>> root_of("/"), root_of("/tasks"), root_of("/tasks/a")
    ('./', './', '../')
    """
    return "../" * (path.count("/") - 1) or "./"


def local_target(path: str) -> str:
    """Turn `path`, with its query, into a target of `redirect`; "", the overview, if it leads to another site.

    >>> local_target("/tasks?q=a"), local_target("//evil.example"), local_target("https://evil.example")
    ('tasks?q=a', '', '')
    """
    return path[1:] if _NEXT.fullmatch(path) else ""


def is_part(context: RequestContext) -> bool:
    """Return whether htmx has sent the request, for a part of an open page."""
    return context.request.headers.get("HX-Request") == "true"


def _is_secure(request: web.Request) -> bool:
    # A proxy sets the header. A client that sets it itself only makes its own cookie stricter.
    return request.secure or request.headers.get("X-Forwarded-Proto", "").strip().lower() == "https"


def _shown(value: object) -> object:
    """Return a template's value with control and bidirectional characters escaped: no text can pose as another."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("node.web"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    templates.filters.update(FILTERS)
    templates.globals["asset"] = asset_path
    templates.globals["page_version"] = page_version
    return templates
