"""The params of the source `http`."""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from spark_tasks.contracts.names import ColumnName
from tasks.access import addresses
from tasks.reach import Reach
from tasks.secret import Reference

LINK_HEADER: Final = "link-header"

_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_TEXT: Final = re.compile(r"[\x20-\x7e\t]*")
_OURS: Final = frozenset("accept-encoding connection content-length host te trailer transfer-encoding upgrade".split())
_SECRET: Final = frozenset("authorization cookie proxy-authorization x-api-key".split())

_KIND: Final = re.compile(
    r"string|boolean|int|bigint|double|date|timestamp|epoch_s|epoch_ms|json|decimal\((\d{1,2}),(\d{1,2})\)"
)


def _url(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("the URL begins with http:// or https://")
    if urlsplit(url).fragment or "@" in urlsplit(url).netloc:
        raise ValueError("the URL names no user, no password and no fragment: give secrets in `headers` or `bearer`")
    if not re.fullmatch(r"[\x21-\x7e]+", url):
        raise ValueError("the URL has only printable ASCII characters: encode others by %")
    addresses(url, {})
    return url


def _kind(text: str) -> str:
    """Raise `ValueError` unless `text` is a type that a column may have."""
    match = _KIND.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not a type: use string, boolean, int, bigint, double, decimal(PRECISION,SCALE), date, "
            "timestamp, epoch_s, epoch_ms or json"
        )
    if match[1] is not None and not (1 <= int(match[1]) <= 38 and int(match[2]) <= int(match[1])):
        raise ValueError(f"{text!r}: a decimal has 1 to 38 digits, of which the scale counts some")
    return text


def _path(text: str) -> str:
    if not all(text.split(".")):
        raise ValueError(f"{text!r} is not a path such as data.items")
    return text


def header_text(name: str, value: str) -> str:
    """Raise `ValueError`, without showing the value, unless `value` can be the value of a header."""
    if not _TEXT.fullmatch(value):
        raise ValueError(f"the value of the header {name} has characters that no header may have")
    return value


FieldPath = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_path)]


class HttpPages(BaseModel):
    """How the next page is asked for. Give `next` or `parameter`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    next: FieldPath | None = Field(
        default=None,
        description="Where a page says the URL of the next one: `link-header`, or a path in the body. The last page "
        "says none. It must be at the same host as `url`",
        examples=["link-header", "paging.next"],
    )
    parameter: str | None = Field(
        default=None, min_length=1, max_length=100, description="The query's parameter that says which page is wanted"
    )
    by: Literal["page", "offset", "token"] = Field(
        default="page",
        description="What `parameter` takes. page: the page's number. offset: the number of records before it. token: "
        "what the page before says in `token`. Of pages and offsets, an empty page is the last",
    )
    token: FieldPath | None = Field(
        default=None, description="The path in the body of the token for the next page, which the last one lacks"
    )
    first: int | None = Field(
        default=None, ge=0, description="The number of the first page, or the first offset; null: 1, and 0"
    )

    @model_validator(mode="after")
    def _one_way(self) -> "HttpPages":
        if (self.next is None) == (self.parameter is None):
            raise ValueError("give either `next` or `parameter`")
        if (self.token is not None) != (self.parameter is not None and self.by == "token"):
            raise ValueError("`token` is needed for `by: token`, and for nothing else")
        if self.first is not None and (self.parameter is None or self.by == "token"):
            raise ValueError("`first` is for `by: page` and `by: offset`")
        return self


class HttpRows(BaseModel):
    """The records of an HTTP API that answers GET with JSON, page by page."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["http"] = Field(description="The type of the source")
    url: Annotated[str, Field(max_length=4096), AfterValidator(_url)] = Field(
        description="The URL of the first page, without a secret", examples=["https://api.internal/v1/orders"]
    )
    headers: dict[str, Reference | str] = Field(
        default={}, max_length=50, description="Headers of each request; secrets are given as references"
    )
    bearer: Reference | None = Field(
        default=None, description="A reference to a token, which is sent as `Authorization: Bearer TOKEN`"
    )
    parameters: dict[str, Reference | str] = Field(
        default={},
        max_length=50,
        description="Parameters that are added to the URL's query, such as the size of a page; secrets are given as "
        "references",
    )
    records: FieldPath | None = Field(
        default=None,
        description="The path in the body of the list of records; null: the body is the list",
        examples=["data.items"],
    )
    columns: dict[ColumnName, Annotated[str, AfterValidator(_kind)]] = Field(
        min_length=1,
        max_length=1000,
        description="The columns and their types: string, boolean, int, bigint, double, decimal(PRECISION,SCALE), "
        "date, timestamp (ISO 8601; without a zone in UTC), epoch_s and epoch_ms (numbers that become timestamps), and "
        "json (any value, as text). A field that is missing is null; one that is not named is left out",
        examples=[{"id": "bigint", "amount": "decimal(12,2)", "updated_at": "timestamp", "lines": "json"}],
    )
    pages: HttpPages | None = Field(default=None, description="How the next page is asked for; null: there is one page")
    keys: list[ColumnName] = Field(
        default=[],
        max_length=32,
        description="The columns that name a record. One that comes on several pages, because the data changed between "
        "them, is taken once, with the greatest cursor, else as it came last",
    )
    timeout_s: float = Field(default=60, gt=0, le=3600, description="How long to wait for an answer to begin or go on")
    tries: int = Field(
        default=6,
        ge=1,
        le=20,
        description="How often a page is asked for if the server does not answer, is overloaded (429) or fails (5xx). "
        "The waits are those that `Retry-After` says, else 1 s, 2 s, 4 s and so on, 60 s at most",
    )
    max_pages: int = Field(default=10_000, ge=1, le=1_000_000, description="With more pages in a batch, the run fails")
    max_bytes: int = Field(
        default=2**30, ge=1, description="With more bytes in all pages of a batch, as they are unpacked, the run fails"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> "HttpRows":
        for name, value in self.headers.items():
            lower = name.lower()
            if not _TOKEN.fullmatch(name) or lower in _OURS:
                raise ValueError(f"{name!r} is not a header that a task may set")
            if isinstance(value, str):
                header_text(name, value)
                if lower in _SECRET:
                    raise ValueError(f'the header {name} holds a secret: give a reference, as {{"secret": NAME}}')
            if lower == "authorization" and self.bearer is not None:
                raise ValueError("give either the header Authorization or `bearer`")
        if missing := [key for key in self.keys if key not in self.columns]:
            raise ValueError(f"`keys` names {', '.join(missing)}, which `columns` does not have")
        return self

    @property
    def origin(self) -> str | None:
        """The data that a cursor belongs to, in words. It lacks the host, because the API may have moved to another
        server.
        """
        return f"the API at {urlsplit(self.url).path or '/'}"

    @property
    def on_own_disk(self) -> bool:
        """Whether the rows are on the member's own disk, so that another member would read other rows."""
        return False

    def addresses(self) -> tuple[str, ...]:
        """Return the server's address, in the form that `tasks.access.check_address` accepts."""
        return addresses(self.url, {})

    def reach(self, field: str) -> Reach:
        """Return the server that `field` of the params names."""
        return Reach(field, "source", self.url, addresses=self.addresses())


CURSOR_KINDS: Final[Mapping[str, bool]] = {
    "timestamp": True,
    "epoch_s": True,
    "epoch_ms": True,
    "date": True,
    "int": False,
    "bigint": False,
    "string": False,
}
"""Types that a cursor may have, and whether they are times."""
