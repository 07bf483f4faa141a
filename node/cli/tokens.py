"""The token of a cluster that `rota up` runs: where it is stored, and how the command line finds it.

`rota up` stores the token in `DIR/token` and records the path of that file in this user's state folder, once for each
port of the API. A command without ROTA_TOKEN and ROTA_TOKEN_FILE looks up the ports of ROTA_URL in the state folder,
then in `.rota` of the working folder. It sends such a token to loopback addresses only.
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


def find_token_file(urls: Sequence[str], environ: Mapping[str, str], folder: Path = FOLDER) -> Path | None:
    """Return the token file of the cluster on this machine that serves all of `urls`; None if no one cluster does."""
    ports = [_port(url) for url in urls]
    if not ports or None in ports:
        return None
    for known in (_recorded(environ, ports), _in_folder(folder, ports)):
        if known is not None and known.is_file():
            return known
    return None


def _port(url: str) -> int | None:
    """Return the port of a loopback address; None for any other address."""
    try:
        parts = urlsplit(url)
        return (parts.port or 80) if parts.scheme == "http" and parts.hostname in LOOPBACK else None
    except ValueError:
        return None


def _recorded(environ: Mapping[str, str], ports: Sequence[int | None]) -> Path | None:
    records = records_folder(environ)
    files: set[str | None] = set()
    for port in ports:
        record = records / str(port)
        try:
            files.add(record.read_text() if record.stat().st_uid == os.geteuid() else None)
        except (OSError, ValueError):
            files.add(None)
    [*only] = files
    return Path(only[0]) if len(only) == 1 and only[0] is not None else None


def _in_folder(folder: Path, ports: Sequence[int | None]) -> Path | None:
    try:
        if folder.stat().st_uid != os.geteuid():
            return None
        plan = json.loads((folder / "cluster.json").read_text())
        own = {http for _, http in plan.values()}
    except (OSError, ValueError, AttributeError, TypeError):
        return None
    return folder / "token" if own.issuperset(ports) else None


def records_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder where `rota up` records token files, by port: in this user's state folder (XDG_STATE_HOME)."""
    return Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "rota" / "up"


def record(token: Path, ports: Iterable[int], environ: Mapping[str, str]) -> None:
    """Record that the cluster on `ports` has the token in the file `token`. Raises `OSError`."""
    folder = records_folder(environ)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for port in ports:
        aside = folder / f".{port}.{os.getpid()}"
        aside.write_text(str(token.absolute()))
        aside.replace(folder / str(port))


def forget_token_file(token: Path, ports: Iterable[int], environ: Mapping[str, str]) -> None:
    """Remove the records that `record` wrote, unless another cluster has overwritten them."""
    for port in ports:
        recorded = records_folder(environ) / str(port)
        with suppress(OSError):
            if recorded.read_text() == str(token.absolute()):
                recorded.unlink()
