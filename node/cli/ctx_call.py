"""`rota ctx`, by which the program of a `command` task talks to its own attempt. Imports little, to start quickly.

It connects to the socket that `tasks.command.ctx` serves. Exit codes: 0 done, 1 fenced or refused, 2 wrong call.
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
    """The arguments are wrong. The message says how to correct them."""


class CtxRefused(Exception):
    """The attempt is fenced, has ended, or refused the request. The message says which of these."""


def call(words: Sequence[str]) -> int:
    """Run `rota ctx` with these arguments, and return the exit code."""
    try:
        given = ctx_parser().parse_args(words)
        sys.stdout.write(given.does(given))
    except WrongCall as error:
        return _say(str(error), WRONG_CALL)
    except CtxRefused as error:
        return _say(str(error), REFUSED)
    except SystemExit as end:  # argparse has printed the reason
        return end.code if isinstance(end.code, int) else WRONG_CALL
    return DONE


def _say(sentence: str, code: int) -> int:
    sys.stderr.write(f"rota ctx: {sentence}\n")
    return code


def ctx_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argparse.ArgumentParser(
        prog="rota ctx",
        description="For programs that a task of kind command runs: save a checkpoint of the run, report "
        "its progress, leave its result.",
        epilog="Exit codes: 0 done, 1 fenced (another attempt has taken over) or refused, 2 wrong call.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(required=True, metavar="checkpoint | progress | result")
    checkpoint = commands.add_parser(
        "checkpoint",
        help="commit a checkpoint, from which the next attempt resumes",
        description="Commit JSON as the run's checkpoint, from which the next attempt resumes. Returns when a majority "
        "of the members has it. At most 64 KiB.",
    )
    checkpoint.add_argument("file", metavar="FILE", nargs="?", help="a file with JSON; - for standard input")
    checkpoint.add_argument(
        "--show",
        action="store_true",
        help="print the last committed checkpoint instead; prints nothing if there is none",
    )
    checkpoint.set_defaults(does=_checkpoint)
    progress = commands.add_parser(
        "progress",
        help="report how much of the work is done",
        description="Report how much of the work is done, for `rota status` and `rota run --wait`.",
    )
    progress.add_argument("done", metavar="DONE", type=_number, help="how much is done: a number")
    progress.add_argument(
        "total", metavar="TOTAL", type=_total, nargs="?", help="how much there is in all; - if it is not known"
    )
    progress.add_argument("unit", metavar="UNIT", nargs="?", default="", help="what is counted, such as rows or bytes")
    progress.set_defaults(does=_progress)
    result = commands.add_parser(
        "result",
        help="add values to the run's result",
        description="Add values to the run's result; earlier ones are kept. A value that is valid JSON is stored as "
        "JSON, any other as text.",
    )
    result.add_argument(
        "figures", metavar="FILE|-|NAME=VALUE", nargs="+", help="names and values, or one file with a JSON object"
    )
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
        raise WrongCall("checkpoint takes a file with JSON (- for standard input), or --show")
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
            raise WrongCall("a result is a JSON object: a name for each value")
    else:
        for word in given.figures:
            name, equals, value = word.partition("=")
            if not name or not equals:
                raise WrongCall(f"{word!r}: write NAME=VALUE, or give one file with a JSON object")
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
        raise WrongCall(f"{where} is not JSON: {error or 'it is nested too deeply'}") from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _ask(request: dict[str, Any]) -> dict[str, Any]:
    """Send a request to the attempt, and return its answer. Raises `CtxRefused` and `WrongCall`."""
    where = os.environ.get(SOCKET)
    if not where:
        raise WrongCall(f"{SOCKET} is not set: rota ctx works inside a task of kind command only")
    packed = json.dumps(request).encode()
    if len(packed) > REQUEST_BYTES_MAX:
        raise CtxRefused(f"refused: {len(packed)} bytes of JSON; a checkpoint or a result may have 64 KiB at most")
    try:
        with _connected(where) as end:
            end.sendall(packed)
            end.shutdown(socket.SHUT_WR)
            said = b"".join(iter(lambda: end.recv(65536), b""))
    except OSError as error:
        why = "this user may not connect to it" if isinstance(error, PermissionError) else "the attempt has ended"
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
    """Connect to a socket by its folder's descriptor, since the path may exceed the 108 bytes of a socket address.

    Raises `OSError`.
    """
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
