"""The location of a task's backups, from its params: for listing, verifying and restoring them."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from tasks.backup.params import place_url
from tasks.secret import Reference


class _Destination(BaseModel):
    destination: str
    options: dict[str, Reference | str | int | bool | None] = {}


def backup_location(params: Mapping[str, Any], task: str) -> tuple[str, dict[str, Any]]:
    """The URL of a task's backups, and fsspec's options for it, with references to secrets as they are.

    The other params need not be valid, so that backups made under older rules can be restored. Raises
    `ValidationError`.
    """
    found = _Destination.model_validate(dict(params))
    return place_url(found.destination, task), dict(found.options)
