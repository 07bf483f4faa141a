"""`rota node`: one node in the foreground, from its environment."""

import gc
import logging
import os
import sys

import click

from node.runtime.logs import LogFormat, configure, flush

_log = logging.getLogger("rota")


@click.command("node")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--log-level", type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]), default="INFO", show_default=True
)
def node_command(log_format: LogFormat, log_level: str) -> None:
    """Run a node in the foreground, told by its environment (ROTA_NODE, ROTA_MEMBERS, ROTA_SECRET, ...).

    It stops in good order on SIGTERM, SIGINT or SIGHUP: what runs is handed over. Under nohup it does not heed SIGHUP.
    """
    # What is imported stays. To walk through it again and again took a sixth of a start; `node.app.daemon` does so
    # once.
    gc.disable()
    from node.app.config import BadConfig, load, unknown_settings
    from node.app.daemon import CannotStart, serve

    configure(log_format, log_level)

    def say(level: int, sentence: str) -> None:
        if log_format == "json":
            _log.log(level, "%s", sentence)
        else:
            flush()
            click.echo(f"rota: {sentence}", err=True)

    try:
        config = load(os.environ)
    except BadConfig as error:
        for problem in error.problems:
            say(logging.CRITICAL, problem)
        sys.exit(2)
    for name in unknown_settings(os.environ):
        say(logging.WARNING, f"{name} is not a setting of a node's: a slip of the pen?")
    try:
        sys.exit(serve(config))
    except CannotStart as error:
        say(logging.CRITICAL, str(error))
        sys.exit(1)
