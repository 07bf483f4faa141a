"""One request: what a handler asks of it, and of the node behind it. Every wait in here has a limit."""

import asyncio
import json
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from node.duty.ownership import Ownership
from node.http.auth import JSON
from node.http.endpoint import Endpoint
from node.http.json_body import read_json
from node.http.node_port import Node
from node.http.problems import Problem, field_errors, invalid, invalid_field
from node.http.service import Service
from node.raft.errors import ChangeRefused, EntryTooLarge, NoQuorum, OutcomeUnknown, Overloaded, RaftError, RaftStopped
from node.state.codec import BadEntry
from node.state.entries import Entry
from node.state.value import Result, State

M = TypeVar("M", bound=BaseModel)

REFUSALS: Final[dict[str, str]] = {
    "no-such-task": "not-found",
    "no-such-member": "not-found",
    "no-such-run": "not-found",
    "version": "version-conflict",
    "invalid": "invalid",
    "too-large": "too-large",
    "not-founded": "not-ready",
    "stale": "outcome-unknown",
}
"""Why `apply` refuses, as problem types; whatever is not here is a conflict."""

COMMON_QUERY: Final = "consistent"
CONSISTENT: Final = "a consistent read needs a majority; without ?consistent=true this node tells what it knows"
UNKEPT: Final = "something that cannot be kept, such as a number of more than 64 bits"
AT_ONCE_BYTES: Final = 65_536
"""A larger body is parsed in another thread: 1 MiB takes tens of milliseconds."""

GRACE_S: Final = 0.5
"""How much longer than the limit it was given the node is waited for."""


