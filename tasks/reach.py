"""The paths and hosts that a task's params name, and which of them a node would refuse (pure).

Paths are compared as text. Links are followed, and access is decided, where the work is done (`tasks.file_guard`).
"""

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from tasks.access import Access, AccessRefused, Use, addresses, check_address, check_command, check_path

_WHERE: Final = frozenset({"endpoint_url", "account_name", "account_host", "port"})
"""fsspec's options that name the address of a file system."""


class Reach(NamedTuple):
    """A field of params, such as `source`, that names a `path` on the node, or servers and buckets at `addresses`."""

    #: The field's name, such as `source`.
    field: str
    #: Whether the field names a source or a destination.
    use: Use
    #: The field's text.
    named: str
    #: The path of a file or folder on the node; None: the field names a remote system.
    path: str | None = None
    #: The addresses of the remote system, in the form of `tasks.access.addresses`.
    addresses: tuple[str, ...] = ()
    #: Folders in `path` that may be links to other folders, as paths relative to it.
    inner: tuple[str, ...] = ()
    #: Whether `path` is a file beside which other files are created, such as SQLite's journal.
    beside: bool = False
    #: Whether links in the folder are followed, to anywhere that the node allows.
    links: bool = False
    #: Whether a folder that is created at `path` may be used by its owner only.
    private: bool = False
    #: Whether the field names a program to run.
    command: bool = False


def remote(field: str, use: Use, url: str, options: Mapping[str, Any]) -> Reach:
    """Return the `Reach` of an fsspec URL. Its `addresses` are empty if a secret or an invalid URL hides them.

    >>> remote("destination", "destination", "s3://backups/rota", {"key": object()}).addresses
    ('s3://backups',)
    >>> remote("destination", "destination", "s3://backups", {"endpoint_url": object()}).addresses
    ()
    """
    if any(
        name in _WHERE and value is not None and not isinstance(value, str | int) for name, value in options.items()
    ):
        return Reach(field, use, url)
    try:
        return Reach(field, use, url, addresses=addresses(url, options))
    except ValueError:
        return Reach(field, use, url)  # the attempt reports what is wrong with the URL


def refusals(access: Access, reaches: Iterable[Reach]) -> list[str]:
    """Return a sentence for each path or host that a node with `access` would refuse.

    >>> refusals(Access("node-1", source_roots=("/srv",)), [Reach("source", "source", "/srv/../etc", "/srv/../etc")])
    ... # doctest: +ELLIPSIS
    ['params.source: /srv/../etc (which is /etc): node-1 allows no such source: ROTA_SOURCE_ROOTS there names /srv...']
    """
    found = []
    for reach in reaches:
        try:
            if reach.path is not None:
                check_path(access, reach.use, posixpath.normpath(reach.path), reach.named)
            if reach.command:
                check_command(access, reach.named)
            for address in reach.addresses:
                check_address(access, reach.use, address, reach.named)
        except AccessRefused as refused:
            found.append(f"params.{reach.field}: {refused}")
    return found
