"""What a task's params name outside of it, and what a node would refuse of that (pure).

Paths are taken by their letters: links are followed where the work is done (`tasks.opened`), and there it is decided.
"""

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from tasks.access import Access, AccessRefused, Use, addresses, check_address, check_path

_WHERE: Final = frozenset({"endpoint_url", "account_name", "account_host", "port"})
"""fsspec's options that say where a file system is."""


class Reach(NamedTuple):
    """A field of params, such as `source`, that names a `path` on the node, or servers and buckets at `addresses`.

    `named` is what stands in the field; addresses are as `tasks.access.addresses` gives them.
    """

    field: str
    use: Use
    named: str
    path: str | None = None
    addresses: tuple[str, ...] = ()


def remote(field: str, use: Use, url: str, options: Mapping[str, Any]) -> Reach:
    """The file system of an fsspec URL. Nothing is known of where it is if a secret says so, or the URL does not.

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
        return Reach(field, use, url)  # the attempt says what is wrong with it


def refusals(access: Access, reaches: Iterable[Reach]) -> list[str]:
    """A sentence for each field of which a node with `access` would refuse something.

    >>> refusals(Access("node-1", source_roots=("/srv",)), [Reach("source", "source", "/srv/../etc", "/srv/../etc")])
    ... # doctest: +ELLIPSIS
    ['params.source: /srv/../etc (which is /etc): node-1 allows no such source: ROTA_SOURCE_ROOTS there names /srv...']
    """
    found = []
    for reach in reaches:
        try:
            if reach.path is not None:
                check_path(access, reach.use, posixpath.normpath(reach.path), reach.named)
            for address in reach.addresses:
                check_address(access, reach.use, address, reach.named)
        except AccessRefused as refused:
            found.append(f"params.{reach.field}: {refused}")
    return found
