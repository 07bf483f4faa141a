"""Collects the page's endpoints, which answer browsers in HTML, also with problems."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from pydantic import BaseModel, ConfigDict

from node.http.door.endpoint import Access, Endpoints, Handler, ResponseSpec
from node.http.door.problems import CATALOGUE, Problem
from node.http.door.request_context import RequestContext
from node.web.definition_form import DefinitionForm, form_sent
from node.web.rendering import is_part, page, redirect
from tasks.definition.spec import set_of


class ViewQuery(BaseModel):
    """The query of a page. Unknown parameters are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class PageEndpoints(Endpoints):
    """The endpoints of one topic of the page."""

    def page(self, path: str, access: Access = "browser") -> Callable[[Handler], Handler]:
        """Decorate a handler that shows a page or a part of a page."""
        return self._html("GET", path, access)

    def form(self, path: str, access: Access = "browser") -> Callable[[Handler], Handler]:
        """Decorate a handler that carries out the action of a form."""
        return self._html("POST", path, access)

    def _html(self, method: str, path: str, access: Access) -> Callable[[Handler], Handler]:
        given: dict[str, Any] = {"access": access, "on_problem": problem_page}
        return self.add(method, path, {200: ResponseSpec("HTML", str, "text/html")}, **given)


def problem_page(context: RequestContext, problem: Problem) -> web.Response:
    """Return the page that shows a `Problem`, or the sign-in page if the session has ended."""
    if problem.more.get("code") == "no-session" and context.request.method in ("GET", "HEAD") and not is_part(context):
        return _to_sign_in(context)
    if problem.kind == "stale-form" and "definition" in context.fields:
        return unsaved_page(context, context.request.match_info.get("name"), form_sent(context.fields), problem)
    template = "notice.html" if is_part(context) else "problem.html"
    title = CATALOGUE[problem.kind][1]
    # Set no cookie. A request from another site's page comes without our cookie, and `page` would answer it with a
    # guest's session, which would replace the browser's own.
    response = page(context, template, problem.status, title=title, detail=problem.detail, bad=True)
    response.headers.update({name: value for name, value in problem.headers.items() if name != "WWW-Authenticate"})
    response.cookies.clear()
    return response


def definition_page(context: RequestContext, task: str | None, form: DefinitionForm, status: int = 200) -> web.Response:
    """Return the page with the form for a definition. It warns if the registered definition is kept in files."""
    row = None if task is None else context.state.tasks.get(task)
    kept_in = None if row is None else set_of(row.spec_packed)
    return page(context, "edit.html", status, task=task, form=form, kept_in=kept_in)


def unsaved_page(context: RequestContext, task: str | None, form: DefinitionForm, problem: Problem) -> web.Response:
    """Return the page with the form for a definition again, with the user's text, and why it was not saved."""
    why = problem.detail if problem.kind == "outcome-unknown" else f"nothing was saved: {problem.detail}"
    response = definition_page(context, task, replace(form, unsaved=why), problem.status)
    response.headers.update(problem.headers)
    return response


def _to_sign_in(context: RequestContext) -> web.Response:
    if context.request.headers.get("Sec-Fetch-Site") == "cross-site":
        # The user followed a link on another site, so the browser did not send our SameSite=Strict cookie. It sends the
        # cookie when a page of ours leads here.
        response = page(context, "continue.html")
        response.cookies.clear()
        return response
    return redirect(context, f"sign-in?{urlencode({'next': context.request.path_qs})}")
