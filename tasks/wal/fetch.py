"""`python -m tasks.wal.fetch CONFIG FILE TARGET`: a restore_command for PostgreSQL that reads the archive by itself.

CONFIG is the file that `tasks.wal.reader.write_config` made. Exit code 0: the file is at TARGET. 1: the archive does
not have the file, and recovery ends there. 255: an error; above 125 the server stops instead of mistaking an error for
the end of the log ("Recovering Using a Continuous Archive Backup" in PostgreSQL's manual).

The server asks for one segment at a time, and waits for each. So the first call leaves a process behind that fetches
the next segments into a folder beside CONFIG, as long as they are taken from there. The restore_command first tries to
move the file from there by `mv`, which starts faster than Python.
With CONFIG alone, as recovery_end_command: removes that folder and CONFIG, which holds secrets.

This module imports nothing large before it must: the server waits for the start of each call.
"""

import errno
import fcntl
import os
import shlex
import shutil
import sys
import time
import traceback
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tasks.postgres.wal_position import SEGMENT_NAME, segment_name, segment_position

if TYPE_CHECKING:
    from tasks.wal.reader import ArchiveReader

FOUND: Final = 0
NOT_THERE: Final = 1
FAILED: Final = 255

FOLDER: Final = "rota_wal_ahead"
"""The name of the folder with segments that were fetched before the server asked for them."""

AHEAD_BYTES: Final = 128 << 20
"""How much log is fetched ahead: at least 2 segments, at most 16."""

IDLE_S: Final = 10.0
"""How long the process that fetches ahead waits for the server to ask for another segment."""

WAIT_S: Final = 60.0
"""How long a call waits for a segment that is being fetched, before it fetches that itself."""

_THREADS: Final = 3
_LOOK_S: Final = 0.01
_LOCK: Final = "lock"
_ASKED: Final = "asked"


def server_commands(config: Path) -> tuple[str, str]:
    """Return the restore_command and the recovery_end_command of a server that recovers by `config`."""
    program = shlex.join([sys.executable, "-m", "tasks.wal.fetch", str(config)]).replace("%", "%%")
    ahead = shlex.quote(str(config.with_name(FOLDER))).replace("%", "%%")
    return f"mv {ahead}/%f %p 2>/dev/null || {program} %f %p", program


class FetchedAhead:
    """The folder with the segments that a process fetches ahead of the server. That process holds its lock."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self.folder = config.with_name(FOLDER)

    def take(self, name: str, target: Path) -> bool:
        """Move a segment to `target`. Returns False if it is not there, and not coming."""
        until_s = time.monotonic() + WAIT_S
        while not self._moved(name, target):
            if not (self.folder / f"{name}.partial").exists() or time.monotonic() > until_s:
                # It may have come between the two looks.
                return self._moved(name, target)
            if (lock := self._locked()) is not None:
                os.close(lock)
                return self._moved(name, target)  # nobody fetches it: the process has died
            time.sleep(_LOOK_S)
        return True

    def _moved(self, name: str, target: Path) -> bool:
        try:
            (self.folder / name).rename(target)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno != errno.EXDEV:  # pg_wal may be a link to another file system
                raise
            shutil.copyfile(self.folder / name, target)
        return True

    def go_on(self, name: str) -> None:
        """Have the segments after `name` fetched, by a process of its own unless one is there."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._write(_ASKED, name)
        lock = self._locked()
        if lock is None:
            return
        if os.fork() == 0:
            _detach()
            try:
                self._fetch_ahead()
            except Exception:  # noqa: BLE001  the server asks for the segment, and then gets the error
                os._exit(1)
            finally:
                os._exit(0)
        os.close(lock)  # the other process has it, too

    def _write(self, name: str, text: str) -> None:
        aside = self.folder / f"{name}.new"
        aside.write_text(text)
        aside.replace(self.folder / name)

    def _locked(self) -> int | None:
        """Take the lock. Returns its descriptor; None if a process fetches ahead."""
        try:
            lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock

    def _fetch_ahead(self) -> None:
        """Keep the segments after the one that was asked for in the folder, until nobody asks any more."""
        from tasks.wal.reader import ArchiveReader

        reader = ArchiveReader(self._config)
        fetched: dict[str, Future[bool]] = {}
        passed: dict[str, Future[bool]] = {}
        """Those that the server has passed while they were on their way: nobody will take them."""
        told = asked = ""
        asked_s = time.monotonic()
        with ThreadPoolExecutor(_THREADS) as pool:
            while time.monotonic() - asked_s < IDLE_S:
                for future in fetched.values():
                    if future.done():
                        future.result()
                for name in [name for name, future in passed.items() if future.done()]:
                    del passed[name]
                    if name not in fetched:
                        (self.folder / name).unlink(missing_ok=True)
                before, told = told, (self.folder / _ASKED).read_text()
                now = told if told != before else self._taken(fetched, asked)
                if now == asked:
                    time.sleep(_LOOK_S)
                    continue
                asked, asked_s = now, time.monotonic()
                wanted = _next_names(reader, asked)
                self._tidy(set(wanted))  # the server has what it asked for
                passed |= {name: each for name, each in fetched.items() if name not in wanted and not each.done()}
                fetched = {name: future for name, future in fetched.items() if name in wanted}
                for name in wanted:
                    if name not in fetched and (known := reader.whole(name)) is not None:
                        (self.folder / f"{name}.partial").touch(mode=0o600)
                        fetched[name] = pool.submit(reader.write, self.folder / name, [known], 0, durable=False)

    def _taken(self, fetched: "Mapping[str, Future[bool]]", asked: str) -> str:
        """Return the name of the last segment that was taken from the folder; `asked` if none was."""
        gone = (name for name, future in fetched.items() if future.done() and not (self.folder / name).exists())
        return max(gone, default=asked)

    def _tidy(self, wanted: set[str]) -> None:
        for path in self.folder.iterdir():
            if path.name.partition(".")[0] not in {*wanted, _LOCK, _ASKED}:
                path.unlink(missing_ok=True)


def _next_names(reader: "ArchiveReader", name: str) -> list[str]:
    """Return the names of the segments to fetch ahead of the server, which has asked for `name`."""
    size = reader.segment_bytes
    timeline, lsn = segment_position(name, size)
    count = max(2, min(16, AHEAD_BYTES // size))
    return [segment_name(timeline, lsn + number * size, size) for number in range(1, count + 1)]


def _detach() -> None:
    """Become a process that outlives the caller, and keeps none of the server's files open."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)


def main(config: str, name: str = "", target: str = "") -> int:
    """Fetch one file, or without a name end the recovery. Returns the exit code."""
    ahead = FetchedAhead(Path(config))
    try:
        if not name:
            shutil.rmtree(ahead.folder, ignore_errors=True)
            Path(config).unlink(missing_ok=True)
            return FOUND
        is_segment = SEGMENT_NAME.fullmatch(name) is not None
        found = is_segment and ahead.take(name, Path(target))
        if not found:
            from tasks.wal.reader import ArchiveReader

            found = ArchiveReader(Path(config)).fetch(name, Path(target))
    except Exception:  # noqa: BLE001  the server must not mistake any error for the end of the log
        traceback.print_exc()
        return FAILED
    if found and is_segment:
        try:
            ahead.go_on(name)
        except OSError:
            traceback.print_exc()  # the server goes on without
    return FOUND if found else NOT_THERE


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
