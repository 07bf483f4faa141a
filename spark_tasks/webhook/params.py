"""The params of the sink `webhook`."""

import re
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from spark_tasks.storage.stored import StoreOptions
from spark_tasks.storage.url import table_url
from tasks.access import addresses, check_options
from tasks.places.place import local_path
from tasks.reach import Reach, remote
from tasks.secret import Reference

VERSIONS: Final = "versions"
OUTBOX: Final = "outbox"
FOLDERS: Final = (VERSIONS, OUTBOX)
"""The folders of a task within its ledger."""

_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OURS: Final = re.compile(
    r"webhook-.*|idempotency-key|content-.*|host|connection|transfer-encoding|te|trailer|upgrade|expect|accept-encoding",
    re.IGNORECASE,
)
"""Headers that the sink itself sets, or that would change how a request is interpreted."""

_SECRET: Final = re.compile(r"authorization|proxy-authorization|cookie", re.IGNORECASE)


def _http_url(url: str) -> str:
    if not url.startswith(("http://", "https://")) or not re.fullmatch(r"[\x21-\x7e]+", url) or "#" in url:
        raise ValueError("the URL begins with http:// or https://, and has no spaces and no fragment")
    if "@" in urlsplit(url).netloc:
        raise ValueError(
            "the URL must name no user, because it is replicated and shown: give `headers` with a reference to a secret"
        )
    addresses(url, {})
    if urlsplit(url).port == 0:  # raises `ValueError` itself for a port that is too great
        raise ValueError("the port is a number from 1 to 65535")
    return url


def _ledger_url(url: str) -> str:
    return table_url(url, what="a ledger")


class Webhook(BaseModel):
    """An HTTP server to which the rows are posted. A ledger keeps which requests the server has acknowledged."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["webhook"] = Field(description="The type of the sink")
    url: Annotated[str, Field(max_length=4096), AfterValidator(_http_url)] = Field(
        description="Where the rows are posted. Redirects are not followed", examples=["https://hooks.internal/orders"]
    )
    headers: dict[str, Reference | str] = Field(
        default={}, max_length=32, description="More headers; secrets are given as references"
    )
    secret: Reference | None = Field(
        default=None,
        description="A reference to the secret that signs the requests as Standard Webhooks says: `whsec_` and 24 to "
        "64 bytes in base64. Two of them with a space between, for a rotation. null: requests are not signed",
    )
    batch_rows: int = Field(
        default=1000, ge=1, le=100_000, description="The most rows in a request. One of 4 MiB has no further rows"
    )
    timeout_s: float = Field(default=30, gt=0, le=600, description="How long a request may take, in seconds")
    ledger: Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_ledger_url)] = Field(
        description="Where the task's ledger is, and batches wait until they are delivered: a folder, on storage that "
        "every member that may run the task has at this path, or s3://BUCKET/PREFIX. Each task has a folder of its "
        "own in it",
        examples=["/data/hooks", "s3://lake/hooks"],
    )
    options: StoreOptions = Field(
        default={}, description="fsspec's options for the ledger; secrets are given as references"
    )
    shared: bool = Field(
        default=False, description="All members that may run the task see the same folder at the ledger's path"
    )

    @model_validator(mode="after")
    def _known_options(self) -> "Webhook":
        check_options(self.ledger, self.options)
        return self

    @model_validator(mode="after")
    def _fit_headers(self) -> "Webhook":
        for name, value in self.headers.items():
            if not _NAME.fullmatch(name) or _OURS.fullmatch(name):
                raise ValueError(f"{name!r} cannot be set: it is no header, or the sink sets it itself")
            if isinstance(value, str) and _SECRET.fullmatch(name):
                raise ValueError(f"the header {name} is a secret: give a reference to it")
            if isinstance(value, str):
                check_header(name, value)
        return self

    @property
    def replaces(self) -> bool:
        """Whether a batch replaces all earlier rows, so that the source has to be read whole."""
        return False

    @property
    def adds(self) -> bool:
        """Whether a row that is written twice is posted twice."""
        return True

    @property
    def on_own_disk(self) -> bool:
        """Whether the ledger is on the member's own disk, where other members do not see it."""
        return local_path(self.ledger) is not None and not self.shared

    def reach(self, field: str) -> Reach:
        """Return the server that `field` of the params names."""
        return Reach(field, "destination", self.url, addresses=addresses(self.url, {}))

    def ledger_reach(self, field: str) -> Reach:
        """Return the folder or bucket of the ledger."""
        path = local_path(self.ledger)
        if path is None:
            return remote(f"{field}.ledger", "destination", self.ledger, self.options)
        return Reach(
            f"{field}.ledger", "destination", self.ledger, str(path), inner=tuple(f"*/{name}" for name in FOLDERS)
        )


def check_header(name: str, value: str) -> None:
    """Raise `ValueError`, without showing the value, unless `value` can be sent in one header."""
    if not re.fullmatch(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?", value):
        raise ValueError(f"the value of the header {name} has characters other than printable ASCII, or spaces around")
