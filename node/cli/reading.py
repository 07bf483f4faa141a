"""Reads the caller's YAML and JSON. An error in it is a usage error (exit code 2)."""

from collections.abc import Callable
from typing import Any

import click

from tasks.definition import yaml_text
from tasks.definition.yaml_text import YamlUnreadable


def read_documents(what: str, text: str) -> list[Any]:
    """Return the documents in a text. Error messages call the text `what`. Raises `click.UsageError`."""
    return _read(what, text, yaml_text.documents)


def value(what: str, text: str) -> Any:
    """Return the single YAML value in an argument of the command line. Raises `click.UsageError`.

    >>> value("--param", "2026-01-01"), value("--param", "[1, x]"), value("--param", "")
    ('2026-01-01', [1, 'x'], None)
    """
    found = _read(what, text, yaml_text.yaml_documents)
    if len(found) > 1:
        raise click.UsageError(f"{what} holds {len(found)} YAML documents: give one value")
    return found[0] if found else None


def _read(what: str, text: str, read: Callable[[str], list[Any]]) -> list[Any]:
    try:
        return read(text)
    except YamlUnreadable as unreadable:
        raise click.UsageError(f"{what} {unreadable}") from unreadable
