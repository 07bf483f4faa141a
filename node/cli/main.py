"""The command `rota`: finds the group of a command and imports only that, so that each starts quickly."""

import importlib
import sys
from typing import Final

import click

from node.cli.text import say
from node.client import ApiProblem, Unreachable

DONE, FAILED, WRONG_CALL, UNREACHABLE = range(4)
"""Exit codes (DESIGN.md, section 10)."""

_MODULES: Final = {
    "node": "serve",
    "up": "up",
    "apply": "tasks",
    "tasks": "tasks",
    "show": "tasks",
    "where": "tasks",
    "pause": "tasks",
    "resume": "tasks",
    "delete": "tasks",
    "run": "runs",
    "runs": "runs",
    "log": "runs",
    "cancel": "runs",
    "members": "members",
    "join": "members",
    "drain": "members",
    "undrain": "members",
    "remove": "members",
    "plan": "cluster",
    "settings": "cluster",
    "kinds": "cluster",
    "status": "cluster",
    "ctx": "ctx",
    "backup": "backups",
    "cluster": "recovery",
}


class _Lazy(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _MODULES.get(cmd_name)
        if module is None:
            return None
        command = getattr(importlib.import_module(f"node.cli.{module}"), f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rota", message="%(package)s %(version)s")
def rota() -> None:
    """A small cluster of equal nodes that runs backups, ETL and Spark ingests.

    ROTA_URL says where the cluster is (one address or several, separated by commas; http://127.0.0.1:8101 if
    it is not set), ROTA_TOKEN or ROTA_TOKEN_FILE holds the token where one is asked for; that of `rota up`
    is found without.

    Exit codes: 0 done, 1 the thing failed, 2 the call was wrong, 3 no quorum or unreachable.
    """


def main() -> None:
    """Run the command line, and turn what went wrong into a sentence and an exit code."""
    try:
        # Click returns the code of a command that asks to exit; commands themselves return nothing.
        code = rota.main(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else DONE)
    except click.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(WRONG_CALL if isinstance(error, click.UsageError) else FAILED)
    except Unreachable as error:
        sys.exit(_say(str(error) + "\nIs the cluster running? ROTA_URL says where to look.", UNREACHABLE))
    except ApiProblem as problem:
        sys.exit(_say(str(problem), exit_code_of(problem)))
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(DONE)


def exit_code_of(problem: ApiProblem) -> int:
    """Which exit code an answer of the API stands for."""
    if problem.no_quorum:
        return UNREACHABLE
    return WRONG_CALL if problem.status in (400, 401, 413, 415, 422) else FAILED


def _say(sentence: str, code: int) -> int:
    say(f"rota: {sentence}", err=True)
    return code


if __name__ == "__main__":
    main()
