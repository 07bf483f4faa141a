"""Where a task's backups are, by its params: what listing, verifying and restoring them needs."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from tasks.backup.kind import place_url, resolved
from tasks.secret import Reference


class _Kept(BaseModel):
    destination: str
    options: dict[str, Reference | str | int | bool | None] = {}


def kept_at(params: Mapping[str, Any], task: str, secret: Callable[[Any], str]) -> tuple[str, dict[str, Any]]:
    """The URL of a task's backups, and fsspec's options for it.

    The rest of `params` need not be right: what was backed up by rules of before is restored all the same. Raises
    `ValidationError`, and what `secret` raises.
    """
    kept = _Kept.model_validate(dict(params))
    return place_url(kept.destination, task), resolved(kept.options, secret)
