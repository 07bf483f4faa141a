"""The worker: the process in which a kind's `run` does the work of one attempt."""

import gc
import importlib
import json
import logging
import os
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, TextIO

import msgpack
from pydantic import ValidationError

from node.execution import frames, rehearsal
from node.execution.account import Account, become
from node.execution.attempt_context import AttemptContext
from node.execution.confining import ANY_PATH, confine, confine_early, give_up_capabilities
from node.execution.domain import allow_missing, installation
from node.execution.linux import (
    die_with_parent,
    gain_no_rights,
    lower_session,
    may_signal_everybody,
    open_memory,
    session_priority,
)
from node.execution.order import AttemptLimits, Brief, Order, scratch_path
from node.execution.preparation import PreparationBrief
from node.execution.supervisor_link import SupervisorLink
from tasks.definition.field_errors import field_errors
from tasks.installed_kinds import KindError, action_of, load_kind, moving_reaches, preparation_at
from tasks.kind import RESULT_BYTES_MAX, Away, Failed, Kind, MissingSecret, Unretryable
from tasks.landlock import Ruleset
from tasks.needs import Needs
from tasks.processes import RUN_MARK
from tasks.seccomp import is_supported, made_program
from tasks.secret import Redactor, redact_json, references_in
from tasks.version import version

ERROR_CHARS_MAX: Final = 2000


class InvalidParams(Exception):
    """The params were valid at registration, but are invalid for the version of the kind that is installed here."""


class InvalidResult(Exception):
    """A kind did not return a small dict of JSON types. Another attempt would return the same."""


NICEST: Final = 19
"""The niceness of the work of backfills."""

NO_RETRY: Final = (Unretryable, MissingSecret, KindError, InvalidParams, InvalidResult)


def enter(supervisor: int, end: socket.socket, output: int, *, rehearses: bool) -> NoReturn:
    """Become the worker, in a fresh fork of the supervisor: wait for the brief, do the work, report, and exit.

    `end` is the channel to the supervisor, `output` the pipe to the log. `rehearses`: it rehearses its start first.
    """
    try:
        _leave_supervisor(supervisor, (end.fileno(), output), output)
        link = SupervisorLink(end)
        _log_to_stderr()
        if rehearses:
            rehearsal.of_worker(link)
        brief = link.wait_for_brief()
        _limit(brief.limits)
        priority = session_priority()
        prepared = None
        if isinstance(brief, PreparationBrief):
            ruleset = link.wait_for_go()
            prepared = brief.scratch
            link.send(frames.PreparedFrame(_prepare(brief, _ruleset(brief.limits, ruleset))))
            brief = link.wait_for_brief()
        assert isinstance(brief, Brief)
        order = brief.order
        fault = None if prepared is not None else _confine_early(order)
        ruleset = link.wait_for_go()
        link.send(frames.TakenFrame())
        scratch = scratch_path(Path(brief.folder), order, prepared)
        os.environ.update({**order.env, RUN_MARK: f"{order.run_id}:{order.token}"})
        os.chdir(scratch)
        start = _Start(_ruleset(brief.limits, ruleset), priority, prepared is not None, link.account, fault)
        _work(brief, link, scratch, start)
    except BaseException:  # noqa: BLE001  a fork must not return into its parent's code, whatever happens
        traceback.print_exc()
        os._exit(70)
    os._exit(0)


class _Start(NamedTuple):
    """The state of the process as the work begins.

    `ruleset` is the ruleset to enter, `priority` a descriptor of the session's priority. `confined`: the process was
    prepared, and so is confined already. `account` is the user to become; None: keep the node's user. `fault` is the
    error that occurred when it gave up rights; None: no error.
    """

    ruleset: Ruleset | None
    priority: int | None
    confined: bool
    account: Account | None
    fault: OSError | None


def _ruleset(limits: AttemptLimits, descriptor: int | None) -> Ruleset | None:
    return None if descriptor is None else Ruleset(limits.landlock, descriptor)


