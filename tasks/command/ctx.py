"""A command's interface to its own run: variables, the last checkpoint as a file, and a socket for `rota ctx`.

Through the socket, any process that the command starts (a shell, a subshell, a child that has closed its descriptors)
can save a checkpoint, report progress and set the result. A connection carries one request, JSON until the end of the
stream, and one answer, `{"code": "ok" | "fenced" | "refused", "detail": ..., "value": ...}`. The files and the socket
are in `.rota` in the attempt's scratch folder. Only the node's user may enter `.rota`, and it is removed with the
scratch folder. Other attempts may run as the same user, so a caller that is not a process of this attempt is refused.
"""

import errno
import json
import os
import select
import shlex
import shutil
import socket
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgpack

from tasks.kind import RESULT_BYTES_MAX, Context, Fenced
from tasks.processes import is_below

FOLDER: Final = ".rota"
SOCKET: Final = "ROTA_CTX_SOCKET"
VARIABLES: Final = (
    "ROTA_RUN_ID",
    "ROTA_TASK",
    "ROTA_FIRE_AT",
    "ROTA_NOMINAL",
    "ROTA_WINDOW_START",
    "ROTA_WINDOW_END",
    "ROTA_ATTEMPT",
    "ROTA_FENCING_NUMBER",
    "ROTA_CHECKPOINT_FILE",
    SOCKET,
)
"""The variables that Rota sets for a command, and that a task's own `env` may not set."""

REQUEST_BYTES_MAX: Final = 1024 * 1024
"""The size limit of a request. A checkpoint of 64 KiB of msgpack is never longer than this as JSON, even if escaped."""

REQUEST_S: Final = 30.0
"""The timeout for reading a request, and for writing its answer."""

RETRY_S: Final = 0.1

_SO_PEERPIDFD: Final = 77
"""A socket option, since Linux 6.5, that gives a descriptor of the process at the other end. Unlike a pid, the
descriptor never refers to another process later."""

_PROGRAM: Final = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -m node.cli.entry "$@"\n'
"""The script `rota` for a command's PATH. It runs the node's own installation."""

Answer = dict[str, Any]


def _check_figure(name: str, figure: Any) -> None:
    """Raise `ValueError` for a value of a result that could not be kept: results are replicated as msgpack, which has
    no integers beyond 64 bits, and shown as JSON, which has no infinity.
    """
    try:
        msgpack.packb(figure)
        json.dumps(figure, allow_nan=False)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name}: {error}: give it as text") from None


