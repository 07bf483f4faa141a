"""One endpoint: its handler, and its description in /openapi.json. The server uses the same declaration."""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_type_hints

from aiohttp import web
from pydantic import BaseModel

Handler = Callable[..., Awaitable[web.StreamResponse]]
ProblemHandler = Callable[..., web.Response]
"""Makes a response from a `RequestContext` and a `Problem`."""

Access = Literal["client", "page", "member", "anyone", "browser", "visitor"]
"""Who may send the request.

`client`: a client with a token; to read, also a browser that has signed in. `page`: as `client`, and the token may be
the password of HTTP Basic authentication. `member`: a member, which signs the request. `anyone`: everybody. `browser`:
a browser that has signed in. `visitor`: any browser. Writes of the last two are forms with a CSRF token.
"""

OF_BROWSERS: Final = ("browser", "visitor")
"""The `Access` values of the page's endpoints, which answer with HTML and take forms."""


@dataclass(frozen=True, slots=True)
class ResponseSpec:
    """A successful response: what it means, and its body, a type that pydantic can describe (None: no body)."""

    meaning: str
    body: Any = None
    media_type: str = "application/json"


@dataclass(frozen=True, slots=True, eq=False)
class Endpoint:
    """A method on a path."""

    #: The HTTP method, in capitals.
    method: str
    #: The path, with `{name}` where it has a parameter.
    path: str
    #: Makes the response to a request.
    handler: Handler
    #: The group in the description of the API.
    tag: str
    #: The successful responses, by status.
    responses: Mapping[int, ResponseSpec]
    #: The problem types of its responses, besides those of all endpoints.
    problems: tuple[str, ...] = ()
    #: Who may send the request.
    access: Access = "client"
    #: The model of the query's parameters; None: it takes none.
    query: type[BaseModel] | None = None
    #: The model of the request's body, for the description; None: it takes none.
    body: Any = None
    #: Whether a request must have a body, for the description.
    body_needed: bool = True
    #: The request headers that it reads, each with its meaning, for the description.
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Makes the response to a `Problem`; None: a problem document.
    on_problem: ProblemHandler | None = None
    #: Whether a request may be a dry run, which the read-only token may ask for. The handler itself then refuses that
    #: token for other requests (`authentication.refuse_reader`).
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
            self.all.append(
                Endpoint(
                    method=method,
                    path=path,
                    handler=handler,
                    tag=self.tag,
                    responses=responses,
                    problems=problems,
                    query=query,
                    **more,
                )
            )
            return handler

        return register
