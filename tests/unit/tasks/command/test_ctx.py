"""What a command sees of its run, and `rota ctx`, over a real socket."""

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from tasks.command.ctx import _SO_PEERPIDFD, VARIABLES, CommandCtx, _caller, _is_of, bound
from tasks.command.kind import CommandParams
from tasks.kind import Fenced
from testkit.fake_context import FakeContext


class Nothing(BaseModel):
    pass


@pytest.fixture
def attempt(tmp_path: Path) -> FakeContext[Nothing]:
    # Longer than a socket's path may be.
    scratch = tmp_path / ("long" * 30)
    scratch.mkdir()
    return FakeContext(Nothing(), scratch, run_id="nightly~1", task="nightly", attempt=2, token=77)


@pytest.fixture
def seen(attempt: FakeContext[Nothing]) -> Iterator[CommandCtx]:
    with CommandCtx(attempt) as made:
        made.serve()
        yield made


def shell(seen: CommandCtx, script: str, **more: str) -> "subprocess.CompletedProcess[str]":
    env = seen.environment({"PATH": os.environ["PATH"], **more})
    return subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True, timeout=30, check=False)


def test_run_variables_cannot_be_overridden_by_the_task(seen: CommandCtx) -> None:
    env = seen.environment(dict.fromkeys(VARIABLES, "the task's own"))
    assert {name: env[name] for name in VARIABLES[:8]} == {
        "ROTA_RUN_ID": "nightly~1",
        "ROTA_TASK": "nightly",
        "ROTA_FIRE_AT": "2026-11-21T00:00:00Z",
        "ROTA_NOMINAL": "2026-11-21T00:00:00Z",
        "ROTA_WINDOW_START": "",
        "ROTA_WINDOW_END": "",
        "ROTA_ATTEMPT": "2",
        "ROTA_FENCING_NUMBER": "77",
    }
    assert "the task's own" not in env.values()
    assert all(name in (CommandParams.__doc__ or "") for name in VARIABLES), "docs/reference/kinds.md names them"
    for name in VARIABLES:
        with pytest.raises(ValidationError, match="is set by Rota"):
            CommandParams(argv=["true"], env={name: "mine"})


def test_a_run_with_a_window_is_told_where_it_begins_and_ends(attempt: FakeContext[Nothing], seen: CommandCtx) -> None:
    attempt.window_start = attempt.fire_at - timedelta(days=1)
    env = seen.environment({})
    assert (env["ROTA_WINDOW_START"], env["ROTA_WINDOW_END"]) == ("2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z")


def test_a_checkpoint_is_committed_and_written_to_a_file(attempt: FakeContext[Nothing], seen: CommandCtx) -> None:
    assert shell(seen, 'cat "$ROTA_CHECKPOINT_FILE"; rota ctx checkpoint --show').stdout == "", "none yet"
    # In a subshell, in the background, and from a child that has closed its descriptors.
    script = """
        set -e
        (echo '{"row": 17}' | rota ctx checkpoint -) & wait $!
        cat "$ROTA_CHECKPOINT_FILE"
        echo 18 > here.json
        "$PYTHON" -c 'import subprocess; subprocess.run(["rota", "ctx", "checkpoint", "here.json"], check=True)'
        rota ctx checkpoint --show
    """
    done = shell(seen, f"cd '{attempt.scratch}'; {script}", PYTHON=sys.executable)
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"row": 17}\n18\n', "")
    assert attempt.saved == [{"row": 17}, 18]
    assert seen._folder.stat().st_mode & 0o777 == 0o700
    assert (seen._folder / "ctx").stat().st_mode & 0o777 == 0o600


def test_the_previous_attempts_checkpoint_is_available(attempt: FakeContext[Nothing]) -> None:
    attempt.checkpoint = {"row": 3}
    with CommandCtx(attempt) as seen:
        seen.serve()
        done = shell(seen, 'cat "$ROTA_CHECKPOINT_FILE"; rota ctx checkpoint --show')
    assert done.stdout == '{"row": 3}\n' * 2


