"""Sign in with a token, and sign out."""

from aiohttp import web
from pydantic import Field

from node.http.door.authentication import check_tries, new_session, role_of
from node.http.door.problems import Problem
from node.http.door.request_context import RequestContext
from node.web.page_endpoints import PageEndpoints, ViewQuery
from node.web.rendering import end_session, local_target, page, redirect, set_session
from node.web.words import sentence


class SignInQuery(ViewQuery):
    """The path to go to after signing in."""

    next: str = Field(default="/", max_length=2000)


endpoints = PageEndpoints("page")


@endpoints.page("/sign-in", "visitor")
async def sign_in_page(context: RequestContext, query: SignInQuery) -> web.Response:
    """Show the form for signing in, or redirect to `next` if the user need not sign in."""
    if context.role != "guest":
        return redirect(context, local_target(query.next))
    return page(context, "sign_in.html", next=query.next, wrong=None)


@endpoints.form("/sign-in", "visitor")
async def sign_in(context: RequestContext) -> web.Response:
    """Exchange a token for a session in a cookie."""
    form = await context.form()
    target = form.get("next", "/")
    role = role_of(form.get("token", "").strip(), context.node.settings)
    if role is None:
        return _refused(context, target)
    response = redirect(context, local_target(target))
    set_session(context, response, new_session(role, context.server.now_us() / 1e6))
    return response


def _refused(context: RequestContext, target: str) -> web.Response:
    """Show the form again with an error: the token is wrong, or this address has sent too many wrong tokens."""
    wrong = "That is not a token of this cluster. It is in ROTA_TOKEN of each node; `rota up` tells its file."
    try:
        check_tries(context)
    except Problem as problem:
        response = page(context, "sign_in.html", problem.status, next=target, wrong=sentence(problem.detail))
        response.headers.update(problem.headers)
        return response
    return page(context, "sign_in.html", 401, next=target, wrong=wrong)


@endpoints.form("/sign-out", "visitor")
async def sign_out(context: RequestContext) -> web.Response:
    """End the session in this browser."""
    response = redirect(context, "sign-in")
    end_session(context, response)
    return response
