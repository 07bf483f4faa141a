"""The ledger's values: which batches a task has put into a table, and what each brought."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, order=True)
class Mark:
    """A batch that was committed, and the token of the attempt that did."""

    batch: int
    token: int

    @property
    def name(self) -> str:
        """What its folder and its page are called."""
        return f"{self.batch:08d}-{self.token}"


def named(name: str) -> Mark | None:
    """The mark of that name; None if it is no mark's.

    >>> named("00000007-42"), named("part-7")
    (Mark(batch=7, token=42), None)
    """
    batch, _, token = name.partition("-")
    return Mark(int(batch), int(token)) if batch.isdecimal() and token.isdecimal() else None


@dataclass(frozen=True)
class Page:
    """A page of the ledger. `files` are `(path, size in bytes)`."""

    mark: Mark
    previous: Mark | None
    run_id: str
    rows: int
    skipped: int
    files: tuple[tuple[str, int], ...]


def written(page: Page) -> str:
    """A page as it is kept."""
    return json.dumps(asdict(page))


def read(kept: bytes) -> Page:
    """The page that was kept. Raises `ValueError`, `KeyError` or `TypeError` for what is none."""
    value = json.loads(kept)
    previous = value["previous"]
    return Page(
        mark=Mark(**value["mark"]),
        previous=None if previous is None else Mark(**previous),
        run_id=value["run_id"],
        rows=value["rows"],
        skipped=value["skipped"],
        files=tuple((path, size) for path, size in value["files"]),
    )
