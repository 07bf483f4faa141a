"""One endpoint: its handler, and all that /openapi.json says of it. Server and description use the same table."""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_type_hints

from aiohttp import web
from pydantic import BaseModel

Handler = Callable[..., Awaitable[web.StreamResponse]]
ProblemHandler = Callable[..., web.Response]
"""Makes a response of a `RequestContext` and a `Problem`."""
Access = Literal["client", "page", "member", "anyone", "browser", "visitor"]
"""Who may send the request: a client with the token, or to read, a browser that has signed in; the same, also with the
token as a browser's password; a member with a signature; anyone; a browser that has signed in; any browser. Writes of
the last two are forms with a CSRF token."""

OF_BROWSERS: Final = ("browser", "visitor")
"""Access of the page's endpoints, which answer with HTML and take forms."""


@dataclass(frozen=True, slots=True)
class ResponseSpec:
    """A successful response: what it means, and its body, a type that pydantic can describe (None: no body)."""

    meaning: str
    body: Any = None
    media_type: str = "application/json"


@dataclass(frozen=True, slots=True, eq=False)
class Endpoint:
    """A method on a path.

    `responses` are the successful ones by status, `problems` the problem types of its own. `query` is the model of its
    parameters; `body` that of the request's body, and `headers` the request headers, for the description. `on_problem`
    makes the response to a `Problem`; None: a problem document. `has_dry_run`: it may be asked to change nothing, and
    refuses by itself those who may read only (`identification.refuse_reader`) where it is not.
    """

    method: str
    path: str
    handler: Handler
    tag: str
    responses: Mapping[int, ResponseSpec]
    problems: tuple[str, ...] = ()
    access: Access = "client"
    query: type[BaseModel] | None = None
    body: Any = None
    body_needed: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)
    on_problem: ProblemHandler | None = None
    has_dry_run: bool = False

    @property
    def reads(self) -> bool:
        """Whether it only reads the cluster's state, so that `?consistent=true` is supported."""
        return self.method == "GET" and self.access == "client" and self.path.startswith("/v1/")

    @property
    def path_parameters(self) -> list[str]:
        """The names in braces, in order."""
        return _BRACES.findall(self.path)

    @property
    def summary(self) -> str:
        """The first line of the handler's docstring."""
        return (inspect.getdoc(self.handler) or "").partition("\n")[0].rstrip(".")

    @property
    def description(self) -> str:
        """The rest of the handler's docstring."""
        return (inspect.getdoc(self.handler) or "").partition("\n")[2].strip()


_BRACES: Final = re.compile(r"{(\w+)}")


class Endpoints:
    """Collects the endpoints of one topic."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.all: list[Endpoint] = []

    def add(
        self,
        method: str,
        path: str,
        responses: Mapping[int, ResponseSpec],
        problems: tuple[str, ...] = (),
        **more: Any,
    ) -> Callable[[Handler], Handler]:
        """Decorate a handler `async def f(context[, query: Model])`; `more` are further fields of `Endpoint`."""

        def register(handler: Handler) -> Handler:
            query = get_type_hints(handler).get("query")
            self.all.append(Endpoint(method, path, handler, self.tag, responses, problems, query=query, **more))
            return handler

        return register