class Call:
    """A request that is being answered."""

    __slots__ = ("_sent", "request", "service")

    def __init__(self, request: web.Request, service: Service) -> None:
        self.request = request
        self.service = service
        self._sent: bytes | None = None

    @property
    def node(self) -> Node:
        """The node that answers."""
        return self.service.node

    @property
    def state(self) -> State:
        """The state as applied here, now."""
        return self.service.node.state()

    def path(self, name: str) -> str:
        """A part of the path, decoded."""
        return self.request.match_info[name]

    def header(self, name: str) -> str | None:
        """A header, without the blanks around it; None if it is not there or empty. Raises `Problem` bad-request."""
        value = (self.request.headers.get(name) or "").strip()
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                # Bytes that are no text can neither be kept nor be told.
                raise Problem("bad-request", f"the header {name} is not UTF-8: send it as ASCII or UTF-8") from None
        return value or None

    def query(self, model: type[M]) -> M:
        """The query, checked. A parameter without a value is as good as none. Raises `Problem` invalid."""
        given = {name: value for name, value in self.request.query.items() if value != "" and name != COMMON_QUERY}
        try:
            return model.model_validate(given)
        except ValidationError as error:
            raise invalid(field_errors(error), "the query") from None

    def no_query(self) -> None:
        """Refuse parameters where there are none: a slip in a name must not pass for an answer."""
        for name in self.request.query:
            if name != COMMON_QUERY:
                raise invalid_field(name, "there is no such parameter", "the query")

    async def body(self) -> bytes:
        """What was sent. Raises `Problem` bad-request, too-large, request-timeout."""
        if self._sent is not None:
            return self._sent
        limit = self.service.limits.body_bytes
        if (self.request.content_length or 0) > limit:
            raise self._too_large()
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.service.limits.body_s):
                async for piece in self.request.content.iter_chunked(65_536):
                    size += len(piece)
                    if size > limit:
                        raise self._too_large()
                    pieces.append(piece)
        except TimeoutError:
            raise Problem("request-timeout", "the body did not arrive in time: send it again") from None
        except web.RequestPayloadError:
            raise Problem("bad-request", "the body cannot be read: its chunks, or its length, are not right") from None
        self._sent = b"".join(pieces)
        return self._sent

    async def json(self) -> Any:
        """What was sent, as JSON. Raises `Problem` bad-request, too-large, request-timeout."""
        body = await self.body()
        if not body.strip():
            raise Problem("bad-request", "the body is empty, and should be JSON")
        try:
            return read_json(body) if len(body) <= AT_ONCE_BYTES else await asyncio.to_thread(read_json, body)
        except ValueError as error:
            raise Problem("bad-request", f"the body is not JSON: {error}") from None

    async def model(self, model: type[M], *, empty: bool = False) -> M:
        """What was sent, checked; with `empty`, nothing stands for `{}`."""
        given = {} if empty and not self.request.body_exists else await self.json()
        try:
            return model.model_validate(given)
        except ValidationError as error:
            raise invalid(field_errors(error)) from None

    async def propose(self, entry: Entry) -> Result:
        """Commit an entry. Raises `Problem` where that is not possible, or `apply` refused."""
        return await self.committed(type(entry).__name__, self.node.propose(entry, self.service.limits.write_s))

    async def committed(self, name: str, proposing: Awaitable[Result]) -> Result:
        """What becomes of a proposal, counted under `name`. Raises `Problem` if it is not accepted."""
        # What was proposed goes on when the client leaves, or when we no longer wait for it.
        going_on = asyncio.ensure_future(proposing)
        going_on.add_done_callback(_looked_at)
        with self.service.metrics.proposal(name) as outcome:
            try:
                async with asyncio.timeout(self.service.limits.write_s + GRACE_S):
                    result = await asyncio.shield(going_on)
            except (RaftError, BadEntry, TimeoutError) as error:
                problem = unanswered(error)
                outcome.code = problem.kind
                raise problem from None
            outcome.code = result.code
        return accepted(result)

    async def barrier(self, why: str = CONSISTENT) -> None:
        """Wait for a commit of its own. Raises `Problem` no-quorum, which says `why` one is needed."""
        try:
            async with asyncio.timeout(self.service.limits.write_s + GRACE_S):
                await self.node.barrier(self.service.limits.write_s)
        except (NoQuorum, OutcomeUnknown, Overloaded, TimeoutError):
            raise Problem("no-quorum", why) from None
        except RaftStopped:
            raise Problem("stopping", "this node is stopping: ask another member") from None

    async def catch_up(self) -> None:
        """Before a write is refused for want of something: see that it is not merely unknown here.

        A member that has just started, or was stopped for a while, is behind the others. Raises `Problem` no-quorum.
        """
        await self.barrier("nothing was proposed: what this is about is not known here, and no majority can be asked")

    async def ownership(self) -> Ownership:
        """The placement of the present epoch."""
        node = self.node
        ownership = node.ownership()
        if ownership.state.epoch != node.state().epoch:
            ownership = await node.placed(self.service.limits.placement_s)
        return ownership

    def answer(self, body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
        """A JSON answer."""
        return self.answer_packed(to_json(body, inf_nan_mode="null"), status, headers)

    def answer_packed(self, packed: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
        """A JSON answer whose body is made already."""
        return web.Response(body=packed, status=status, headers=headers, content_type=JSON)

    def _too_large(self) -> Problem:
        limit = self.service.limits.body_bytes
        return Problem(
            "too-large",
            f"the body is over {limit // 1024} KiB; send long lists of tasks in several pieces (rota apply does)",
            limit_bytes=limit,
        )


async def serve(endpoint: Endpoint, call: Call) -> web.StreamResponse:
    """Check the query, and let the endpoint's handler answer."""
    if endpoint.query is None:
        call.no_query()
        return await endpoint.handler(call)
    return await endpoint.handler(call, call.query(endpoint.query))


def _looked_at(done: "asyncio.Future[Result]") -> None:
    """Take note of how it ended: nobody else may be there to do so."""
    if not done.cancelled():
        done.exception()


def unanswered(error: Exception) -> Problem:
    """What to tell a client of a proposal that got no result."""
    if isinstance(error, NoQuorum):
        return Problem("no-quorum", str(error) or "nothing was proposed: a majority is out of reach")
    if isinstance(error, EntryTooLarge):
        return Problem(
            "too-large",
            "with every default written out this is more than one entry of the log may hold (1 MB); "
            "send it in smaller pieces (a few hundred tasks each)",
        )
    if isinstance(error, Overloaded):
        return Problem("overloaded", "too many proposals are under way here, and nothing was proposed: try again")
    if isinstance(error, ChangeRefused):
        return Problem("conflict", str(error) or "another change of membership is under way: try again")
    if isinstance(error, BadEntry):
        return Problem("invalid", f"nothing was proposed: it holds {UNKEPT} ({error})")
    if isinstance(error, RaftStopped):
        return Problem("stopping", "this node is stopping, nothing was proposed: ask another member")
    return Problem(
        "outcome-unknown",
        "it was proposed, and no majority has answered in time: it may yet be committed; look before you repeat it",
    )


def accepted(result: Result) -> Result:
    """The result, if it was accepted. Raises `Problem` otherwise."""
    if result.ok:
        return result
    kind = REFUSALS.get(result.code, "conflict")
    raise Problem(kind, result.detail or f"refused: {result.code}", code=result.code)


def string_list(names: Sequence[str]) -> str:
    """Names for a sentence.

    >>> string_list(["b", "a"])
    '"a", "b"'
    """
    return ", ".join(json.dumps(name) for name in sorted(names))