def test_a_fenced_script_stops(attempt: FakeContext[Nothing], seen: CommandCtx) -> None:
    def fence(_: Any) -> None:
        raise Fenced

    attempt.before_checkpoint = fence
    done = shell(seen, "set -e; echo 1 | rota ctx checkpoint -; echo went on")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "rota ctx: fenced: another attempt runs\n")


def test_progress_and_metrics_are_reported(attempt: FakeContext[Nothing], seen: CommandCtx) -> None:
    done = shell(
        seen,
        """set -e
        rota ctx progress 3
        rota ctx progress 4 - rows
        rota ctx progress 5 9.5 rows
        rota ctx result rows=9 url=s3://a/b?c=d part=007
        echo '{"bytes": 12, "rows": 10}' | rota ctx result -
        """,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert attempt.shown == [(3, None, ""), (4, None, "rows"), (5, 9.5, "rows")]
    assert seen.result == {"rows": 10, "url": "s3://a/b?c=d", "part": "007", "bytes": 12}


@pytest.mark.parametrize(
    ("call", "code", "said"),
    [
        ("checkpoint", 2, "checkpoint takes a file"),
        ("checkpoint - --show", 2, "checkpoint takes a file"),
        ("checkpoint no-such-file", 2, "no-such-file: No such file or directory"),
        ("checkpoint - </dev/null", 2, "standard input is not JSON"),
        ("progress half", 2, "'half' is not a number"),
        ("result rows", 2, "rows: No such file"),
        ("result a=1 b", 2, "'b': write NAME=VALUE"),
        ("result rows=99999999999999999999999", 1, "rows: Integer value out of range: give it as text"),
        ("result rows=3 exp=1e400", 1, "exp: Out of range float values are not JSON compliant"),
        ("result rows=3 'all=[1, 1e400]'", 1, "all: Out of range float values are not JSON compliant"),
        ("nonsense", 2, "invalid choice"),
        ("result a=$(head -c 70000 /dev/zero | tr '\\0' x)", 1, "the result has 70009 bytes of JSON; 65536 at most"),
    ],
)
def test_wrong_calls_and_refusals_fail_with_a_message(seen: CommandCtx, call: str, code: int, said: str) -> None:
    done = shell(seen, f"rota ctx {call}")
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr
    assert seen.result == {}


def test_values_too_large_or_unpackable_are_refused(attempt: FakeContext[Nothing], seen: CommandCtx) -> None:
    def too_large(value: Any) -> None:
        raise OverflowError("Integer value out of range") if isinstance(value, int) else ValueError("70000 bytes")

    attempt.before_checkpoint = too_large
    for script, said in (
        ("echo 99999999999999999999999 | rota ctx checkpoint -", "refused: Integer value out of range"),
        ("echo '\"long\"' | rota ctx checkpoint -", "refused: 70000 bytes"),
        (
            "(echo '\"'; head -c 1200000 /dev/zero | tr '\\0' x; echo '\"') | tr -d '\\n' | rota ctx checkpoint -",
            "64 KiB",
        ),
    ):
        done = shell(seen, script)
        assert (done.returncode, said in done.stderr) == (1, True), done.stderr
    assert attempt.saved == []


def test_calls_fail_after_the_attempt_has_ended(attempt: FakeContext[Nothing]) -> None:
    with CommandCtx(attempt) as seen:
        seen.serve()
    done = shell(seen, "rota ctx progress 1")
    assert (done.returncode, "the attempt has ended" in done.stderr) == (1, True), done.stderr
    words = [sys.executable, "-m", "node.cli.entry", "ctx", "progress", "1"]
    outside = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (outside.returncode, "ROTA_CTX_SOCKET is not set" in outside.stderr) == (2, True)


def test_commands_run_on_a_file_system_without_unix_sockets(
    attempt: FakeContext[Nothing],
) -> None:
    refused: list[Path] = []

    def refuse_once(listening: socket.socket, folder: Path) -> Path:
        if not refused:
            refused.append(folder)
            raise OSError(95, "Operation not supported")
        return bound(listening, folder)

    with CommandCtx(attempt, bind=refuse_once) as seen:
        seen.serve()
        elsewhere = seen._socket
        assert elsewhere is not None
        assert attempt.scratch not in elsewhere.parents
        assert elsewhere.parent.stat().st_mode & 0o777 == 0o700
        assert shell(seen, "rota ctx progress 1").returncode == 0
    assert not elsewhere.parent.exists()


def test_rota_ctx_imports_few_modules() -> None:
    # What makes the other commands slow to start; scripts call this one in loops.
    looks = "import sys; sys.argv[1:] = ['ctx', 'progress', '1']; import node.cli.entry as e\n"
    looks += "try: e.main()\nexcept SystemExit: pass\n"
    looks += "print({'click', 'aiohttp', 'urllib3', 'pydantic', 'rich', 'msgpack', 'asyncio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", looks], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_process_of_another_attempt_is_refused(attempt: FakeContext[Nothing], seen: CommandCtx) -> None:
    """It has the socket's path and the rights to it: all attempts have one user."""
    another = subprocess.Popen(["sleep", "60"])
    try:
        seen._family = (another.pid, another.pid)
        for call in ("checkpoint - <<<7", "result rows=1", "progress 1", "checkpoint --show"):
            done = shell(seen, f"bash -c 'rota ctx {call}'")
            assert (done.returncode, done.stdout) == (1, "")
            assert "refused: the caller is not a process of this attempt" in done.stderr
    finally:
        another.kill()
        another.wait()
    assert (attempt.saved, attempt.shown, seen.result) == ([], [], {})


