"""The worker: the process in which a kind's `run` does one attempt's work."""

import gc
import importlib
import json
import logging
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final, NoReturn, TextIO

import msgpack
from pydantic import ValidationError

from node.execution import frames
from node.execution.ctx import Ctx, Wire
from node.execution.leftovers import RUN_MARK
from node.execution.linux import die_with_parent, gain_no_rights, lower_session, may_signal_everybody
from node.execution.order import Brief
from tasks.fields import field_errors
from tasks.kind import RESULT_BYTES_MAX, Failed, MissingSecret, Unretryable
from tasks.kinds import KindError, load
from tasks.secret import Redactor, blot_json, references_in

ERROR_CHARS_MAX: Final = 2000


class InvalidParams(Exception):
    """The params were valid when they were registered, and are not for the kind that is installed here."""


class InvalidResult(Exception):
    """What a kind returned is not a small dict of JSON types. Another attempt would return the like."""


NO_RETRY: Final = (Unretryable, MissingSecret, KindError, InvalidParams, InvalidResult)


def enter(
    supervisor: int, keep: Collection[int], brief: Brief, end: socket.socket, output: int, scratch: Path, run_mark: str
) -> NoReturn:
    """Become the worker, in a fresh fork of the supervisor: do the attempt, and exit. Never returns."""
    try:
        _leave_supervisor(supervisor, keep, output, brief)
        os.environ.update({**brief.order.env, RUN_MARK: run_mark})
        os.chdir(scratch)
        _work(brief, Wire(end), scratch)
    except BaseException:  # noqa: BLE001  a fork must not return into its parent's code, whatever happens
        traceback.print_exc()
        os._exit(70)
    os._exit(0)


def _leave_supervisor(supervisor: int, keep: Collection[int], output: int, brief: Brief) -> None:
    die_with_parent(signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)
    if not may_signal_everybody():
        # What becomes another user could be neither frozen when the lease lapses nor killed: it does not start.
        gain_no_rights()
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # The supervisor's descriptors, its channel to the node above all: held here, they would outlive it.
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  Path.iterdir holds a descriptor of its own open
        if int(name) > 2 and int(name) not in keep:
            _close(int(name))
    _close(output)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  they stay open as long as the process
    sys.stdout = _printer(1)
    sys.stderr = _printer(2)
    os.umask(brief.limits.umask)
    os.nice(brief.limits.nice)
    oom_score_adj = Path("/proc/self/oom_score_adj")
    # Raising it needs no privilege; lowering it would, where the node's own is high already.
    oom_score_adj.write_text(str(max(brief.limits.oom_score_adj, int(oom_score_adj.read_text()))))
    gc.enable()


def _close(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        # The one that listdir itself had open.
        return


def _printer(descriptor: int) -> TextIO:
    return open(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _work(brief: Brief, wire: Wire, scratch: Path) -> None:
    order = brief.order
    wire.wait_for_go()
    wire.listen()
    _log_to_stderr()
    redactor = Redactor()
    ctx: Ctx | None = None
    report: frames.Done | frames.FailedFrame
    try:
        kind = load(order.target)
        try:
            params = kind.Params.model_validate(dict(order.params))
        except ValidationError as error:
            found = "; ".join(f"{one.field}: {one.message}" for one in field_errors(error, order.params))
            raise InvalidParams(found) from None
        ctx = Ctx(order, params, wire, scratch, dict(os.environ), redactor)
        for reference in references_in(params):
            # All of them before the work: a missing one is found now and not hours later, halfway through.
            ctx.secret(reference)
        wire.send(frames.StartedFrame())
        lower_session(brief.limits.nice)  # not before: to begin is the node's affair
        result = kind().run(ctx)
        report = frames.Done(_checked(result, redactor), ctx.saw_stop)
    except BaseException as error:  # noqa: BLE001  whatever a kind raises, SystemExit too, is how its attempt ended
        report = frames.FailedFrame(
            _line(error, redactor), not isinstance(error, NO_RETRY), ctx is not None and ctx.saw_stop
        )
        _print(error)
    wire.flush_progress()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    wire.send(report)


def _log_to_stderr() -> None:
    lines = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    lines.converter = time.gmtime
    lines.default_time_format = "%Y-%m-%dT%H:%M:%S"
    lines.default_msec_format = "%s.%03dZ"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(lines)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def _print(error: BaseException) -> None:
    if isinstance(error, (MissingSecret, KindError, InvalidParams, InvalidResult, Failed)):
        # Said in full by their one line; the cause of a kind that does not load is worth its traceback.
        shown = error.__cause__ if isinstance(error, KindError) and error.__cause__ is not None else None
        if shown is None:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201  the log is standard error
            return
    traceback.print_exception(error)


def _line(error: BaseException, redactor: Redactor) -> str:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    # Before the blanks go, with which a secret of several lines would no longer be itself; and after, for what was
    # folded into several lines.
    clean = redactor.blot_text(text.encode("utf-8", "replace").decode())
    return redactor.blot_text(" ".join(clean.split()))[:ERROR_CHARS_MAX]


def _checked(result: Any, redactor: Redactor) -> str | None:
    """The result as JSON, secrets blotted out."""
    if result is None:
        return None
    if not isinstance(result, dict) or not all(isinstance(name, str) for name in result):
        raise InvalidResult(f"a kind returns a dict with text for names, or None, not {type(result).__name__}")
    try:
        clean = blot_json(json.loads(json.dumps(result, allow_nan=False)), redactor)
        # It is replicated as msgpack, which takes no integer beyond 64 bits and no half of a surrogate pair.
        msgpack.packb(clean)
        text = json.dumps(clean, ensure_ascii=False)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidResult(f"a kind returns JSON types only: {error}") from None
    size_bytes = len(text.encode())
    if size_bytes > RESULT_BYTES_MAX:
        raise InvalidResult(f"a result of {size_bytes} bytes of JSON: {RESULT_BYTES_MAX} at most")
    return text


def preload() -> None:
    """Import, in the nursery, what nearly every worker needs, and our own kind that is to start at once."""
    importlib.import_module("tasks.command")
