"""One request, as handlers use it: its parameters and body, and proposals to the node. Every wait has a limit."""

import asyncio
import json
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from aiohttp import web
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json

from node.duty.ownership import Ownership
from node.http.door.connection import ClientConnection
from node.http.door.endpoint import Endpoint
from node.http.door.header_checks import JSON
from node.http.door.problems import Problem, body_errors, invalid, invalid_field
from node.http.door.server_context import ServerContext
from node.http.door.session import BrowserSession, Role
from node.http.node_port import NodePort
from node.raft.errors import ChangeRefused, EntryTooLarge, NoQuorum, OutcomeUnknown, Overloaded, RaftError, RaftStopped
from node.state.codec import BadEntry
from node.state.entries import Entry
from node.state.value import Result, State

M = TypeVar("M", bound=BaseModel)
KNOWN: Final = web.RequestKey("known", bool)
"""Whether the sender of a request is authenticated. Answers to others tell nothing of the cluster."""

REFUSALS: Final[dict[str, str]] = {
    "no-such-task": "not-found",
    "no-such-member": "not-found",
    "no-such-run": "not-found",
    "no-such-channel": "not-found",
    "no-such-backfill": "not-found",
    "version": "version-conflict",
    "invalid": "invalid",
    "too-large": "too-large",
    "not-founded": "not-ready",
    "stale": "outcome-unknown",
}
"""The problem type of each code with which `apply` refuses an entry; all others are a conflict."""

COMMON_QUERY: Final = "consistent"
CONSISTENT: Final = (
    "a consistent read needs a quorum; without ?consistent=true this node answers from its own, possibly stale state"
)
UNSTORABLE: Final = "a value that cannot be stored, such as a number of more than 64 bits"
INLINE_BYTES: Final = 65_536
"""A larger body is parsed in another thread: 1 MiB takes tens of milliseconds."""

FORM_FIELDS_MAX: Final = 200
GRACE_S: Final = 0.5
"""How much longer than its own limit a call of the node may take, in seconds."""


