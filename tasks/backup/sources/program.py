"""Runs a program beside a pipe: it is killed if the work fails, and its last messages say why it failed itself."""

import fcntl
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

TAIL_BYTES: Final = 2000
"""How much of a program's last messages an error has."""

_PIPE_BYTES: Final = 1 << 20
_STEP_S: Final = 0.5
"""The interval for checking whether to stop while a program writes nothing."""


class ProgramFailed(Exception):
    """A program could not be started, or its exit code was not 0. The message has the end of its standard error."""


@contextmanager
def beside_pipe(
    argv: Sequence[str],
    scratch: Path,
    env: Mapping[str, str],
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
    **more: Any,
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program in a process group of its own during the block, and wait for its end. `more`: for `Popen`.

    If the block raises, the group is killed. Raises `ProgramFailed`, also for a `BrokenPipeError` of the block: then
    the program has ended before it had read all its input, and its messages say why.
    """
    name = Path(argv[0]).name
    with tempfile.TemporaryFile(dir=scratch) as said:
        try:
            process = subprocess.Popen(
                argv, stdin=stdin, stdout=stdout, stderr=said, env=dict(env), process_group=0, bufsize=0, **more
            )
        except OSError as error:
            raise ProgramFailed(f"cannot start {name!r}: {error.filename or argv[0]}: {error.strerror}") from None
        try:
            try:
                yield process
                if process.stdin is not None:
                    process.stdin.close()
            except BrokenPipeError:
                # Its exit code and its messages say why it reads no more.
                pass
            code = process.wait()
        finally:
            _end(process)
        if code == 0:
            sys.stderr.write(_tail(said))
        else:
            raise ProgramFailed(f"{name} {_ended(code)}: {_tail(said).removeprefix(f'{name}: ') or 'it said nothing'}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()  # without a buffer, closing writes nothing


def _ended(code: int) -> str:
    return f"ended with exit code {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"


def _tail(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - TAIL_BYTES))
    return file.read().decode(errors="replace").strip()


def output_of(process: "subprocess.Popen[bytes]", step: Callable[[], None]) -> Iterator[bytes]:
    """Yield a program's output as it comes. `step` is called regularly, also while none comes, and may raise."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    _widen(descriptor)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while True:
        if not poll.poll(_STEP_S * 1000):
            step()
            continue
        chunk = os.read(descriptor, _PIPE_BYTES)
        if not chunk:
            return
        yield chunk


def _widen(pipe: int) -> None:
    """Let a pipe hold more, so that the program waits less; the kernel may refuse that to a user with many pipes."""
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    except PermissionError:
        return