def test_a_long_request_of_a_stranger_is_read_and_refused(attempt: FakeContext[Nothing], seen: CommandCtx) -> None:
    seen._family = (1 << 22, 1 << 22)
    done = shell(
        seen, "(echo '\"'; head -c 300000 /dev/zero | tr '\\0' x; echo '\"') | tr -d '\\n' | rota ctx checkpoint -"
    )
    assert (done.returncode, done.stderr) == (1, "rota ctx: refused: the caller is not a process of this attempt\n")
    assert attempt.saved == []


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "s"))
        made.listen()
        yield made


def test_who_has_connected_and_ended_is_nobody(listening: socket.socket) -> None:
    """Its number may be another process's by now."""
    connects = "import os, socket, sys, time; end = socket.socket(socket.AF_UNIX); end.connect(sys.argv[1])\n"
    connects += "if os.fork() == 0: time.sleep(60)\n"
    before = subprocess.Popen([sys.executable, "-c", connects, listening.getsockname()], start_new_session=True)
    try:
        before.wait(20)
        end, _ = listening.accept()
        with end:
            assert _caller(end) == before.pid
            assert not _is_of(end, _caller(end), (os.getpid(),))
    finally:
        os.killpg(before.pid, signal.SIGKILL)


def test_a_caller_is_known_without_a_descriptor_of_it_and_not_in_another_namespace(listening: socket.socket) -> None:
    class Older(socket.socket):
        """As of a kernel before 6.5."""

        def getsockopt(self, *words: Any) -> Any:
            if words[1] == _SO_PEERPIDFD:
                raise OSError(errno.ENOPROTOOPT, "Protocol not available")
            return super().getsockopt(*words)

    with socket.socket(socket.AF_UNIX) as ours:
        ours.connect(listening.getsockname())
        end, _ = listening.accept()
        assert _is_of(end, _caller(end), (os.getpid(),))
        with Older(fileno=end.detach()) as older:
            assert _is_of(older, _caller(older), (os.getpid(),))
            assert not _is_of(older, _caller(older), (1 << 22,))
            assert not _is_of(older, 0, (0, os.getpid()))
