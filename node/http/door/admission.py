"""The checks of a request before its handler runs (sender, origin, body), and the waits that the request asks for."""

from time import monotonic
from typing import Final

from aiohttp import HttpVersion11, web

from node.http.door.authentication import check_form, identify, is_known_to_the_browser
from node.http.door.endpoint import OF_BROWSERS, Endpoint
from node.http.door.header_checks import FORM, JSON, check_content_type, check_encoding, check_origin, tokens_equal
from node.http.door.problems import Problem, invalid_field
from node.http.door.request_context import COMMON_QUERY, RequestContext
from node.peer.protocol import CLUSTER, MEMBER
from node.peer.signing import SCHEME, PeerRequest, SignatureRejected, digest, signing_key

INDEX: Final = "Rota-Index"
"""The header with the last applied index; in a request, the index to wait for."""

PEER_REQUEST_MAC: Final = web.RequestKey("peer_request_mac", str)
"""The key under which a member's request keeps its signature, which the signature of the response covers."""

_INDEX_MAX: Final = 2**63 - 1


async def admit(endpoint: Endpoint, context: RequestContext) -> None:
    """Check a request to `endpoint`, then wait if the request asks for it (`Rota-Index`, `consistent`).

    Raises `Problem`.
    """
    request = context.request
    peer_request = None
    if endpoint.access == "member":
        peer_request = _check_signature(endpoint, context)
        context.welcome()
        _check_cluster(context)
    else:
        identify(endpoint, context)
    check_encoding(request)
    if endpoint.access != "anyone":
        check_origin(
            request.headers,
            context.node.settings.hosts,
            reads=endpoint.method == "GET",
            known=is_known_to_the_browser(context),
            page=endpoint.access == "page" or endpoint.access in OF_BROWSERS,
        )
    if endpoint.method != "GET":
        check_content_type(request, FORM if endpoint.access in OF_BROWSERS else JSON)
    if "Expect" in request.headers and request.version >= HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # aiohttp must not count this as the beginning of the response
    if peer_request is not None and not tokens_equal(digest(await context.body()), peer_request.body_digest):
        raise Problem("unauthorized", "the body differs from the one that was signed")
    if endpoint.access in OF_BROWSERS and endpoint.method != "GET":
        await check_form(context)
    if INDEX in request.headers and endpoint.access != "anyone":
        await _wait_for_index(context)
    if COMMON_QUERY in request.query:
        if not endpoint.reads:
            raise invalid_field(COMMON_QUERY, "there is no such parameter here", "the query")
        match request.query[COMMON_QUERY].lower():
            case "true" | "1":
                await context.barrier()
            case "false" | "0" | "":
                pass
            case _:
                raise invalid_field(COMMON_QUERY, "must be true or false", "the query")


def _check_signature(endpoint: Endpoint, context: RequestContext) -> PeerRequest:
    request = context.request
    try:
        peer_request = context.server.verifier.check(
            request.headers.get("Authorization"),
            request.method,
            request.raw_path,
            context.header(CLUSTER) or "",
            monotonic(),
            joining=endpoint.path == "/peer/members",
        )
    except SignatureRejected as rejected:
        raise Problem("unauthorized", str(rejected), headers={"WWW-Authenticate": SCHEME}) from None
    request[PEER_REQUEST_MAC] = peer_request.mac(signing_key(context.node.settings.secret))
    return peer_request


def _check_cluster(context: RequestContext) -> None:
    """Refuse a request of a member of another cluster, because it was sent to this address by mistake."""
    sender = f"{context.header(MEMBER) or 'a node'} at {context.request.remote}"
    if (why := context.server.peers.cluster.stranger(sender, context.header(CLUSTER) or "")) is not None:
        raise Problem("other-cluster", why)


async def _wait_for_index(context: RequestContext) -> None:
    text = context.request.headers[INDEX].strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= _INDEX_MAX):
        raise Problem("bad-request", f"{INDEX} must be a whole number from 0 to 2^63 - 1, from an earlier response")
    index, limit_s = int(text), context.server.limits.index_s
    if context.state.index >= index or await context.node.wait_index(index, limit_s):
        return
    at = context.state.index
    detail = f"index {index} was not applied here within {limit_s:g} s (applied: {at}): retry, or ask another member"
    raise Problem("behind", detail, index=at)
