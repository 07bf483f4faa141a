"""Text that a caller gives in a file or on standard input, and text from the cluster that is shown.

A file that is no text is a wrong call (exit code 2).
"""

import sys
from pathlib import Path

import click

from node.runtime.plain_text import plain


def input_text(file: str) -> str:
    """What is in a file, or comes on standard input if it is called `-`. Raises `click.UsageError`."""
    return _decoded(sys.stdin.buffer.read(), file) if file == "-" else file_text(file, file)


def file_text(file: str, what: str) -> str:
    """What is in a file, of which `what` says where it is wrong. Raises `click.UsageError`."""
    try:
        return _decoded(Path(file).read_bytes(), what)
    except OSError as error:
        raise click.UsageError(f"{what}: {error.strerror}") from error


def say(text: str, *, err: bool = False) -> None:
    """Print what the cluster told: what would steer a terminal is spelled out."""
    click.echo(plain(text), err=err)


def _decoded(content: bytes, what: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise click.UsageError(
            f"{what} is no text in UTF-8 (from byte {error.start} on): save it as UTF-8, or name another file"
        ) from error
