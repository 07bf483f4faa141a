"""Pages of docs/ as something to run: their blocks of commands, in order, in one shell.

What a page may hold:

- a block fenced as `sh`: commands that are run; one that fails, or any but the last of a pipe, fails the page;
- a block fenced as `sh yours`: assignments, a line each, of what is the reader's own; the test gives the values;
- a block fenced as `text` right after one of these: lines that its output holds, in this order; `...` stands for
  anything within a line;
- `<!-- stage: WORDS -->`: what happens besides, by the test's hands (a node is killed, all are stopped);
- a block fenced as anything else, such as `console`: not run.
"""

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_PIECE: Final = re.compile(
    r"^```(?P<fence>[^\n]*)\n(?P<body>.*?)^```$|^<!-- stage: (?P<stage>[^\n]+?) -->$", re.MULTILINE | re.DOTALL
)
_ASSIGNMENT: Final = re.compile(r"^(?:export )?([A-Za-z_][A-Za-z0-9_]*)=")


@dataclass(frozen=True)
class Commands:
    """A block of commands; `line` is the one of the page at which it begins."""

    line: int
    text: str
    expected: tuple[str, ...] = ()


@dataclass(frozen=True)
class Values:
    """The names that the reader gives values to."""

    line: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Stage:
    """What the test does at this place."""

    line: int
    words: str


class PageFailed(AssertionError):
    """A page does not do what it says; the message names the page and its line."""


def steps(page: str) -> list[Commands | Values | Stage]:
    """The steps of a page's text, in order. Raises `ValueError` where a `sh yours` block holds no assignments.

    >>> steps("```sh\\ntrue\\n```\\n\\n<!-- stage: kill node-1 -->\\n")
    [Commands(line=2, text='true\\n', expected=()), Stage(line=5, words='kill node-1')]
    """
    found: list[Commands | Values | Stage] = []
    end = 0
    for piece in _PIECE.finditer(page):
        line = page.count("\n", 0, piece.start()) + 1
        fence, body, stage = piece["fence"], piece["body"], piece["stage"]
        adjoining = page[end : piece.start()].strip() == ""
        end = piece.end()
        if stage is not None:
            found.append(Stage(line, stage))
        elif fence == "sh":
            found.append(Commands(line + 1, body))
        elif fence == "sh yours":
            found.append(Values(line + 1, _names(body)))
        elif fence == "text" and adjoining and found and isinstance(found[-1], Commands):
            found[-1] = Commands(found[-1].line, found[-1].text, tuple(filter(None, map(str.strip, body.splitlines()))))
    return found


def _names(body: str) -> tuple[str, ...]:
    matches = [_ASSIGNMENT.match(line) for line in body.splitlines() if line.strip()]
    if not matches or not all(matches):
        raise ValueError(f"only assignments may stand in a block of the reader's own values: {body!r}")
    return tuple(match[1] for match in matches if match)


def missing(expected: tuple[str, ...], output: str) -> str | None:
    """The first expected line that the output does not hold, each after the one before; None: all are there.

    >>> missing(("a ... c", "d"), "x\\na  b c\\nd, too\\n"), missing(("d", "a"), "a\\nd\\n")
    (None, 'a')
    """
    lines: Iterator[str] = iter([" ".join(line.split()) for line in output.splitlines()])
    for wanted in expected:
        parts = (re.escape(" ".join(part.split())) for part in wanted.split("..."))
        pattern = re.compile(r"\s?.*\s?".join(parts))
        if not any(pattern.search(line) for line in lines):
            return wanted
    return None


class Shell:
    """One bash in which a page's blocks run; `end` kills it with all that it left in the background."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def run(self, text: str, deadline_s: float) -> tuple[bool, str]:
        """Whether each command succeeded, and what they printed. Raises `PageFailed` if they do not come to an end."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        # bash reads a group as a whole before it runs it, so that no command takes the next one as its input. The \0
        # comes only if all went well.
        stdin.write(f"set -euo pipefail\n{{\n{text}\n}} </dev/null\nprintf '\\0'\n".encode())
        stdin.flush()
        output, end_s = b"", time.monotonic() + deadline_s
        while not output.endswith(b"\0"):
            if not select.select([stdout], [], [], max(0.0, end_s - time.monotonic()))[0]:
                raise PageFailed(f"not done within {deadline_s} s; so far:\n{output.decode(errors='replace')}")
            piece = os.read(stdout.fileno(), 65_536)
            if not piece:
                return False, output.decode(errors="replace")
            output += piece
        return True, output[:-1].decode(errors="replace")

    def end(self) -> None:
        """Kill the shell and its background jobs, all of which are of its own process group."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def follow(
    page: Path, shell: Shell, values: Mapping[str, str], stage: Callable[[str], None], deadline_s: float = 400
) -> None:
    """Do what the page says, from its first line to its last. Raises `PageFailed` where it says what is not so.

    `values` are those of the reader's own; `stage` is called with the words of each stage direction.
    """
    done = 0
    for step in steps(page.read_text()):
        place = f"{page.name}, line {step.line}"
        match step:
            case Stage(words=words):
                stage(words)
            case Values(names=names):
                if lacking := [name for name in names if name not in values]:
                    raise PageFailed(f"{place}: the test has no value for {', '.join(lacking)}")
                shell.run("\n".join(f"export {name}={_quoted(values[name])}" for name in names), deadline_s)
            case Commands(text=text, expected=expected):
                succeeded, output = shell.run(text, deadline_s)
                if not succeeded:
                    raise PageFailed(f"{place}: a command failed:\n{text}\nIt printed:\n{output}")
                if (line := missing(expected, output)) is not None:
                    raise PageFailed(f"{place}: the output lacks {line!r}:\n{text}\nIt printed:\n{output}")
                done += 1
    if not done:
        raise PageFailed(f"{page.name} holds no commands")


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "'\\''") + "'"
