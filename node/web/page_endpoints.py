"""Collects the page's endpoints: HTML for browsers, and problems as HTML."""

from collections.abc import Callable
from typing import Any

from node.http.door.endpoint import Access, Endpoints, Handler, ResponseSpec
from node.web.problem_page import problem_page


class PageEndpoints(Endpoints):
    """The endpoints of one topic of the page."""

    def page(self, path: str, access: Access = "browser") -> Callable[[Handler], Handler]:
        """Decorate what shows a page or a part of it."""
        return self._html("GET", path, access)

    def form(self, path: str, access: Access = "browser") -> Callable[[Handler], Handler]:
        """Decorate what obeys a form."""
        return self._html("POST", path, access)

    def _html(self, method: str, path: str, access: Access) -> Callable[[Handler], Handler]:
        given: dict[str, Any] = {"access": access, "on_problem": problem_page}
        return self.add(method, path, {200: ResponseSpec("HTML", str, "text/html")}, **given)
