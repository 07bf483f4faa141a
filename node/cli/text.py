"""Reads text from files and standard input, and prints text that comes from the cluster.

A file that is not UTF-8 text is a usage error (exit code 2).
"""

import sys
from pathlib import Path

import click

from node.runtime.plain_text import plain


def input_text(file: str) -> str:
    """Return the text of a file, or of standard input if `file` is `-`. Raises `click.UsageError`."""
    return _decoded(sys.stdin.buffer.read(), source_name(file)) if file == "-" else file_text(file, file)


def source_name(file: str) -> str:
    """Return the name of an input file in error messages: its path, or "standard input" for `-`."""
    return "standard input" if file == "-" else file


def file_text(file: str, what: str) -> str:
    """Return the text of a file; error messages call it `what`. Raises `click.UsageError`."""
    try:
        return _decoded(Path(file).read_bytes(), what)
    except OSError as error:
        raise click.UsageError(f"{what}: {error.strerror}") from error


def say(text: str, *, err: bool = False) -> None:
    """Print text from the cluster; control characters are escaped."""
    click.echo(plain(text), err=err)


def _decoded(content: bytes, what: str) -> str:
    try:
        return content.decode("utf-8-sig")  # without the byte order mark that some editors write
    except UnicodeDecodeError as error:
        raise click.UsageError(
            f"{what} is not UTF-8 text (first wrong byte: {error.start}): save it as UTF-8, or give another file"
        ) from error
