"""What the settings say of a task's reach: the folders and hosts it may name, and the node's own that it never gets."""

import os
from collections.abc import Iterable
from pathlib import Path

from tasks.access import Access, is_within
from tasks.secret import NodesOwn, mark


def own_of(files: Iterable[str | None], data: Path, values: Iterable[str | None]) -> NodesOwn:
    """What no reference resolves to: the node's `files` of secrets, its `data` folder, and the secrets' `values`."""
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
            raise ValueError(f"{root!r} is no folder: write absolute paths, separated by commas, without '..'")
    return tuple("/" + os.path.normpath(root).lstrip("/") for root in roots)


def parse_folder(text: str) -> str:
    """One absolute folder. Raises `ValueError`."""
    roots = parse_roots(text)
    if len(roots) != 1:
        raise ValueError("must be one folder")
    return roots[0]


def secrets_in_reach(own: NodesOwn, secrets_dir: Path) -> list[str]:
    """For each file of the node's own that lies in the folder of the tasks' secrets: what to do about it."""
    folder = os.path.realpath(secrets_dir)
    return [
        f"{file}, which is the node's own, lies in ROTA_SECRETS_DIR ({secrets_dir}). No task is given it, but it "
        "belongs elsewhere: move it to a folder of its own, or the tasks' secrets to one (secrets/node and "
        "secrets/tasks, say), set ROTA_SECRET_FILE, ROTA_TOKEN_FILE and ROTA_SECRETS_DIR to them, and restart the node"
        for file in own.files
        if is_within(os.path.realpath(file), folder)
    ]


def nothing_allowed(access: Access) -> list[str]:
    """The settings without which a sort of source or destination is not allowed on this node at all."""
    given = {
        "ROTA_SOURCE_ROOTS": access.source_roots,
        "ROTA_DESTINATION_ROOTS": access.destination_roots,
        "ROTA_SOURCE_HOSTS": access.source_hosts,
        "ROTA_DESTINATION_HOSTS": access.destination_hosts,
    }
    return [name for name, allowed in given.items() if not allowed]
