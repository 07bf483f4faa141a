"""`rota ctx`: what a program that a `command` task runs says to its own attempt. Quick to start: it imports little.

It speaks to the socket that `tasks.command_ctx` serves. Exit codes: 0 done, 1 fenced or refused, 2 the call was wrong.
"""

import argparse
import json
import os
import socket
import sys
from collections.abc import Sequence
from math import isfinite, nan
from pathlib import Path
from typing import Any, Final

SOCKET: Final = "ROTA_CTX_SOCKET"
REQUEST_BYTES_MAX: Final = 1024 * 1024
DONE, REFUSED, WRONG_CALL = range(3)


class WrongCall(Exception):
    """What was asked for cannot be meant. The message says what would be right."""


class CtxRefused(Exception):
    """The attempt is fenced or over, or what it was told is not taken. The message says which."""


def call(words: Sequence[str]) -> int:
    """Do what the words say. The exit code."""
    try:
        given = _parser().parse_args(words)
        sys.stdout.write(given.does(given))
    except WrongCall as error:
        return _say(str(error), WRONG_CALL)
    except CtxRefused as error:
        return _say(str(error), REFUSED)
    except SystemExit as end:  # argparse has said why
        return end.code if isinstance(end.code, int) else WRONG_CALL
    return DONE


def _say(sentence: str, code: int) -> int:
    sys.stderr.write(f"rota ctx: {sentence}\n")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rota ctx",
        description="What a program says to the run that it belongs to, from inside a task of kind command.",
        epilog="Exit codes: 0 done, 1 fenced (another attempt runs) or refused, 2 the call was wrong.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(required=True, metavar="checkpoint | progress | result")
    checkpoint = commands.add_parser(
        "checkpoint",
        help="commit the place to resume from",
        description="Commit JSON as the place to resume from. Returns when a majority of the members has it.",
    )
    checkpoint.add_argument("file", metavar="FILE", nargs="?", help="a file that holds JSON; - for standard input")
    checkpoint.add_argument("--show", action="store_true", help="print the last one instead; nothing if there is none")
    checkpoint.set_defaults(does=_checkpoint)
    progress = commands.add_parser("progress", help="say how far the work is")
    progress.add_argument("done", metavar="DONE", type=_number)
    progress.add_argument("total", metavar="TOTAL", type=_total, nargs="?", help="- where it is not known")
    progress.add_argument("unit", metavar="UNIT", nargs="?", default="")
    progress.set_defaults(does=_progress)
    result = commands.add_parser(
        "result",
        help="leave figures as the run's result",
        description="Leave figures as the run's result, beside those that are there. A value that is JSON is taken as "
        "such, anything else as text.",
    )
    result.add_argument("figures", metavar="FILE|-|NAME=VALUE", nargs="+")
    result.set_defaults(does=_result)
    return parser


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = nan
    if not isfinite(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return number


def _total(text: str) -> float | None:
    return None if text == "-" else _number(text)


def _checkpoint(given: argparse.Namespace) -> str:
    if given.show == (given.file is not None):
        raise WrongCall("checkpoint takes a file that holds JSON (- for standard input), or --show")
    if given.show:
        return str(_ask({"do": "show"})["value"])
    _ask({"do": "checkpoint", "value": _json_of(given.file)})
    return ""


def _progress(given: argparse.Namespace) -> str:
    _ask({"do": "progress", "done": given.done, "total": given.total, "unit": given.unit})
    return ""


def _result(given: argparse.Namespace) -> str:
    figures: dict[str, Any] = {}
    if len(given.figures) == 1 and "=" not in given.figures[0]:
        figures = _json_of(given.figures[0])
        if not isinstance(figures, dict):
            raise WrongCall("a result is a JSON object, with a name for each figure")
    else:
        for word in given.figures:
            name, equals, value = word.partition("=")
            if not name or not equals:
                raise WrongCall(f"{word!r} is no figure: write NAME=VALUE, or one file that holds JSON")
            figures[name] = _value(value)
    _ask({"do": "result", "value": figures})
    return ""


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=str)
    except ValueError:
        return text


def _json_of(file: str) -> Any:
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise WrongCall(f"{file}: {error.strerror}") from error
    where = "standard input" if file == "-" else file
    try:
        return json.loads(content, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise WrongCall(f"{where} holds no JSON: {error or 'it is nested too deep'}") from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON's")


def _ask(request: dict[str, Any]) -> dict[str, Any]:
    """The answer of the attempt. Raises `CtxRefused` and `WrongCall`."""
    where = os.environ.get(SOCKET)
    if not where:
        raise WrongCall(f"{SOCKET} is not set: this is for programs that a task of kind command runs")
    packed = json.dumps(request).encode()
    if len(packed) > REQUEST_BYTES_MAX:
        raise CtxRefused(f"refused: {len(packed)} bytes of JSON; a checkpoint and a result have 64 KiB at most")
    try:
        with _connected(where) as end:
            end.sendall(packed)
            end.shutdown(socket.SHUT_WR)
            said = b"".join(iter(lambda: end.recv(65536), b""))
    except OSError as error:
        why = "this user may not" if isinstance(error, PermissionError) else "it is over"
        raise CtxRefused(f"cannot reach the attempt at {where} ({error.strerror}): {why}") from error
    if not said:
        raise CtxRefused("the attempt ended before it answered")
    answer: dict[str, Any] = json.loads(said)
    if answer["code"] == "fenced":
        raise CtxRefused("fenced: another attempt runs")
    if answer["code"] != "ok":
        raise CtxRefused(f"refused: {answer['detail']}")
    return answer


def _connected(where: str) -> socket.socket:
    """A connection to a socket whose path may be longer than a socket's may be. Raises `OSError`."""
    folder = os.open(os.path.dirname(where) or ".", os.O_PATH | os.O_DIRECTORY)  # noqa: PTH120
    end = socket.socket(socket.AF_UNIX)
    try:
        end.connect(f"/proc/self/fd/{folder}/{os.path.basename(where)}")  # noqa: PTH119
    except OSError:
        end.close()
        raise
    finally:
        os.close(folder)
    return end
