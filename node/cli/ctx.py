"""`rota ctx` as one of the commands: so that `rota --help` names it. What it does is in `ctx_call`."""

import click

from node.cli.ctx_call import call


@click.command("ctx", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def ctx_command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Inside a command that Rota runs: its checkpoint, progress and result."""
    ctx.exit(call(words))
