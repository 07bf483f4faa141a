"""Why a file cannot be ingested, in one sentence that names the file, because Spark's own errors have forty lines."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from spark_tasks.files.listing import Source
from spark_tasks.spark import causes
from tasks.errors import Unretryable

CUT: Final = "rota: a timestamp is not a whole number of microseconds"
"""The beginning of the error that is raised for a timestamp that Spark would truncate to microseconds."""


class MalformedRows(Unretryable):
    """A row does not fit the columns."""


class SchemaDrift(Unretryable):
    """The columns of the files, the table and the task differ."""


class ReadFailed(Exception):
    """A file could not be read, for a reason outside the file: another attempt may read it."""


class FileDamaged(Unretryable):
    """A file is damaged. A repaired file counts as new, and is ingested, since it has another size or name."""


class ValueUnfit(Unretryable):
    """A value of a file does not fit its column's type in the table: Spark would change it."""


class BadFile(Exception):
    """The file at `path` cannot be ingested; `why` is an exception that names the file."""

    def __init__(self, path: str, why: Exception) -> None:
        super().__init__(str(why))
        self.path = path
        self.why = why


def file_to_blame(error: Exception, places: Mapping[Path, Source]) -> BadFile | None:
    """Return the file that caused an error of Spark, and the reason; None if no file caused it."""
    messages = list(causes.messages(error))
    said = "\n".join(messages)
    match = re.search(r"reading file (file:\S+?)\.?(?:\s|$)", said)
    if match is None:
        return None
    path = Path(unquote(urlsplit(match[1]).path))
    name = places[path].path if path in places else str(path)
    return BadFile(name, _fault(name, said, messages))


def _fault(name: str, said: str, messages: Sequence[str]) -> Exception:
    if "header does not conform" in said:
        header = re.search(r"Header: (.*)\n\s*Schema: (.*)", said)
        if header is None:
            told = next(message for message in messages if "header does not conform" in message)
            return SchemaDrift(f"{name}: {first_line(told)}")
        return SchemaDrift(f"{name}: the header is ({header[1].strip()}), the columns are ({header[2].strip()})")
    if (lengths := re.search(r"Header length: (\d+), schema size: (\d+)", said)) is not None:
        return SchemaDrift(f"{name}: the header has {lengths[1]} columns, and {lengths[2]} are wanted")
    reason = first_line(messages[-1])
    if (cut := re.search(rf"{CUT} reading file \S+ column (.*) value (-?\d+)", said)) is not None:
        return ValueUnfit(
            f"{name}: column {cut[1]} has a timestamp of {cut[2]} ns, and a table has 6 digits of a second: write it so"
        )
    if (unread := re.search(r"AvroUnreadable: Encountered error while reading file \S+ (.*)", said)) is not None:
        return FileDamaged(f"{name}: {unread[1]}")
    if "MALFORMED_RECORD" in said:
        record = next(first_line(message) for message in messages if "MALFORMED_RECORD" in message)
        return MalformedRows(f"{name}: {record} {reason}"[:2000])
    away = any(sign in said for sign in _NOT_THE_FILES)
    return (ReadFailed if away else FileDamaged)(f"{name}: {reason}")


_NOT_THE_FILES: Final = (
    "Input/output error",
    "Stale file handle",
    "FileNotFoundException",
    "No such file",
    "Permission denied",
    "Too many open files",
    "No space left",
    "OutOfMemoryError",
    "Connection",
)
"""Parts of an error's text that show that the content of the file is not the cause."""


def read_failure(name: str, what: str, error: Exception) -> Exception:
    """Return the error for the file `name`: `ReadFailed` if the operating system refused to read it, else
    `FileDamaged`.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return ReadFailed(f"{name}: {error}")
    return FileDamaged(f"{name}: {what}: {error}")


def first_line(message: str) -> str:
    """Return the first line of an error's message, without Spark's codes."""
    first = message.strip().partition("\n")[0]
    return re.sub(r"^\[[A-Z_.]+\] | SQLSTATE: \w+$", "", first).strip()
