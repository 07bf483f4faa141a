"""docs/reference/cli.md, from the commands of `rota`."""

import argparse
import inspect
from collections.abc import Iterator
from typing import Final

import click

from node.cli.ctx_call import ctx_parser
from node.cli.main import EXIT_CODES, rota
from testkit.reference.markdown import MADE_BY, code, table

PATH: Final = "docs/reference/cli.md"

_JSON: Final = "--json"


def render() -> str:
    """The page."""
    context = click.Context(rota, info_name="rota")
    parts = [MADE_BY, "\n# Command line\n\n", _prose(rota), "\n", _exit_codes(), "\n", _common()]
    for name, command in _commands(rota, context, "rota"):
        parts.append(f"\n## `{name}`\n\n")
        parts.append(_ctx() if name == "rota ctx" else _command(name, command))
    return "".join(parts)


def _commands(group: click.Group, context: click.Context, prefix: str) -> Iterator[tuple[str, click.Command]]:
    """Every command below a group with its full name, groups before their commands."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        yield f"{prefix} {name}", command
        if isinstance(command, click.Group):
            yield from _commands(command, context, f"{prefix} {name}")


def _prose(command: click.Command) -> str:
    return inspect.cleandoc(command.help or "").replace("\b\n", "") + "\n"


def _exit_codes() -> str:
    rows = ((code(str(number)), meaning) for number, meaning in EXIT_CODES.items())
    return "## Exit codes\n\n" + table(("code", "meaning"), rows)


def _common() -> str:
    return (
        "## Options of all commands\n\n"
        "Every command has `-h` and `--help`; `rota --version` prints the version. Commands that ask the API have "
        "`--json`, which prints the API's answer as it came, for programs. The environment variables are in "
        "[settings.md](settings.md).\n"
    )


def _command(name: str, command: click.Command) -> str:
    shown = [parameter for parameter in command.params if _JSON not in parameter.opts]
    as_json = len(shown) < len(command.params)
    words = [*map(_usage, sorted(shown, key=lambda parameter: isinstance(parameter, click.Option)))]
    words += [f"[{_JSON}]"] * as_json + ["COMMAND ..."] * isinstance(command, click.Group)
    options = [parameter for parameter in shown if isinstance(parameter, click.Option)]
    usage = f"```\n{' '.join([name, *words])}\n```\n\n{_prose(command)}"
    return usage + ("\n" + table(("option", "meaning"), map(_row, options)) if options else "")


def _usage(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Option):
        word = f"{parameter.opts[-1]}{_value(parameter)}"
    else:
        metavar = parameter.metavar or (parameter.name or "").upper()
        if metavar.startswith("["):
            return metavar
        word = metavar
    many = "..." if parameter.multiple else ""
    return (word if parameter.required else f"[{word}]") + many


def _value(option: click.Option) -> str:
    if option.is_flag:
        return ""
    if isinstance(option.type, click.Choice):
        return " " + "|".join(map(str, option.type.choices))
    return f" {option.metavar or _metavar(option)}"


def _metavar(option: click.Option) -> str:
    """What stands for a value whose option does not name it: N for a number, else the option's own name."""
    if isinstance(option.type, click.types.IntParamType):
        return "N"
    return option.opts[-1].lstrip("-").upper().replace("-", "_")


def _row(option: click.Option) -> tuple[str, str]:
    names = ", ".join(code(f"{name}{_value(option)}") for name in option.opts)
    notes = []
    if option.multiple:
        notes.append("May be given several times.")
    if option.show_default and option.default is not None:
        notes.append(f"Default: {code(str(option.default))}.")
    if isinstance(option.type, click.IntRange):
        least, most = option.type.min, option.type.max
        notes.append(f"At least {least}." if most is None else f"{least} to {most}.")
    return names, " ".join([option.help or "", *notes]).strip()


def _ctx() -> str:
    """`rota ctx` is read by argparse, so that it starts quickly."""
    parser = ctx_parser()
    [subcommands] = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    parts = [f"{parser.description}\n\n{parser.epilog}\n"]
    for name, subparser in subcommands.choices.items():
        actions = [action for action in subparser._actions if not isinstance(action, argparse._HelpAction)]
        words = " ".join(map(_ctx_usage, actions))
        parts.append(f"\n```\nrota ctx {name} {words}\n```\n\n{subparser.description}\n")
        if rows := [(code(_ctx_word(action)), action.help) for action in actions if action.help]:
            parts.append("\n" + table(("argument", "meaning"), rows))
    return "".join(parts)


def _ctx_word(action: argparse.Action) -> str:
    return str(action.option_strings[0] if action.option_strings else action.metavar)


def _ctx_usage(action: argparse.Action) -> str:
    word = _ctx_word(action)
    if action.nargs == "+":
        return f"{word}..."
    return f"[{word}]" if action.option_strings or action.nargs == "?" else word
