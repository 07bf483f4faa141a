"""Hostile values for every place of a request, and a client that sends raw bytes."""

import asyncio
import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from node.http.api.pages import cursor_of

PATHS: Final = (
    b"%00",
    b"%ff",
    b"\xff",
    b"%ED%A0%80",
    b"%C2%B2",
    b"a%2Fb",
    b"%2e%2e%2f%2e%2e",
    b"%0d%0aX:1",
    b"%",
    b"1" * 5000,
)
QUERIES: Final = (
    *PATHS,
    b"",
    b"-1",
    b"1e999",
    str(2**70).encode(),
    cursor_of("\ud800").encode(),
    cursor_of(1, "\ud800").encode(),
    cursor_of(1, "\0").encode(),
    cursor_of(2**70, "a").encode(),
    cursor_of(2**70).encode(),
    b"W1tb" * 250,  # 750 brackets
)
HEADERS: Final = (b"\xff", b"\xed\xa0\x80", b"\xc2\xb2", b'"\xc2\xb2"', b"9" * 5000, b"-1", b"Basic \xff", b"%00")
IDS: Final = (b"0-%b-\xc2\xb2", b"\xc2\xb2-x-1", b"%s-x-1" % (b"9" * 5000), b"1-\xff-1")
"""Further ones, for events."""

EVERYWHERE: Final = {
    b"Authorization": (b"Bearer \xff", b"Basic \xff", b"Basic /w==", b"Basic \xc2\xb2", b"\xff", b"Bearer \xc2\xb2"),
    b"Rota-Index": (b"\xff", b"\xc2\xb2", b"9" * 5000, b"1_0"),
    b"Rota-Cluster": (b"\xff", b"c-2"),
    b"Host": (b"\xff", b"[", b"a" * 5000, b"127.0.0.1:\xff", b""),
    b"Origin": (b"\xff",),
    b"Content-Type": (b"\xff", b"application/json; charset=\xff", b"application/json; charset=no-such", b"a/b/c;;;="),
    b"Content-Encoding": (b"gzip", b"deflate", b"br", b"\xff"),
    b"Expect": (b"\xff", b"100-continue, and more"),
    b"Cookie": (b"\xff=\xff",),
    b"Accept-Encoding": (b"\xff",),
    b"Range": (b"bytes=\xff",),
    b"If-Modified-Since": (b"\xff",),
}
"""Headers that are sent to every route, whether it reads them or not."""

BODIES: Final = (
    b"",
    b" ",
    b"\xff",
    b"\x00",
    b'"\xff"',
    b"\xef\xbb\xbf{}",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"[" * 200 + b"]" * 200,
    b"null",
    b"1",
    b'"text"',
    b"[]",
    b"{}",
    b"[null]",
    b"[[]]",
    b"NaN",
    b"-Infinity",
    b"1" * 5001,
    b"1e999",
    b'"\\ud800"',
    b'{"\\ud800": 1}',
    b'{"\\u0000": 1}',
)
VALUES: Final = (
    b'"\\ud800"',
    b'"\\udcff"',
    b'"\\u0000"',
    b'""',
    b'"%s"' % (b"x" * 5000),
    b"1180591620717411303424",  # 2**70
    b"18446744073709551615",
    b"9223372036854775808",
    b"253402300799999999",  # microseconds: the last one of the calendar
    b"-1",
    b"1" + b"0" * 4299,  # as long as a number may be that is read at all
    b"1" + b"0" * 5000,
    b"1e308",
    b"1e999",
    b"NaN",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b"[" * 60 + b"]" * 60,
    b'"9999-12-31T23:59:59-14:00"',
    b'"9999-01-01T00:00:00.000001Z"',
    b'"0001-01-01T00:00:00+14:00"',
    b'{"at": "9999-12-31T23:59:59-14:00"}',
)
"""Replacements of any value in a JSON body."""

_MARK: Final = "here stands what is hostile"


def spoilt(body: Any) -> Iterator[bytes]:
    """`body` as JSON, with each value replaced by each of `VALUES`, and each name by an unknown one."""
    for place in _places(body, ()):
        marked = json.dumps(_with(body, place, _MARK)).encode()
        for value in VALUES:
            yield marked.replace(json.dumps(_MARK).encode(), value)


def _places(body: Any, above: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    inner = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for name, value in inner:
        yield (*above, name)
        yield from _places(value, (*above, name))


def _with(body: Any, place: tuple[str | int, ...], value: Any) -> Any:
    made = copy.deepcopy(body)
    at = made
    for part in place[:-1]:
        at = at[part]
    at[place[-1]] = value
    return made


@dataclass(frozen=True)
class Heard:
    """An answer; `body` is None for an endless stream."""

    status: int
    headers: dict[str, str]
    body: bytes | None


async def say(
    port: int, method: str, target: bytes, headers: dict[bytes, bytes], body: bytes = b"", *, chunked: bool = False
) -> Heard:
    """Send a raw request on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        lines = {b"Host": b"127.0.0.1", **headers, b"Connection": b"close"}
        if body and not chunked:
            lines[b"Content-Length"] = b"%d" % len(body)
        head = b"".join(b"%b: %b\r\n" % line for line in lines.items())
        writer.write(b"%b %b HTTP/1.1\r\n%b\r\n%b" % (method.encode(), target, head, body))
        first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        shown = {name.title(): value for name, _, value in (line.partition(": ") for line in rest if line)}
        endless = shown.get("Content-Type") == "text/event-stream"
        return Heard(int(first.split()[1]), shown, None if endless else await reader.read())
    finally:
        writer.close()
