"""`rota node`: one node in the foreground, from its environment."""

import os
import sys

import click

from node.log import LogFormat, configure


@click.command("node")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--log-level", type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]), default="INFO", show_default=True
)
def node_command(log_format: LogFormat, log_level: str) -> None:
    """Run a node in the foreground, told by its environment (ROTA_NODE, ROTA_MEMBERS, ROTA_SECRET, ...).

    It stops in good order on SIGTERM or SIGINT: what runs is handed over.
    """
    from node.config import BadConfig, load, unknown_settings
    from node.serving import CannotStart, serve

    configure(log_format, log_level)
    try:
        config = load(os.environ)
    except BadConfig as error:
        for problem in error.problems:
            click.echo(f"rota: {problem}", err=True)
        sys.exit(2)
    for name in unknown_settings(os.environ):
        click.echo(f"rota: {name} is not a setting of a node's: a slip of the pen?", err=True)
    try:
        sys.exit(serve(config))
    except CannotStart as error:
        raise click.ClickException(str(error)) from error