class RequestContext:
    """A request that is being answered, and the server that answers it."""

    __slots__ = ("_body", "fields", "request", "role", "server", "session")

    def __init__(self, request: web.Request, server: ServerContext) -> None:
        self.request = request
        self.server = server
        self.role: Role = "guest"
        """What the client may do, once the request is admitted."""
        self.session: BrowserSession | None = None
        """The browser's session, if its cookie states a valid one."""
        self.fields: dict[str, str] = {}
        """The fields of the request's form, once `form` has read them."""
        self._body: bytes | None = None

    @property
    def node(self) -> NodePort:
        """The node that answers."""
        return self.server.node

    @property
    def state(self) -> State:
        """The newest state applied on this node."""
        return self.server.node.state()

    def path(self, name: str) -> str:
        """Return a parameter of the path, decoded."""
        return self.request.match_info[name]

    def header(self, name: str) -> str | None:
        """Return a header without surrounding blanks; None if it is absent or empty. Raises `Problem` bad-request."""
        value = (self.request.headers.get(name) or "").strip()
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                # Undecodable bytes can be neither stored nor quoted.
                raise Problem("bad-request", f"the header {name} is not UTF-8: send it as ASCII or UTF-8") from None
        return value or None

    def query(self, model: type[M]) -> M:
        """Validate and return the query. A parameter without a value counts as absent. Raises `Problem` invalid."""
        given = {name: value for name, value in self.request.query.items() if value != "" and name != COMMON_QUERY}
        try:
            return model.model_validate(given)
        except ValidationError as error:
            raise invalid(body_errors(error, given), "the query") from None

    def no_query(self) -> None:
        """Refuse query parameters where none are declared: a misspelt name must not be ignored."""
        for name in self.request.query:
            if name != COMMON_QUERY:
                raise invalid_field(name, "there is no such parameter", "the query")

    def welcome(self) -> None:
        """Note that the sender is authenticated: the body may be large, and the answer may tell of the cluster."""
        self.request[KNOWN] = True
        if isinstance(connection := self.request.protocol, ClientConnection):
            connection.welcome()

    async def body(self) -> bytes:
        """Read and return the body. Raises `Problem` bad-request, too-large, request-timeout."""
        if self._body is not None:
            return self._body
        limit = self._body_limit
        if (self.request.content_length or 0) > limit:
            raise self._too_large()
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.server.limits.body_s):
                async for piece in self.request.content.iter_chunked(min(limit, 65_536)):
                    size += len(piece)
                    if size > limit:
                        raise self._too_large()
                    pieces.append(piece)
        except TimeoutError:
            raise Problem("request-timeout", "the body did not arrive in time: send it again") from None
        except web.RequestPayloadError:
            raise Problem("bad-request", "the body cannot be read: its length or one of its chunks is wrong") from None
        self._body = b"".join(pieces)
        return self._body

    async def json(self) -> Any:
        """Read the body, and parse it as JSON. Raises `Problem` bad-request, too-large, request-timeout."""
        body = await self.body()
        if not body.strip():
            raise Problem("bad-request", "the body is empty; send JSON")
        try:
            return read_json(body) if len(body) <= INLINE_BYTES else await asyncio.to_thread(read_json, body)
        except ValueError as error:
            raise Problem("bad-request", f"the body is not JSON: {error}") from None

    async def form(self) -> dict[str, str]:
        """Read and return the fields of a form; of fields with the same name, the last.

        Raises `Problem` bad-request, too-large, request-timeout.
        """
        try:
            text = (await self.body()).decode()
            self.fields = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX, errors="strict"))
        except ValueError as error:
            raise Problem("bad-request", f"the form cannot be read: {error}") from None
        return self.fields

    async def model(self, model: type[M], *, empty: bool = False) -> M:
        """Read and validate the body. With `empty`, a missing body counts as `{}`.

        Raises `Problem` as `json` does, and `Problem` invalid.
        """
        given = {} if empty and not self.request.body_exists else await self.json()
        try:
            return model.model_validate(given)
        except ValidationError as error:
            raise invalid(body_errors(error, given)) from None

    async def propose(self, entry: Entry) -> Result:
        """Commit an entry. Raises `Problem` if that is not possible, or if `apply` refuses the entry."""
        return await self._result(type(entry).__name__, self.node.propose(entry, self.server.limits.write_s))

    async def committed(self, name: str, proposing: Awaitable[Result]) -> Result:
        """Wait for a change of several proposals, counted in the metrics under `name`. Raises `Problem` if refused.

        The change continues when the client disconnects, and when this wait times out.
        """
        change = asyncio.ensure_future(proposing)
        change.add_done_callback(_retrieve_exception)
        return await self._result(name, asyncio.shield(change))

    async def _result(self, name: str, proposing: Awaitable[Result]) -> Result:
        with self.server.metrics.proposal(name) as outcome:
            try:
                async with asyncio.timeout(self.server.limits.write_s + GRACE_S):
                    result = await proposing
            except (RaftError, BadEntry, TimeoutError) as error:
                problem = problem_of_proposal(error)
                outcome.code = problem.kind
                raise problem from None
            outcome.code = result.code
        return require_accepted(result)

    async def barrier(self, why: str = CONSISTENT) -> None:
        """Wait for a commit, so that the state read next is not stale. Raises `Problem` no-quorum (detail: `why`)."""
        try:
            async with asyncio.timeout(self.server.limits.write_s + GRACE_S):
                await self.node.barrier(self.server.limits.write_s)
        except (NoQuorum, OutcomeUnknown, Overloaded, TimeoutError):
            raise Problem("no-quorum", why) from None
        except RaftStopped:
            raise Problem("stopping", "this node is stopping: ask another member") from None

    async def catch_up(self) -> None:
        """Wait until all committed entries are applied, before a write is refused because its subject is unknown here.

        A member that has just started, or was paused, is behind the others. Raises `Problem` no-quorum.
        """
        await self.barrier(
            "nothing was proposed: the subject of this request is unknown here, and there is no quorum to ask"
        )

    async def ownership(self) -> Ownership:
        """Return the placement of the present epoch; if it is not computed within `placement_s`, the latest one."""
        node = self.node
        ownership = node.ownership()
        if ownership.state.epoch != node.state().epoch:
            ownership = await node.placed(self.server.limits.placement_s)
        return ownership

    def answer(self, body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
        """Return a JSON response."""
        return self.answer_packed(to_json(body, inf_nan_mode="null"), status, headers)

    def answer_packed(self, packed: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
        """Return a JSON response whose body is already serialized."""
        return web.Response(body=packed, status=status, headers=headers, content_type=JSON)

    @property
    def _body_limit(self) -> int:
        limits = self.server.limits
        return limits.body_bytes if self.request.get(KNOWN) else limits.stranger_bytes

    def _too_large(self) -> Problem:
        limit = self._body_limit
        hint = "send a long list of tasks in several (rota apply does)" if self.request.get(KNOWN) else "sign in first"
        return Problem("too-large", f"the body is larger than {limit // 1024} KiB; {hint}", limit_bytes=limit)


async def serve(endpoint: Endpoint, context: RequestContext) -> web.StreamResponse:
    """Validate the query and call the endpoint's handler."""
    if endpoint.query is None:
        context.no_query()
        return await endpoint.handler(context)
    return await endpoint.handler(context, context.query(endpoint.query))


def _retrieve_exception(done: "asyncio.Future[Result]") -> None:
    """Retrieve the exception, which asyncio would log if the request no longer waits for the proposal."""
    if not done.cancelled():
        done.exception()


def problem_of_proposal(error: Exception) -> Problem:
    """Return the problem for a proposal that failed without a result."""
    if isinstance(error, NoQuorum):
        return Problem("no-quorum", str(error) or "nothing was proposed: there is no quorum")
    if isinstance(error, EntryTooLarge):
        return Problem(
            "too-large",
            "with all defaults filled in, this exceeds the size of a log entry (1 MB); "
            "send it in smaller pieces (a few hundred tasks each)",
        )
    if isinstance(error, Overloaded):
        return Problem("overloaded", "nothing was proposed: this node has too many pending proposals; try again")
    if isinstance(error, ChangeRefused):
        return Problem("conflict", str(error) or "another membership change is pending: try again")
    if isinstance(error, BadEntry):
        return Problem("invalid", f"nothing was proposed: the request holds {UNSTORABLE} ({error})")
    if isinstance(error, RaftStopped):
        return Problem("stopping", "nothing was proposed: this node is stopping; ask another member")
    return Problem(
        "outcome-unknown",
        "the change was proposed, not committed in time, and may yet be committed: check before you repeat the request",
    )


def require_accepted(result: Result) -> Result:
    """Return the result if the entry was accepted. Raises `Problem` otherwise."""
    if result.ok:
        return result
    kind = REFUSALS.get(result.code, "conflict")
    raise Problem(kind, result.detail or f"refused: {result.code}", code=result.code)


def quoted_names(names: Sequence[str]) -> str:
    """Return sorted names for a sentence.

    >>> quoted_names(["b", "a"])
    '"a", "b"'
    """
    return ", ".join(json.dumps(name) for name in sorted(names))


def read_json(body: bytes) -> Any:
    """Parse a body. Raises `ValueError`: not JSON, NaN or Infinity, a duplicate key, nested too deep.

    >>> read_json(b'{"a": 1}')
    {'a': 1}
    >>> read_json(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: the key 'a' occurs twice
    """
    read = from_json(body, allow_inf_nan=False)
    # Refuse duplicate keys, of which `from_json` uses the last, other parsers the first. It has checked the depth.
    json.loads(body, object_pairs_hook=_unique_keys)
    return read


def _unique_keys(pairs: list[tuple[str, Any]]) -> None:
    names: set[str] = set()
    for name, _ in pairs:
        if name in names:
            raise ValueError(f"the key {name[:100]!r} occurs twice")
        names.add(name)
