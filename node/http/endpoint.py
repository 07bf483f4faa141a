"""One endpoint: what serves it, and all that /openapi.json says of it. Both come from the same table."""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_type_hints

from aiohttp import web
from pydantic import BaseModel

Handler = Callable[..., Awaitable[web.StreamResponse]]
Access = Literal["client", "page", "member", "anyone"]
"""Who may ask: with a client's token, the same also as a browser's password, members only (signed), anyone."""


@dataclass(frozen=True, slots=True)
class Says:
    """An answer: what it means, and its body, a type that pydantic can describe (None: no body)."""

    meaning: str
    body: Any = None
    media_type: str = "application/json"


@dataclass(frozen=True, slots=True, eq=False)
class Endpoint:
    """A method on a path. `query` is the model of its parameters; `body` that of what is sent, for the description."""

    method: str
    path: str
    handler: Handler
    tag: str
    answers: Mapping[int, Says]
    problems: tuple[str, ...] = ()
    access: Access = "client"
    query: type[BaseModel] | None = None
    body: Any = None
    body_needed: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def reads(self) -> bool:
        """Whether it changes nothing: then `?consistent=true` is understood."""
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
        """The rest of it."""
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
        answers: Mapping[int, Says],
        problems: tuple[str, ...] = (),
        **more: Any,
    ) -> Callable[[Handler], Handler]:
        """Decorate a handler `async def f(call[, query: Model])`; `more` are further fields of `Endpoint`."""

        def keep(handler: Handler) -> Handler:
            query = get_type_hints(handler).get("query")
            self.all.append(Endpoint(method, path, handler, self.tag, answers, problems, query=query, **more))
            return handler

        return keep