def _confine_early(order: Order) -> OSError | None:
    """Give up rights while the supervisor prepares the attempt. Returns the error that fails the attempt, or None."""
    try:
        confine_early(order.needs, order.access, becomes=bool(order.run_as) or order.uid is not None)
    except OSError as error:
        return error
    return None


def _prepare(brief: PreparationBrief, ruleset: Ruleset | None) -> str:
    """Run the preparation. Returns why it failed, in one line; "" if it did not fail.

    After a failure an attempt may still come. It then runs without the preparation, and meets the fault itself. But if
    the process cannot be confined, this raises, because no attempt may run in it.
    """
    os.environ.update({**brief.env, RUN_MARK: brief.mark})
    os.chdir(brief.scratch)
    needs = Needs(reaches=ANY_PATH, tools=brief.tools)
    confine_early(needs, brief.access, becomes=False)
    confine(needs, brief.access, brief.scratch, ruleset, brief.target)
    try:
        preparation_at(brief.target)(dict(os.environ), brief.scratch)
    except BaseException as error:  # noqa: BLE001  whatever it raises
        traceback.print_exc()
        return _line(error, Redactor())
    return ""


def _leave_supervisor(supervisor: int, keep: Collection[int], output: int) -> None:
    die_with_parent(signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)
    if not may_signal_everybody():
        # A program that becomes another user could be neither frozen nor killed, so it must not gain rights.
        gain_no_rights()
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # Close the supervisor's descriptors. If its channel to the node stayed open here, the node would not see it end.
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  Path.iterdir holds a descriptor of its own open
        if int(name) > 2 and int(name) not in keep:
            _close(int(name))
    _close(output)
    # No descriptor of the supervisor is left. The JVM reads /proc/WORKER/fd, and this process writes below /proc/self.
    open_memory()
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  open for the life of the process
    sys.stdout = _printer(1)
    sys.stderr = _printer(2)


def _limit(limits: AttemptLimits) -> None:
    os.umask(limits.umask)
    os.nice(limits.nice)
    # The image of a worker's memory may hold secrets, and fills the disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    oom_score_adj = Path("/proc/self/oom_score_adj")
    # Raising the score needs no privilege; lowering it would, if the node's own score is already higher.
    oom_score_adj.write_text(str(max(limits.oom_score_adj, int(oom_score_adj.read_text()))))
    gc.enable()


