"""`rota ctx` as a click command, so that `rota --help` lists it. `ctx_call` implements it."""

import click

from node.cli.ctx_call import call


@click.command("ctx", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def ctx_command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """From inside a task of kind command: save a checkpoint, report progress, leave a result."""
    ctx.exit(call(words))
