"""The command `rota`: imports only the module of the subcommand that is called, so that each starts quickly."""

import difflib
import errno
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Final

import click

from node.cli.text import say
from node.client import ApiProblem, Client, Unreachable
from tasks.version import version

DONE, FAILED, WRONG_CALL, UNREACHABLE, DIFFERENT = range(5)
ABORTED: Final = 130

_CANNOT_WRITE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

EXIT_CODES: Final = {
    DONE: "done",
    FAILED: "the API or the command refused, or the run that was waited for did not succeed",
    WRONG_CALL: "wrong call: an unknown option, a file that cannot be read, a field or a token that the API rejects",
    UNREACHABLE: "no node answered, or the cluster has no quorum: the same command may succeed later",
    DIFFERENT: "rota diff: the files and the cluster differ",
    ABORTED: "interrupted with Ctrl-C",
}
"""What each exit code means, for `rota --help` and docs/reference/cli.md."""

_MODULES: Final = {
    "node": "serve",
    "up": "up",
    "apply": "applying",
    "diff": "applying",
    "schema": "schema",
    "import": "importing",
    "tasks": "tasks",
    "show": "tasks",
    "where": "tasks",
    "why": "why",
    "graph": "graph",
    "pause": "tasks",
    "resume": "tasks",
    "delete": "tasks",
    "run": "runs",
    "runs": "runs",
    "log": "runs",
    "cancel": "runs",
    "preview": "actions",
    "etl": "actions",
    "members": "members",
    "join": "members",
    "drain": "members",
    "undrain": "members",
    "remove": "members",
    "bootstraps": "members",
    "plan": "cluster",
    "what-if": "what_if",
    "settings": "cluster",
    "kinds": "cluster",
    "pools": "pools",
    "calendar": "calendars",
    "blackout": "blackouts",
    "backfill": "backfills",
    "status": "cluster",
    "notify": "notify",
    "ctx": "ctx",
    "backup": "backups",
    "wal": "wal",
    "cluster": "recovery",
}


_ELSEWHERE: Final = {
    "init": "up",
    "start": "up",
    "dev": "up",
    "serve": "node",
    "server": "node",
    "agent": "node",
    "list": "tasks",
    "ls": "tasks",
    "get": "show",
    "describe": "show",
    "logs": "log",
    "trigger": "run",
    "exec": "run",
    "stop": "cancel",
    "kill": "cancel",
    "rm": "delete",
    "unpause": "resume",
    "nodes": "members",
    "history": "runs",
    "jobs": "tasks",
    "validate": "diff",
    "export": "show",
    "config": "settings",
}
"""The names of commands in other schedulers and similar tools, each with the command of `rota` that does the same."""


class _LazyGroup(click.Group):
    """A group that imports the module of a command when that command is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _MODULES.get(cmd_name)
        if module is None:
            return None
        command = getattr(importlib.import_module(f"node.cli.{module}"), f"{cmd_name.replace('-', '_')}_command")
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the command as the base class does, but propose other names in the error for an unknown one."""
        if args[0] not in _MODULES and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}.{_proposal(args[0])}")
        return super().resolve_command(ctx, args)


def _proposal(given: str) -> str:
    """Name the commands that the caller may have meant by the wrong name `given`; "" if none is similar.

    >>> _proposal("logs"), _proposal("stat"), _proposal("xyzzy")
    (" Did you mean 'log'?", " Did you mean 'status'?", '')
    """
    likely = _ELSEWHERE.get(given)
    names = [likely] if likely else difflib.get_close_matches(given, _MODULES, n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(map(repr, names))}?" if names else ""


def _print_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"rota {version()}")
        ctx.exit()


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"Exit codes: {'; '.join(f'{code} {meaning}' for code, meaning in EXIT_CODES.items())}.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def rota() -> None:
    """A small cluster of equal nodes that runs backups, ETL and Spark ingests.

    ROTA_URL is the address of the cluster's API, or several addresses, separated by commas (default
    http://127.0.0.1:8101). ROTA_TOKEN is the token, or ROTA_TOKEN_FILE a file that holds the token; neither is needed
    for a cluster that `rota up` runs on this machine.
    """


def main(arguments: Sequence[str] | None = None, client: Client | None = None) -> None:
    """Run the command line and exit with its code.

    `arguments` are the words after `rota`; None: the arguments of this process. `client` None: a client for ROTA_URL.
    """
    words = None if arguments is None else list(arguments)
    sys.exit(exit_code_after(lambda: rota.main(words, standalone_mode=False, obj=client)))


def exit_code_after(command: Callable[[], object]) -> int:
    """Run a command, print an expected error as a sentence, and return the exit code. Other exceptions propagate."""
    try:
        # click returns the exit code of a command that ended by ctx.exit(); other commands return None.
        code = command()
    except click.Abort:
        return ABORTED
    except click.ClickException as error:
        error.show()
        return WRONG_CALL if isinstance(error, click.UsageError) else FAILED
    except Unreachable as error:
        return _say(str(error) + "\nIs the cluster running? ROTA_URL is the address that is asked.", UNREACHABLE)
    except ApiProblem as problem:
        return _say(str(problem), exit_code_of(problem))
    except BrokenPipeError:
        sys.stderr.close()
        return DONE
    except OSError as error:
        if error.errno not in _CANNOT_WRITE or error.filename is not None:
            raise
        return _say(f"cannot write the output: {error.strerror}", FAILED)
    return code if isinstance(code, int) else DONE


def exit_code_of(problem: ApiProblem) -> int:
    """Return the exit code for a refusal by the API."""
    if problem.no_quorum:
        return UNREACHABLE
    return WRONG_CALL if problem.status in (400, 401, 413, 415, 422) else FAILED


def _say(sentence: str, code: int) -> int:
    say(f"rota: {sentence}", err=True)
    return code
