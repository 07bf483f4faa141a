"""Reads the settings of what tasks may reach, and collects the node's own files and secrets, which tasks may not."""

import os
from collections.abc import Iterable
from pathlib import Path

from tasks.access import Access, is_within
from tasks.secret import NodesOwn, mark


def own_of(files: Iterable[str | None], data: Path, values: Iterable[str | None]) -> NodesOwn:
    """The node's own secret `files`, `data` folder, and secrets' `values`, to which no reference may resolve."""
    key = os.urandom(16)
    return NodesOwn(
        tuple(str(Path(file).absolute()) for file in files if file),
        str(data.absolute()),
        key,
        tuple(mark(value, key) for value in values if value),
    )


def parse_roots(text: str) -> tuple[str, ...]:
    """Absolute folders, separated by commas. Raises `ValueError`.

    >>> parse_roots("/srv, /var/lib/app/")
    ('/srv', '/var/lib/app')
    """
    roots = [part.strip() for part in text.split(",") if part.strip()]
    for root in roots:
        if not root.startswith("/") or ".." in root.split("/"):
            raise ValueError(f"{root!r} is not a folder: write absolute paths, separated by commas, without '..'")
    return tuple("/" + os.path.normpath(root).lstrip("/") for root in roots)


def parse_folder(text: str) -> str:
    """One absolute folder. Raises `ValueError`."""
    roots = parse_roots(text)
    if len(roots) != 1:
        raise ValueError("must be one folder")
    return roots[0]


def secrets_in_reach(own: NodesOwn, secrets_dir: Path) -> list[str]:
    """A warning for each of the node's own secret files that lies in the folder of the tasks' secrets."""
    folder = os.path.realpath(secrets_dir)
    return [
        f"{file} is a secret of the node and lies in ROTA_SECRETS_DIR ({secrets_dir}). Tasks cannot read it there, but "
        "separate folders are safer: use for example secrets/node and secrets/tasks, set ROTA_SECRET_FILE, "
        "ROTA_TOKEN_FILE and ROTA_SECRETS_DIR to them, and restart the node"
        for file in own.files
        if is_within(os.path.realpath(file), folder)
    ]


def nothing_allowed(access: Access) -> list[str]:
    """The names of the access settings that allow no folder, or no host, on this node."""
    allowed_by = {
        "ROTA_SOURCE_ROOTS": access.source_roots,
        "ROTA_DESTINATION_ROOTS": access.destination_roots,
        "ROTA_SOURCE_HOSTS": access.source_hosts,
        "ROTA_DESTINATION_HOSTS": access.destination_hosts,
    }
    return [name for name, allowed in allowed_by.items() if not allowed]