class CommandCtx:
    """One attempt's socket and files, from `__enter__` to `__exit__`. `result` is set by `rota ctx result`.

    Callers can connect from `__enter__` on, and are answered from `serve` on.
    """

    def __init__(self, ctx: Context[Any], bind: Callable[[socket.socket, Path], Path] | None = None) -> None:
        self._ctx = ctx
        self._bind = bind or bound
        self._folder = ctx.scratch.absolute() / FOLDER
        self._checkpoint = self._folder / "checkpoint.json"
        self._listening = socket.socket(socket.AF_UNIX)
        self._socket: Path | None = None
        self._elsewhere: Path | None = None
        self._closed = threading.Event()
        self._changing = threading.Lock()
        self._last = ""
        # The worker and its supervisor: the command's processes descend from the worker, or the supervisor adopts them.
        self._family = (os.getpid(), os.getppid())
        self.result: dict[str, Any] = {}

    def __enter__(self) -> "CommandCtx":
        """Create the files and the socket. Raises `OSError`."""
        self._folder.mkdir(mode=0o700)
        if self._ctx.checkpoint is not None:
            self._last = _json(self._ctx.checkpoint) + "\n"
        self._checkpoint.write_text(self._last)
        _make_program(self._folder / "bin")
        try:
            self._socket = self._bind(self._listening, self._folder)
        except OSError:
            # Some file systems support no sockets, such as network mounts and folders shared with a virtual machine.
            self._elsewhere = Path(tempfile.mkdtemp(prefix="rota-ctx-"))
            self._socket = self._bind(self._listening, self._elsewhere)
        self._listening.listen(128)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop serving the socket."""
        self._closed.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        if self._elsewhere is not None:
            shutil.rmtree(self._elsewhere, ignore_errors=True)

    def serve(self) -> None:
        """Answer callers in a thread. Call this after the program has started, so that its start is not delayed."""
        threading.Thread(target=self._serve, daemon=True, name="command-ctx").start()

    def environment(self, own: Mapping[str, str]) -> dict[str, str]:
        """Return the command's variables: `own`, those of its run, and a PATH that begins with the folder of `rota`."""
        path = own.get("PATH", os.defpath)
        return {
            **own,
            "PATH": f"{self._folder / 'bin'}:{path}" if path else str(self._folder / "bin"),
            "ROTA_RUN_ID": self._ctx.run_id,
            "ROTA_TASK": self._ctx.task.partition("@")[0],
            "ROTA_FIRE_AT": _rfc3339(self._ctx.fire_at),
            "ROTA_NOMINAL": _rfc3339(self._ctx.fire_at),
            **self._window(),
            "ROTA_ATTEMPT": str(self._ctx.attempt),
            "ROTA_FENCING_NUMBER": str(self._ctx.token),
            "ROTA_CHECKPOINT_FILE": str(self._checkpoint),
            SOCKET: str(self._socket),
        }

    def _window(self) -> dict[str, str]:
        start, end = self._ctx.window_start, self._ctx.fire_at
        texts = ("", "") if start is None else (_rfc3339(start), _rfc3339(end))
        return dict(zip(("ROTA_WINDOW_START", "ROTA_WINDOW_END"), texts, strict=True))

    def _serve(self) -> None:
        while not self._closed.is_set():
            try:
                end, _ = self._listening.accept()
                threading.Thread(target=self._hear, args=(end,), daemon=True).start()
            except (OSError, RuntimeError) as error:
                if self._closed.is_set():
                    return
                # No descriptor or no thread is free at the moment. The caller waits in the socket's backlog.
                self._ctx.log.warning("rota ctx: a call cannot be answered now: %s; retrying", error)
                self._closed.wait(RETRY_S)

    def _hear(self, end: socket.socket) -> None:
        with end:
            end.settimeout(REQUEST_S)
            try:
                caller = _caller(end)
                ours = _is_of(end, caller, self._family)
                request = _request(end)
                answer = self._answer(request) if ours else self._stranger(caller)
                end.sendall(json.dumps(answer).encode())
            except OSError as error:
                self._ctx.log.debug("rota ctx: the connection to a caller failed: %s", error)

    def _stranger(self, caller: int) -> Answer:
        self._ctx.log.warning("rota ctx: refused a call by process %d, which is not of this attempt", caller)
        return _refused("the caller is not a process of this attempt")

    def _answer(self, request: Any) -> Answer:
        try:
            match request:
                case {"do": "checkpoint", "value": value}:
                    self._save(value)
                case {"do": "show"}:
                    return {"code": "ok", "value": self._last}
                case {"do": "progress", "done": float(done), "total": float() | None as total, "unit": str(unit)}:
                    with self._changing:
                        self._ctx.progress(done, total, unit)
                case {"do": "result", "value": dict(value)}:
                    self._leave(value)
                case _:
                    return _refused("not a request that this version of Rota knows")
        except Fenced as error:
            # Logged here, because `rota ctx` may be stopped first: it is in the process group that gets SIGTERM now.
            self._ctx.log.warning("checkpoint refused, fenced: %s", error)
            return {"code": "fenced", "detail": "another attempt runs"}
        except (ValueError, OverflowError, RecursionError) as error:
            return _refused(str(error))
        return {"code": "ok"}

    def _save(self, value: Any) -> None:
        with self._changing:  # so that the file holds the checkpoint that was committed last
            self._ctx.save_checkpoint(value)
            self._last = _json(value) + "\n"
            try:
                self._write_checkpoint()
            except OSError as error:
                self._ctx.log.warning("the checkpoint is committed, but its file cannot be written: %s", error)

    def _leave(self, value: dict[str, Any]) -> None:
        with self._changing:
            for name, figure in value.items():
                _check_figure(name, figure)
            result = {**self.result, **value}
            size_bytes = len(json.dumps(result, ensure_ascii=False).encode())
            if size_bytes > RESULT_BYTES_MAX:
                raise ValueError(f"the result has {size_bytes} bytes of JSON; {RESULT_BYTES_MAX} at most are allowed")
            self.result = result

    def _write_checkpoint(self) -> None:
        """Replace the checkpoint's file. Raises `OSError`."""
        fresh = self._checkpoint.with_suffix(".new")
        fresh.write_text(self._last)
        fresh.replace(self._checkpoint)


def _rfc3339(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def bound(listening: socket.socket, folder: Path) -> Path:
    """Bind `listening` in a folder that only this user may enter. Returns the socket's path. Raises `OSError`."""
    # Through a descriptor of the folder: a socket's path has 107 bytes at most, and a scratch folder's may be longer.
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        listening.bind(f"/proc/self/fd/{descriptor}/ctx")
    finally:
        os.close(descriptor)
    (folder / "ctx").chmod(0o600)
    return folder / "ctx"


def _caller(end: socket.socket) -> int:
    """Return the pid of the process that has connected; 0 if it is in a pid namespace that this process cannot see."""
    pid, _, _ = struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(pid)


def _is_of(end: socket.socket, caller: int, family: tuple[int, ...]) -> bool:
    """Whether the process that has connected is in `family` or a descendant. False if it has ended, because its pid may
    belong to another process by then.
    """
    if caller <= 0:
        return False
    try:
        [pidfd] = struct.unpack("i", end.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, struct.calcsize("i")))
    except OSError as error:
        # An older kernel lacks the option. The caller waits for its answer, and keeps its pid as long as it waits.
        return error.errno == errno.ENOPROTOOPT and is_below(caller, family)
    try:
        ended = select.poll()
        ended.register(pidfd, select.POLLIN)
        return is_below(caller, family) and not ended.poll(0)
    finally:
        os.close(pidfd)


def _request(end: socket.socket) -> Any:
    said = bytearray()
    while piece := end.recv(65536):
        said += piece
        if len(said) > REQUEST_BYTES_MAX:
            return None
    try:
        return json.loads(said)
    except (ValueError, RecursionError):
        return None


def _refused(detail: str) -> Answer:
    return {"code": "refused", "detail": detail}


def _json(value: Any) -> str:
    return json.dumps(value, default=str)


def _make_program(folder: Path) -> None:
    """Put a `rota` into `folder` that runs the node's own installation, whatever PYTHON* variables the task sets."""
    folder.mkdir()
    program = folder / "rota"
    program.write_text(_PROGRAM)
    program.chmod(0o700)
    if not os.access(program, os.X_OK):  # the data folder is mounted noexec
        installed = Path(sys.executable).with_name("rota")
        if installed.exists():
            program.unlink()
            program.symlink_to(installed)