def _close(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        # The descriptor that listdir itself had open.
        return


def _printer(descriptor: int) -> TextIO:
    return open(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _work(brief: Brief, link: SupervisorLink, scratch: Path, start: _Start) -> None:
    order, nice = brief.order, brief.limits.nice
    if order.backfill:
        nice = NICEST
        os.nice(nice)
    if start.confined:
        _log_to_stderr()  # again, because the preparation may have changed it
    redactor = Redactor()
    ctx: AttemptContext | None = None
    report: frames.DoneFrame | frames.FailedFrame
    try:
        if not start.confined:
            # Before the kind or the link starts a thread, since that thread would stay outside of the domain.
            if start.fault is not None:
                raise start.fault
            if start.account is not None:
                _become(start.account, brief, scratch, start.ruleset, link)
            confine(order.needs, order.access, scratch, start.ruleset, order.target)
        kind = load_kind(order.target)
        work = _work_of(kind, order)
        try:
            params = kind.Params.model_validate(dict(order.params))
            moved = [] if order.like is None else moving_reaches(kind, order.params, order.like)
        except ValidationError as error:
            raise InvalidParams(_faults(error, order.params)) from None
        if moved:
            raise InvalidParams("; ".join(f"{one.field}: {one.message}" for one in moved))
        ctx = AttemptContext(order, params, link, scratch, redactor)
        for reference in references_in(params):
            # Resolve every secret before the work, so that a missing one fails the attempt now and not hours later.
            ctx.secret(reference)
        link.send(frames.StartedFrame())
        lower_session(nice, start.priority)  # not before: the start has the node's priority
        result = work(ctx)
        report = frames.DoneFrame(_checked(result, redactor), ctx.saw_stop)
    except BaseException as error:  # noqa: BLE001  whatever a kind raises, including SystemExit, fails the attempt
        report = frames.FailedFrame(
            _line(error, redactor),
            not isinstance(error, NO_RETRY),
            ctx is not None and ctx.saw_stop,
            isinstance(error, Away),
        )
        _print(error)
        if link.remarks:
            print(link.remarks, file=sys.stderr)  # noqa: T201  the log is standard error
    link.flush_progress()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    link.send(report)


def _become(account: Account, brief: Brief, scratch: Path, ruleset: Ruleset | None, link: SupervisorLink) -> None:
    """Become the attempt's user, and make missing destinations as that user. Raises `RefusedUser`, `CannotConfine`."""
    order = brief.order
    become(account, 1, (scratch, Path(os.__file__), Path(__file__)))
    give_up_capabilities(order.needs)
    if ruleset is not None and order.needs.confined:
        made = allow_missing(ruleset, order.needs, order.access, order.task, brief.limits.umask)
        link.remarks = "\n".join(filter(None, (link.remarks, *made)))


def _work_of(kind: type[Kind[Any]], order: Order) -> Callable[[AttemptContext], dict[str, Any] | None]:
    """Return the function that does the kind's work, or its action. Raises `KindError` and `InvalidParams`."""
    if not order.action:
        return kind().run
    model = action_of(kind, order.action)
    try:
        args = model.model_validate(dict(order.args))
    except ValidationError as error:
        raise InvalidParams(f"{order.action}: {_faults(error, order.args, 'args')}") from None
    action = getattr(kind(), order.action)
    return lambda ctx: action(ctx, args)


def _faults(error: ValidationError, given: Mapping[str, Any], what: str = "params") -> str:
    found = field_errors(error, given)
    return "; ".join(f"{what}{one.field.removeprefix('params')}: {one.message}" for one in found)


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
        # One line is enough, unless the kind does not load: then the traceback of the cause helps.
        shown = error.__cause__ if isinstance(error, KindError) and error.__cause__ is not None else None
        if shown is None:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201  the log is standard error
            return
    traceback.print_exception(error)


def _line(error: BaseException, redactor: Redactor) -> str:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    # Redact before white space is collapsed, because this would change a secret of several lines; and redact again
    # after, to find a secret that was wrapped into several lines.
    clean = redactor.redact_text(text.encode("utf-8", "replace").decode())
    return redactor.redact_text(" ".join(clean.split()))[:ERROR_CHARS_MAX]


def _checked(result: Any, redactor: Redactor) -> str | None:
    """Encode the result as JSON, with secrets redacted. Raises `InvalidResult`."""
    if result is None:
        return None
    if not isinstance(result, dict) or not all(isinstance(name, str) for name in result):
        raise InvalidResult(f"a kind must return a dict whose keys are text, or None, not {type(result).__name__}")
    try:
        clean = redact_json(json.loads(json.dumps(result, allow_nan=False)), redactor)
        # The result is replicated as msgpack, which has no integers beyond 64 bits and no lone surrogates.
        msgpack.packb(clean)
        text = json.dumps(clean, ensure_ascii=False)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidResult(f"a kind must return JSON types only: {error}") from None
    size_bytes = len(text.encode())
    if size_bytes > RESULT_BYTES_MAX:
        raise InvalidResult(f"the result has {size_bytes} bytes of JSON; {RESULT_BYTES_MAX} at most are allowed")
    return text


def preload() -> None:
    """Do in the nursery the steps that nearly every attempt needs: import `command`, find installation and version."""
    importlib.import_module("tasks.command.kind")
    installation()
    version()  # a confined attempt may not read git's files
    if is_supported():
        for network in (True, False):
            made_program(network=network)
