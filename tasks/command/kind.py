"""The kind `command`: runs any program. Its output goes to the attempt's log.

A member offers this kind only if its configuration allows it (`ROTA_ALLOW_COMMAND`), since the program runs as the
node's own user.
"""

import logging
import os
import select
import signal
import subprocess
from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from tasks.command.ctx import VARIABLES, CommandCtx
from tasks.kind import Context, Failed
from tasks.needs import Needs
from tasks.secret import Reference

CHECK_S: Final = 0.2
"""The interval for checking whether a running command should stop. The end of its process is noticed at once."""

RESULT: Final = {
    "exit_code": "0",
    "...": "what the program passed to `rota ctx result`",
}
"""The fields of a run's result, with their descriptions for docs/reference."""

CommandText = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
"""An argument of a program, or the value of one of its variables."""


def _free(name: str) -> str:
    if name in VARIABLES:
        raise ValueError("is set by Rota for each attempt: give this variable another name")
    return name


CommandVariable = Annotated[str, StringConstraints(pattern=r"^[^\x00=]+$", max_length=1024), AfterValidator(_free)]
"""The name of a variable that a task may set for a program."""


class CommandFailed(Failed):
    """The program could not be started, or its exit code was not 0."""


class CommandParams(BaseModel):
    """The program to run. It inherits the node's environment variables, except ROTA_*.

    Rota sets variables that name the run; `env` may not set those: ROTA_RUN_ID, ROTA_TASK, ROTA_FIRE_AT, ROTA_NOMINAL,
    ROTA_WINDOW_START, ROTA_WINDOW_END, ROTA_ATTEMPT, ROTA_FENCING_NUMBER, ROTA_CHECKPOINT_FILE and ROTA_CTX_SOCKET.
    """

    model_config = ConfigDict(extra="forbid")

    argv: Annotated[
        list[CommandText],
        Field(
            min_length=1,
            max_length=10_000,
            description="The program and its arguments; no shell is involved",
            examples=[["pg_dump", "--version"]],
        ),
    ]
    env: dict[CommandVariable, CommandText | Reference] = Field(
        default={}, description="Variables to add to the node's own; a value may be a reference to a secret"
    )
    cwd: Annotated[str, StringConstraints(pattern=r"^[^\x00]+$")] | None = Field(
        default=None,
        description="The folder to run in; null: the attempt's scratch folder, which is removed at its end",
    )


class Command:
    """Runs a program. Exit code 0 is success; SIGTERM to its process group asks it to stop.

    The run's result has the values that the program passed to `rota ctx result`, and `exit_code`.
    """

    Params = CommandParams

    @staticmethod
    def needs(params: CommandParams, task: str) -> Needs:
        """Return the needs of an attempt (`tasks.kind.Kind`): everything, since any program may run."""
        return Needs(everything=True)

    def run(self, ctx: Context[CommandParams]) -> dict[str, Any]:
        """Run the program to its end. Returns the values that it passed to `rota ctx result`, and `exit_code`.

        Raises `CommandFailed` and `MissingSecret`.
        """
        params = ctx.params
        own = {name: value if isinstance(value, str) else ctx.secret(value) for name, value in params.env.items()}
        program = params.argv[0]
        try:
            with CommandCtx(ctx) as seen:
                try:
                    # In its own process group, so that a signal to the group does not stop this worker.
                    process = subprocess.Popen(
                        params.argv,
                        cwd=params.cwd if params.cwd is not None else ctx.scratch,
                        env=seen.environment(inherited_environment() | own),
                        stdin=subprocess.DEVNULL,
                        process_group=0,
                    )
                except OSError as error:
                    missing = f"{error.filename or program}: {error.strerror}"
                    raise CommandFailed(f"cannot start {program!r}: {missing}") from None
                seen.serve()
                code = _wait(process, ctx)
        except OSError as error:
            raise CommandFailed(
                f"cannot prepare the files and the socket of {program!r} for its run: {error}"
            ) from None
        if code != 0:
            raise CommandFailed(f"{program!r} {_ended(code)}")
        return {**seen.result, "exit_code": 0}


def inherited_environment() -> dict[str, str]:
    """Return the variables that a task's program inherits: the node's own, except ROTA_*."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}


def _wait(process: subprocess.Popen[bytes], ctx: Context[CommandParams]) -> int:
    """Wait for the program, and pass a request to stop on as one SIGTERM. Returns the exit code; negative: a signal."""
    asked = False
    pidfd = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        while not poll.poll(None if asked else CHECK_S * 1000):
            if ctx.cancelled and not asked:
                asked = True
                _terminate(process.pid, ctx.log)
        return process.wait()
    finally:
        os.close(pidfd)


def _terminate(group: int, log: logging.Logger, kill: Callable[[int, int], None] = os.killpg) -> None:
    log.info("asked to stop: sending SIGTERM to the command's process group")
    try:
        kill(group, signal.SIGTERM)
    except ProcessLookupError:
        log.info("the command had already ended")
    except PermissionError:
        log.warning("the command cannot be signalled: it runs as another user")


def _ended(code: int) -> str:
    if code > 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
