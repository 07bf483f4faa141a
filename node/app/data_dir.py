"""A node's data folder: one node owns it, one process at a time uses it, and each start has a session number.

lock           locked (flock) while a node runs on the folder; contains its process id
node.json      the node's id, and the session of its last start
members.json   the members' addresses as last committed, and as configured then, for the next start
place.json     this node's own address, for the next start
raft/ groups/ scratch/ logs/ history.db    belong to the modules of those names

A JSON file here that cannot be read is set aside (`node.storage.quarantine`), because its content can be recovered: the
session is at least the wall clock, and the members' addresses are in ROTA_MEMBERS and known to the other members.
"""

import fcntl
import json
import logging
import os
import stat
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

_PRIVATE: Final = 0o700


class DataDirInUse(Exception):
    """Another process runs a node on this data folder."""


class ForeignFolder(Exception):
    """The data folder belongs to another node, or cannot be used."""


class DataDir:
    """An open data folder. Raises `DataDirInUse` or `ForeignFolder` if this node cannot use it.

    `passable`: other users may traverse it, to reach the scratch folders of their attempts.
    `session` is a number that grows with each start of this node. It is at least the wall clock in microseconds,
    `now_us`, so that it grows even if the folder was lost in between.
    """

    def __init__(self, path: Path, node: str, now_us: int, *, passable: bool = False) -> None:
        self.path = path.absolute()
        self._mode = 0o711 if passable else _PRIVATE
        try:
            self._lock_folder()
            self.session = self._begin_session(node, now_us)
        except OSError as error:
            raise ForeignFolder(f"cannot use {self.path} as ROTA_DATA: {error.strerror}") from error

    def _lock_folder(self) -> None:
        self.path.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        self._make_private()
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._lock, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._lock)
            raise DataDirInUse(
                f"{self.path} is in use by a node that runs already (process {holder}): "
                "stop that node, or give this one its own folder (ROTA_DATA)"
            ) from error
        room_to_start(self.path)
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, str(os.getpid()).encode(), 0)

    def _make_private(self) -> None:
        """Make the folder private to the node's user: it contains params and logs of tasks.

        A folder with other content is not changed, because it may have been named by mistake.
        """
        ours = (self.path / "node.json").exists() or not any(self.path.iterdir())
        found = self.path.stat()
        if not ours:
            return
        if found.st_uid != os.geteuid():
            if os.geteuid() == 0 and not found.st_mode & 0o001:
                _log.warning(
                    "%s belongs to user id %d, and this node is root: its attempts have no capabilities, cannot reach "
                    "their scratch folders there, and fail (chown -R root: %s)",
                    self.path,
                    found.st_uid,
                    self.path,
                )
            return
        if self._mode != _PRIVATE:
            # Until now only the closed folder protected its files, whatever their modes.
            for inside in self.path.iterdir():
                if not inside.is_symlink():
                    inside.chmod(stat.S_IMODE(inside.stat().st_mode) & _PRIVATE)
        before = stat.S_IMODE(self.path.stat().st_mode)
        if before != self._mode:
            self.path.chmod(self._mode)
            if self._mode != _PRIVATE:
                _log.warning(
                    "%s had mode %04o, and has %04o now: attempts of other users (ROTA_RUN_AS, ROTA_WORK_UIDS) reach "
                    "their scratch folders through it; all else in it is private to this node's user",
                    self.path,
                    before,
                    self._mode,
                )

    def _begin_session(self, node: str, now_us: int) -> int:
        path = self.path / "node.json"
        before = self._read(path)
        if before and before.get("node") != node:
            raise ForeignFolder(
                f"{self.path} belongs to node {before.get('node')!r}, and ROTA_NODE is {node!r}: "
                "set the right ROTA_NODE, or give this node its own folder (ROTA_DATA)"
            )
        last = before.get("session", 0)
        session = max(last if isinstance(last, int) else 0, now_us) + 1
        write_whole(path, _with_checksum({"node": node, "session": session}))
        return session

    @property
    def fresh(self) -> bool:
        """Whether no committed members are stored: this is the node's first start, or its folder was lost."""
        return not self.agreed()

    def agreed(self) -> dict[str, Agreed]:
        """Return the members as last committed; empty before, or if the file was damaged. Raises `ForeignFolder`."""
        return {name: _agreed(*known) for name, known in self._read(self.path / MEMBERS).items()}

    def keep_agreed(self, agreed: Mapping[str, Agreed]) -> None:
        """Store the committed members for the next start. Raises `OSError`."""
        members = {name: [*known.at, *(known.configured or ())] for name, known in sorted(agreed.items())}
        write_whole(self.path / MEMBERS, _with_checksum(members))

    def place(self) -> Seed | None:
        """This node's address at its last start; None if it is not known. Raises `ForeignFolder`."""
        at = self._read(self.path / PLACE)
        return None if not at else Seed(at["id"], at["host"], at["raft_port"], at["http_port"])

    def keep_place(self, seed: Seed) -> None:
        """Store this node's address for the next start. Raises `ForeignFolder`."""
        if self.place() != seed:
            try:
                write_whole(self.path / PLACE, _with_checksum(asdict(seed)))
            except OSError as error:
                raise ForeignFolder(f"cannot write {self.path / PLACE}: {error.strerror}") from error

    def _read(self, path: Path) -> dict[str, Any]:
        """Return the content of a JSON file; empty if there is none, or if it was damaged and has been set aside.

        Raises `ForeignFolder`.
        """
        try:
            return _checked(path.read_text())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ForeignFolder(f"cannot read {path}: {error.strerror}") from error
        except ValueError as error:
            if not (self.path / "raft").exists():
                raise ForeignFolder(
                    f"{path} was not written by a node: give this node its own folder (ROTA_DATA)"
                ) from error
            [kept] = set_aside([path])
            _log.error("%s cannot be read (%s): it is kept as %s and replaced by a new one", path, error, kept.name)
            return {}

    def close(self) -> None:
        """Unlock the folder."""
        os.close(self._lock)


def knows_members(path: Path) -> bool:
    """Return whether a data folder has the addresses of its node and of the members, so that no setting is needed."""
    try:
        return all((path / name).exists() for name in (MEMBERS, PLACE))
    except OSError:
        return False  # opening the folder reports why it cannot be used


def node_of(path: Path) -> str | None:
    """Return the id of the node that owns a data folder; None if it is no data folder. Raises `ForeignFolder`."""
    try:
        node = _checked((path / "node.json").read_text()).get("node")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ForeignFolder(f"cannot read {path / 'node.json'}: {error.strerror}") from error
    except ValueError as error:
        raise ForeignFolder(f"{path / 'node.json'} was not written by a node ({error})") from error
    return node if isinstance(node, str) else None


def _agreed(host: str, port: int, configured_host: str | None = None, configured_port: int = 0) -> Agreed:
    configured = None if configured_host is None else (str(configured_host), int(configured_port))
    return Agreed((str(host), int(port)), configured)


def _with_checksum(value: Mapping[str, Any]) -> str:
    """Return a value as JSON text with its CRC-32."""
    text = json.dumps(value)
    return json.dumps({"crc": zlib.crc32(text.encode()), "holds": text})


def _checked(text: str) -> dict[str, Any]:
    """Return the value in a text that `_with_checksum` made. Raises `ValueError`."""
    try:
        record = json.loads(text)
        if zlib.crc32(record["holds"].encode()) != record["crc"]:
            raise ValueError("its checksum does not match")
        value: dict[str, Any] = json.loads(record["holds"])
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError("it was not written by a node") from error
    return value
