"""The token of a cluster that `rota up` runs: where it is kept, and how the command line finds it by itself.

`rota up` keeps it in `DIR/token`, and notes in this user's state folder which file that is, by each port of the API. A
command that is told no token (ROTA_TOKEN, ROTA_TOKEN_FILE) looks there, and in `.rota` of the working folder, for the
cluster on this machine that its ROTA_URL names; to another address no token goes.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

LOOPBACK: Final = ("127.0.0.1", "localhost")
FOLDER: Final = Path(".rota")


def found(urls: Sequence[str], environ: Mapping[str, str], folder: Path = FOLDER) -> Path | None:
    """The file with the token of the cluster on this machine at all of `urls`; None if none is known, or several."""
    ports = [_port(url) for url in urls]
    if not ports or None in ports:
        return None
    for known in (_noted(environ, ports), _kept(folder, ports)):
        if known is not None and known.is_file():
            return known
    return None


def _port(url: str) -> int | None:
    """The port of an address on this machine. None for one elsewhere."""
    try:
        parts = urlsplit(url)
        return (parts.port or 80) if parts.scheme == "http" and parts.hostname in LOOPBACK else None
    except ValueError:
        return None


def _noted(environ: Mapping[str, str], ports: Sequence[int | None]) -> Path | None:
    notes = notes_folder(environ)
    files: set[str | None] = set()
    for port in ports:
        note = notes / str(port)
        try:
            files.add(note.read_text() if note.stat().st_uid == os.geteuid() else None)
        except (OSError, ValueError):
            files.add(None)
    [*only] = files
    return Path(only[0]) if len(only) == 1 and only[0] is not None else None


def _kept(folder: Path, ports: Sequence[int | None]) -> Path | None:
    try:
        if folder.stat().st_uid != os.geteuid():
            return None
        plan = json.loads((folder / "cluster.json").read_text())
        own = {http for _, http in plan.values()}
    except (OSError, ValueError, AttributeError, TypeError):
        return None
    return folder / "token" if own.issuperset(ports) else None


def notes_folder(environ: Mapping[str, str]) -> Path:
    """Where `rota up` notes which token is whose: in this user's state folder (XDG_STATE_HOME)."""
    return Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "rota" / "up"


def note(token: Path, ports: Iterable[int], environ: Mapping[str, str]) -> None:
    """Note that the cluster on `ports` has the token in the file `token`. Raises `OSError`."""
    folder = notes_folder(environ)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for port in ports:
        aside = folder / f".{port}.{os.getpid()}"
        aside.write_text(str(token.absolute()))
        aside.replace(folder / str(port))


def forget(token: Path, ports: Iterable[int], environ: Mapping[str, str]) -> None:
    """Remove what `note` noted, where it still stands."""
    for port in ports:
        noted = notes_folder(environ) / str(port)
        with suppress(OSError):
            if noted.read_text() == str(token.absolute()):
                noted.unlink()
