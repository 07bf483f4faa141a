"""`rota node`: runs one node in the foreground, configured by its environment."""

import gc
import logging
import os
import sys

import click

from node.runtime.logs import LogFormat, configure, flush

_log = logging.getLogger("rota")


@click.command("node")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Log lines as text, or one JSON object on each line.",
)
@click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]),
    default="INFO",
    show_default=True,
    help="The least level that is logged.",
)
def node_command(log_format: LogFormat, log_level: str) -> None:
    """Run a node in the foreground, configured by ROTA_* variables (ROTA_NODE, ROTA_MEMBERS, ROTA_SECRET, ...).

    On SIGTERM, SIGINT or SIGHUP the node hands its runs over to other members and stops. Under nohup it ignores SIGHUP.
    """
    # Imported modules stay in memory, so garbage collection during the imports is useless; it took a sixth of the start
    # time. `node.app.daemon` turns the collector on afterwards.
    gc.disable()
    from node.app.config import BadConfig, load_config
    from node.app.daemon import CannotStart, run_node
    from node.settings.own_environment import NotHandedOver, handed_over
    from node.settings.table import unknown_settings

    configure(log_format, log_level)

    def say(level: int, sentence: str) -> None:
        if log_format == "json":
            _log.log(level, "%s", sentence)
        else:
            flush()
            click.echo(f"rota: {sentence}", err=True)

    try:
        config = load_config({**os.environ, **handed_over()})
    except NotHandedOver as error:
        say(logging.CRITICAL, str(error))
        sys.exit(2)
    except BadConfig as error:
        for problem in error.problems:
            say(logging.CRITICAL, problem)
        sys.exit(2)
    for name in unknown_settings(os.environ):
        say(logging.WARNING, f"{name} is not a setting and is ignored; is it misspelt?")
    try:
        sys.exit(run_node(config))
    except CannotStart as error:
        say(logging.CRITICAL, str(error))
        sys.exit(1)
