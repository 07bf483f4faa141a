"""The pages of HTTP APIs, from a real server on loopback. Without Spark."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from spark_tasks.contracts.source import SourceUnfit
from spark_tasks.http.client import ApiAway, ApiClient, ApiReadStopped
from spark_tasks.http.pages import pages_of
from spark_tasks.http.params import HttpRows
from testkit.servers.api_server import Request, Response, api_server, as_json

pytestmark = pytest.mark.integration

Answer = Callable[[Request], Response]


def _query(request: Request) -> dict[str, str]:
    pairs = (part.partition("=") for part in request.target.partition("?")[2].split("&") if part)
    return {name: value for name, _, value in pairs}


@contextmanager
def _api(answer: Answer, headers: Mapping[str, str] | None = None, **more: Any) -> Iterator[tuple[ApiClient, HttpRows]]:
    with api_server(answer) as url:
        params = HttpRows.model_validate({"type": "http", "url": f"{url}/v1/rows?x=1", "columns": {"id": "int"}} | more)
        plain = {name: value if isinstance(value, str) else "hush" for name, value in params.parameters.items()}
        yield ApiClient(params, headers or {}, plain), params


def _ids(answer: Answer, **more: Any) -> list[list[int]]:
    with _api(answer, **more) as (client, params):
        return [[one["id"] for one in page.records] for page in pages_of(client, params, {})]


ROWS = [{"id": number} for number in range(7)]


def test_pages_by_number_end_with_an_empty_one() -> None:
    def answer(request: Request) -> Response:
        page = int(_query(request)["page"])
        assert _query(request)["x"] == "1"
        return as_json({"data": {"items": ROWS[3 * page - 3 : 3 * page]}})

    assert _ids(answer, records="data.items", pages={"parameter": "page"}) == [[0, 1, 2], [3, 4, 5], [6], []]


def test_pages_by_offset_and_by_token() -> None:
    def by_offset(request: Request) -> Response:
        at = int(_query(request)["at"])
        return as_json(ROWS[at : at + 4])

    assert _ids(by_offset, pages={"parameter": "at", "by": "offset"}) == [[0, 1, 2, 3], [4, 5, 6], []]

    def by_token(request: Request) -> Response:
        at = int(_query(request).get("token", "0"))
        return as_json({"rows": ROWS[at : at + 5], "meta": {"more": at + 5 if at + 5 < len(ROWS) else None}})

    pages = {"parameter": "token", "by": "token", "token": "meta.more"}
    assert _ids(by_token, records="rows", pages=pages) == [[0, 1, 2, 3, 4], [5, 6]]


@pytest.mark.parametrize("relative", [True, False])
def test_the_server_says_the_next_page_in_a_header_or_in_the_body(relative: bool) -> None:
    def link(request: Request) -> str | None:
        page = int(_query(request).get("p", "0")) + 1
        where = "" if relative else f"http://{request.headers['Host']}"
        return f"{where}/v1/rows?p={page}" if page < 3 else None

    def in_header(request: Request) -> Response:
        assert _query(request)["key"] == "hush"
        found = link(request)
        records = ROWS[:2] if found is None else [{"id": int(_query(request).get("p", "0"))}]
        return (
            as_json(records)
            if found is None
            else as_json(records, Link=f'</first>; rel="first", <{found}>; rel="next"')
        )

    key = {"key": {"secret": "api_key"}}
    assert _ids(in_header, parameters=key, pages={"next": "link-header"}) == [[0], [1], [0, 1]]

    def in_body(request: Request) -> Response:
        return as_json({"items": [{"id": int(_query(request).get("p", "0"))}], "paging": {"next": link(request)}})

    assert _ids(in_body, records="items", pages={"next": "paging.next"}) == [[0], [1], [2]]


@pytest.mark.parametrize(
    "link",
    [
        "http://169.254.169.254/latest/meta-data",
        "//evil.internal/x",
        "https://127.0.0.1/x",
        "file:///etc/passwd",
        "http://127.0.0.1:1/x",
        "http://user@127.0.0.1/x",
    ],
)
def test_a_link_or_a_redirect_to_another_server_is_not_followed(link: str) -> None:
    asked: list[str] = []

    def in_body(request: Request) -> Response:
        asked.append(request.target)
        return as_json({"items": [{"id": 1}], "next": link})

    with pytest.raises(SourceUnfit, match="the headers of this task are not sent to another server"):
        _ids(in_body, records="items", pages={"next": "next"})
    with pytest.raises(SourceUnfit, match=r"a redirect \(302\) leads to"):
        _ids(lambda request: Response(302, headers={"Location": link, "Content-Length": "0"}))
    assert len(asked) == 1


def test_a_redirect_on_the_same_server_is_followed_with_an_end() -> None:
    def answer(request: Request) -> Response:
        if request.path == "/v1/rows":
            return Response(307, headers={"Location": "/v2/rows", "Content-Length": "0"})
        return as_json(ROWS)

    assert _ids(answer) == [[0, 1, 2, 3, 4, 5, 6]]
    with pytest.raises(SourceUnfit, match="more than 5 redirects"):
        _ids(lambda request: Response(302, headers={"Location": "/v1/rows", "Content-Length": "0"}))


def test_an_overloaded_server_is_asked_again_after_as_long_as_it_says() -> None:
    times: list[float] = []

    def answer(request: Request) -> Response:
        times.append(time.monotonic())
        if len(times) == 1:
            return as_json({}, 429, Retry_After="1")
        if len(times) == 2:
            return as_json({}, 503, Retry_After="0")
        return as_json(ROWS)

    assert _ids(answer) == [[0, 1, 2, 3, 4, 5, 6]]
    assert times[1] - times[0] >= 1
    with pytest.raises(ApiAway, match="the server answers 429; tried 1 times"):
        _ids(lambda request: as_json({}, 429, Retry_After="86400"))
    with pytest.raises(ApiAway, match="the server answers 500; tried 2 times"):
        _ids(lambda request: as_json({}, 500, Retry_After="0"), tries=2)
    with pytest.raises(ApiAway, match=r"refuses this task's credentials \(403\)"):
        _ids(lambda request: as_json({}, 403))
    with pytest.raises(SourceUnfit, match='the server answers 404: "gone"'):
        _ids(lambda request: as_json("gone", 404))


def test_a_server_that_is_not_there_is_away_and_a_stop_ends_the_wait() -> None:
    params = HttpRows.model_validate(
        {"type": "http", "url": "http://127.0.0.1:1/?key=hush", "columns": {"id": "int"}, "tries": 1}
    )
    with pytest.raises(ApiAway, match="tried 1 times") as raised:
        ApiClient(params, {}, {}).get(params.url)
    assert "hush" not in str(raised.value)
    many = params.model_copy(update={"tries": 20})
    with pytest.raises(ApiReadStopped):
        ApiClient(many, {}, {}, stopped=lambda: True).get(many.url)


def test_pages_that_do_not_end_are_noticed() -> None:
    with pytest.raises(SourceUnfit, match="page 2 is the same as the one before"):
        _ids(lambda request: as_json(ROWS), pages={"parameter": "page"})

    def circle(request: Request) -> Response:
        page = int(_query(request).get("p", "0"))
        return as_json({"rows": [{"id": page}], "next": f"/v1/rows?p={(page + 1) % 3}"})

    with pytest.raises(SourceUnfit, match="page 4 leads back to an earlier page"):
        _ids(circle, records="rows", pages={"next": "next"})

    def endless(request: Request) -> Response:
        return as_json([{"id": int(_query(request)["page"])}])

    with pytest.raises(SourceUnfit, match="more pages than `max_pages`, 5"):
        _ids(endless, pages={"parameter": "page"}, max_pages=5)
    with pytest.raises(SourceUnfit, match="the pages have more than `max_bytes`, 30 bytes"):
        _ids(endless, pages={"parameter": "page"}, max_bytes=30)


def test_what_is_no_list_of_records_is_named() -> None:
    def html(request: Request) -> Response:
        return Response(200, iter([b"<html>\n <b>Down</b>"]), {"Content-Type": "text/html"})

    with pytest.raises(SourceUnfit, match=r"page 1 is no JSON \(text/html: .*\): '<html> <b>Down</b>'"):
        _ids(html)
    with pytest.raises(SourceUnfit, match=r"page 1: `records`, data.items, is no list; the body has data, meta"):
        _ids(lambda request: as_json({"data": {}, "meta": 1}), records="data.items")
    with pytest.raises(SourceUnfit, match="page 1: the body is no list; the body has a"):
        _ids(lambda request: as_json({"a": 1}))
    with pytest.raises(SourceUnfit, match="page 1 is no JSON"):
        _ids(lambda request: Response(200, iter([b"[NaN]"])))
    with pytest.raises(SourceUnfit, match="page 1 is no JSON"):
        _ids(lambda request: Response(200, iter([b"[" * 200_000])))


def test_headers_go_with_each_request_and_packed_pages_are_read() -> None:
    import gzip

    def answer(request: Request) -> Response:
        assert request.headers["Authorization"] == "Bearer hush"
        return Response(200, iter([gzip.compress(json.dumps(ROWS).encode())]), {"Content-Encoding": "gzip"})

    with _api(answer, {"Authorization": "Bearer hush"}) as (client, params):
        assert [len(page.records) for page in pages_of(client, params, {})] == [7]
