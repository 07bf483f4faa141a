"""The pages of an HTTP API, one after another, each once."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from spark_tasks.contracts.source import SourceUnfit
from spark_tasks.http.client import ApiClient, ApiReply, with_parameters, without_query
from spark_tasks.http.params import LINK_HEADER, HttpRows
from spark_tasks.http.records import parse_json, within

_LINK: Final = re.compile(r"<([^<>]*)>((?:\s*;\s*[^\s=;,]+(?:\s*=\s*(?:\"[^\"]*\"|[^\s\",;]*))?)*)")
_REL: Final = re.compile(r"rel\s*=\s*(?:\"([^\"]*)\"|([^\s\";,]+))", re.IGNORECASE)


@dataclass(frozen=True)
class ApiPage:
    """A page: its number from 1, its URL without the query, its records, and its size in bytes."""

    number: int
    shown: str
    records: list[Any]
    size_bytes: int


def pages_of(client: ApiClient, params: HttpRows, more: Mapping[str, str]) -> Iterator[ApiPage]:
    """Request the pages one by one, and yield them; `more` are parameters of the first request.

    Raises `SourceUnfit` for a page that is no JSON, lacks the list of records or links to an earlier page, and for too
    many pages or bytes. Also raises the errors of `ApiClient.get`.
    """
    url, seen, before, taken, size_bytes = _first(client, params, more), set[bytes](), b"", 0, 0
    for number in range(1, params.max_pages + 1):
        answer = client.get(url)
        body, records = _read(answer, params, number)
        size_bytes += len(answer.body)
        if size_bytes > params.max_bytes:
            raise SourceUnfit(f"{params.url}: the pages have more than `max_bytes`, {params.max_bytes} bytes")
        this = blake2b(repr(records).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if records and this == before and params.pages is not None:
            raise SourceUnfit(
                f"{params.url}: page {number} is the same as the one before: the server does not go on. Does it know "
                "the parameter that `pages` names?"
            )
        before = this
        yield ApiPage(number, without_query(answer.url), records, len(answer.body))
        taken += len(records)
        following = _next(client, params, answer, body, (number, len(records), taken))
        if following is None:
            return
        mark = blake2b(following.encode(), digest_size=16).digest()
        if mark in seen or following == url:
            raise SourceUnfit(f"{params.url}: page {number} leads back to an earlier page: the pages do not end")
        seen.add(mark)
        url = following
    raise SourceUnfit(f"{params.url}: there are more pages than `max_pages`, {params.max_pages}")


def _first(client: ApiClient, params: HttpRows, more: Mapping[str, str]) -> str:
    pages = params.pages
    url = client.first(more)
    if pages is None or pages.parameter is None or pages.by == "token":
        return url
    return with_parameters(url, {pages.parameter: str(_least(params))})


def _least(params: HttpRows) -> int:
    assert params.pages is not None
    if params.pages.first is not None:
        return params.pages.first
    return 1 if params.pages.by == "page" else 0


def _read(answer: ApiReply, params: HttpRows, number: int) -> tuple[Any, list[Any]]:
    try:
        body = parse_json(answer.body)
    except ValueError as error:
        start = " ".join(answer.body[:200].decode("utf-8", "replace").split())
        kind = answer.headers.get("content-type", "no type")
        raise SourceUnfit(
            f"{without_query(answer.url)}: page {number} is no JSON ({kind}: {error}): {start!r}"
        ) from None
    records = within(body, params.records)
    if not isinstance(records, list):
        where = "the body" if params.records is None else f"`records`, {params.records},"
        has = f"; the body has {', '.join(list(body)[:20])}" if isinstance(body, dict) else ""
        raise SourceUnfit(f"{without_query(answer.url)}: page {number}: {where} is no list{has}")
    return body, records


def _next(client: ApiClient, params: HttpRows, answer: ApiReply, body: Any, at: tuple[int, int, int]) -> str | None:
    """Return the URL of the next page, or None. `at` has this page's number, its number of records, and the number of
    records of all pages so far.
    """
    pages, (number, here, taken) = params.pages, at
    if pages is None:
        return None
    if pages.next is not None:
        link = next_link(answer.headers.get("link", "")) if pages.next == LINK_HEADER else within(body, pages.next)
        if link is None or link == "":
            return None
        if not isinstance(link, str):
            raise SourceUnfit(f"{params.url}: page {number}: {pages.next} is no URL")
        return client.follow(link, answer.url, f"the link to page {number + 1}")
    assert pages.parameter is not None
    if pages.by == "token":
        token = within(body, pages.token)
        if token is None or token == "" or token is False:
            return None
        if not isinstance(token, str | int):
            raise SourceUnfit(f"{params.url}: page {number}: {pages.token} is no token")
        return with_parameters(answer.url, {pages.parameter: str(token)})
    if not here:
        return None
    following = _least(params) + (number if pages.by == "page" else taken)
    return with_parameters(answer.url, {pages.parameter: str(following)})


def next_link(header: str) -> str | None:
    """Return the target of the link with the relation `next` in a Link header (RFC 8288); None if there is no such
    link.

    >>> next_link('<https://a/?p=1>; rel="prev", <https://a/?p=3>; rel="next last"; title="a, b"')
    'https://a/?p=3'
    >>> next_link("<https://a/?p=9>; rel=last")
    """
    for target, about in _LINK.findall(header):
        rel = _REL.search(about)
        if rel is not None and "next" in (rel[1] or rel[2] or "").lower().split():
            return str(target)
    return None
