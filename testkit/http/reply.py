"""A response of the API, as tests read it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass
class Reply:
    """An answer, read; `json` is its body, None where that is no JSON."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    json: Any

    @property
    def problem(self) -> str:
        """The kind of problem, as the last part of its type."""
        assert self.headers["Content-Type"] == "application/problem+json", self.body
        assert {"type", "title", "status", "detail"} <= self.json.keys()
        assert self.json["status"] == self.status
        return str(self.json["type"]).rpartition(":")[2]

    @property
    def fields(self) -> dict[str, str]:
        """What a problem document says of each field."""
        return {error["field"]: error["message"] for error in self.json["errors"]}

    @property
    def index(self) -> int:
        """The index that the answering member had applied."""
        return int(self.headers["Rota-Index"])

    @property
    def epoch(self) -> int:
        """The epoch there."""
        return int(self.headers["Rota-Epoch"])


def is_told(status: int, target: str, token: str | None) -> bool:
    """Whether an answer must tell the index: to whoever is known. `token`: the node's; None: all that reach it are."""
    if token is None:
        return status not in (400, 421)  # what is no request, or for another host, is of nobody
    return status not in (400, 401, 404, 405, 421, 429) and not target.startswith(("/healthz", "/readyz"))
