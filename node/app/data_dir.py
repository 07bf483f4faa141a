"""A node's data folder: whose it is, that one process at a time has it, and which start this is.

lock           held (flock) while a node runs on the folder; holds its process id
node.json      the node's id, and the session of its last start
members.json   the members' addresses as last agreed on, and as they were configured then, for the next start
place.json     where this node itself is, for the next start
raft/ groups/ scratch/ logs/ history.db    of the parts named so

A file here that cannot be read is set aside (`node.storage.quarantine`): all of it can be known again. The session is
at least the wall clock, and where the members are is in ROTA_MEMBERS, and with the others.
"""

import fcntl
import json
import logging
import os
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from node.membership.addresses import Agreed
from node.state.entries import Seed
from node.storage.atomic import write_whole
from node.storage.quarantine import set_aside
from node.storage.reserve import room_to_start

_log = logging.getLogger("rota")

MEMBERS: Final = "members.json"
PLACE: Final = "place.json"


class DataDirInUse(Exception):
    """Another process runs a node on this folder."""


class ForeignFolder(Exception):
    """The folder is another node's, or cannot be used."""


class DataDir:
    """An open data folder. Raises `DataDirInUse` or `ForeignFolder` when it cannot be this node's now.

    `session` counts this node's starts, and only grows, also where the folder was lost in between: it is
    at least the wall clock in microseconds, `now_us`.
    """

    def __init__(self, path: Path, node: str, now_us: int) -> None:
        self.path = path.absolute()
        try:
            self._take()
            self.session = self._begin_session(node, now_us)
        except OSError as error:
            raise ForeignFolder(f"cannot use {self.path} as ROTA_DATA: {error.strerror}") from error

    def _take(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._close_to_others()
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._lock, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._lock)
            raise DataDirInUse(
                f"{self.path} is in use by a node that runs already (process {holder}): "
                "stop that one, or give this one a folder of its own (ROTA_DATA)"
            ) from error
        room_to_start(self.path)
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, str(os.getpid()).encode(), 0)

    def _close_to_others(self) -> None:
        """What tasks are given and what they say is the business of the node's user alone.

        A folder that holds something else is left as it is: it may be one that was named by mistake.
        """
        ours = (self.path / "node.json").exists() or not any(self.path.iterdir())
        if ours and self.path.stat().st_uid == os.geteuid():
            self.path.chmod(0o700)

    def _begin_session(self, node: str, now_us: int) -> int:
        path = self.path / "node.json"
        before = self._read(path)
        if before and before.get("node") != node:
            raise ForeignFolder(
                f"{self.path} belongs to node {before.get('node')!r}, and ROTA_NODE is {node!r}: "
                "set the right ROTA_NODE, or give this node a folder of its own (ROTA_DATA)"
            )
        last = before.get("session", 0)
        session = max(last if isinstance(last, int) else 0, now_us) + 1
        write_whole(path, _sealed({"node": node, "session": session}))
        return session

    @property
    def fresh(self) -> bool:
        """Whether no members are known to have been agreed on: the node's first start, or its folder was lost."""
        return not self.agreed()

    def agreed(self) -> dict[str, Agreed]:
        """The members as last agreed on; nobody before that, or if that cannot be read. Raises `ForeignFolder`."""
        return {name: _agreed(*known) for name, known in self._read(self.path / MEMBERS).items()}

    def keep_agreed(self, agreed: Mapping[str, Agreed]) -> None:
        """Remember the members agreed on, for the next start. Raises `OSError`."""
        members = {name: [*known.at, *(known.configured or ())] for name, known in sorted(agreed.items())}
        write_whole(self.path / MEMBERS, _sealed(members))

    def place(self) -> Seed | None:
        """Where this node was at its last start; None if that is not known. Raises `ForeignFolder`."""
        at = self._read(self.path / PLACE)
        return None if not at else Seed(at["id"], at["host"], at["raft_port"], at["http_port"])

    def keep_place(self, seed: Seed) -> None:
        """Remember where this node is, for the next start. Raises `ForeignFolder`."""
        if self.place() != seed:
            try:
                write_whole(self.path / PLACE, _sealed(asdict(seed)))
            except OSError as error:
                raise ForeignFolder(f"cannot write {self.path / PLACE}: {error.strerror}") from error

    def _read(self, path: Path) -> dict[str, Any]:
        """What a file of ours holds; nothing if it is not there, or cannot be read. Raises `ForeignFolder`."""
        try:
            return _opened(path.read_text())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ForeignFolder(f"cannot read {path}: {error.strerror}") from error
        except ValueError as error:
            if not (self.path / "raft").exists():
                raise ForeignFolder(
                    f"{path} is not what a node writes: give this node a folder of its own (ROTA_DATA)"
                ) from error
            [kept] = set_aside([path])
            _log.error("%s cannot be read (%s): it is kept as %s, and written anew", path, error, kept.name)
            return {}

    def close(self) -> None:
        """Let another process have it."""
        os.close(self._lock)


def remembers(path: Path) -> bool:
    """Whether a node that is started on this folder needs nobody to tell it where it and the members are."""
    try:
        return all((path / name).exists() for name in (MEMBERS, PLACE))
    except OSError:
        return False  # who opens the folder is told why it cannot be used


def whose(path: Path) -> str | None:
    """The id of the node whose data folder it is; None if it is nobody's. Raises `ForeignFolder`."""
    try:
        node = _opened((path / "node.json").read_text()).get("node")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ForeignFolder(f"cannot read {path / 'node.json'}: {error.strerror}") from error
    except ValueError as error:
        raise ForeignFolder(f"{path / 'node.json'} is not what a node writes ({error})") from error
    return node if isinstance(node, str) else None


def _agreed(host: str, port: int, configured_host: str | None = None, configured_port: int = 0) -> Agreed:
    configured = None if configured_host is None else (str(configured_host), int(configured_port))
    return Agreed((str(host), int(port)), configured)


def _sealed(value: Mapping[str, Any]) -> str:
    text = json.dumps(value)
    return json.dumps({"crc": zlib.crc32(text.encode()), "holds": text})


def _opened(text: str) -> dict[str, Any]:
    """What was sealed. Raises `ValueError`."""
    try:
        sealed = json.loads(text)
        if zlib.crc32(sealed["holds"].encode()) != sealed["crc"]:
            raise ValueError("its checksum does not match")
        value: dict[str, Any] = json.loads(sealed["holds"])
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError("it is not what a node writes") from error
    return value
