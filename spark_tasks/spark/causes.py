"""Finds the causes of failed Spark jobs in the texts of Spark's exceptions."""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

_CHARS_MAX: Final = 2000

_TRACEBACK: Final = "Traceback (most recent call last)"

_PYTHON: Final = re.compile(r"^((?!org\.|java\.|scala\.|py4j\.|Caused by)[A-Za-z_][\w.]*): (.+)$", re.MULTILINE)
"""The last line of a Python traceback."""

_CONDITION: Final = re.compile(r"\[([A-Z][A-Z_0-9.]+)\] ([^\n]+)")
"""An error condition of Spark, such as `[DIVIDE_BY_ZERO] Division by zero.`"""

_WRAPPERS: Final = frozenset({"TASK_WRITE_FAILED", "FAILED_READ_FILE", "FAILED_EXECUTE_UDF", "STREAM_FAILED"})
"""Conditions that say where something failed, not why."""

_MARKED: Final = re.compile(r"== SQL[^=]*==\n(?:[^\n]*\n)*?([^\n]*)\n( *)(\^+)")
"""The line of a query in which something failed, with carets below the part."""

_CAUSED_BY: Final = re.compile(r"^Caused by: (?:[a-z_][\w$]*\.)+([A-Z][\w$]*(?:: [^\n]*)?)", re.MULTILINE)
_LOST_TASK: Final = re.compile(
    r"most recent failure: Lost task [^\n]*?\)(?: \([^\n]*?\))?: (?:[a-z_][\w$]*\.)*([^\n]+)"
)
_OUTERMOST: Final = re.compile(r"^: (?:[a-z_][\w$]*\.)+([A-Z][\w$]*(?:: [^\n]*)?)", re.MULTILINE)

_NO_PROGRAM: Final = re.compile(r'Cannot run program "[^"]+"[^\n]*')
"""Java's message about a program that it cannot start. The outer exception does not name the program."""

_JVM_GONE: Final = re.compile(r"Answer from Java side is empty|Error while sending or receiving|Error while receiving")


class Cause(NamedTuple):
    """Why a Spark job failed: a sentence, and the name of Spark's error condition if known."""

    said: str
    condition: str = ""


def messages(error: Exception) -> Iterator[str]:
    """Yield the messages of a Java exception and its causes, outermost first; for any other error its own message."""
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if cause is None:
        yield str(error)
    while cause is not None:
        yield str(cause.getMessage() or cause.toString())  # a NullPointerException has no message
        cause = cause.getCause()


_HINTS: Final = {
    "OutOfMemoryError": "ROTA_SPARK_MEMORY sets the heap of a driver",
    "Mkdirs failed to create": "the disk is full, or the user of the node may not write there",
}
"""Advice to add to a message of the JVM, by a part of that message."""


def is_sparks(error: BaseException) -> bool:
    """Whether pyspark, or its bridge to the JVM, raised the error."""
    return type(error).__module__.startswith(("pyspark", "py4j"))


def cause(said: str) -> Cause:
    r"""Return why a Spark job failed, from the text of its exception: one sentence instead of the JVM's stack.

    >>> cause("Job aborted\nTraceback (most recent call last):\n  File ...\nKeyError: 'a'\n\n\tat org.x").said
    "KeyError: 'a'"
    >>> cause('[CAST_INVALID_INPUT] The value "x" is no INT. SQLSTATE: 22018\n== SQL (line 1, position 8) ==\n'
    ...       "SELECT CAST(n AS INT)\n       ^^^^^^^^^^^^^^\n")
    Cause(said='CAST_INVALID_INPUT: The value "x" is no INT. (in CAST(n AS INT))', condition='CAST_INVALID_INPUT')
    >>> cause("An error occurred while calling o1.save.\n: org.apache.spark.SparkException: Job aborted due to stage "
    ...       "failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task 0.0 in stage 0.0 (TID 0) "
    ...       "(10.0.0.1 executor driver): java.lang.OutOfMemoryError: Java heap space\n\tat org.x").said
    'OutOfMemoryError: Java heap space: ROTA_SPARK_MEMORY sets the heap of a driver'
    >>> cause("org.x: aborted\nCaused by: java.io.IOException: Mkdirs failed to create file:/t\n\tat x").said
    'IOException: Mkdirs failed to create file:/t: the disk is full, or the user of the node may not write there'
    """
    if _JVM_GONE.search(said):
        return Cause("the JVM of Spark has ended: if the machine is short of memory, the kernel has killed it")
    if _TRACEBACK in said and (raised := _PYTHON.findall(said.partition(_TRACEBACK)[2])):
        kind, message = raised[0]
        return Cause(f"{kind.rpartition('.')[2]}: {message}"[:_CHARS_MAX])
    conditions = [found for found in _CONDITION.finditer(said) if found[1] not in _WRAPPERS]
    if conditions:
        found = conditions[0]
        message = found[2].partition(" SQLSTATE: ")[0]
        return Cause(f"{found[1]}: {message}{_fragment(said)}"[:_CHARS_MAX], found[1].partition(".")[0])
    if program := _NO_PROGRAM.search(said):
        return Cause(program[0][:_CHARS_MAX])
    inner = _CAUSED_BY.findall(said)[-1:] or _LOST_TASK.findall(said)[:1] or _OUTERMOST.findall(said)[:1]
    text = inner[0] if inner else said.strip().partition("\n")[0]
    hints = [hint for sign, hint in _HINTS.items() if sign in text]
    return Cause(": ".join([text.partition(" SQLSTATE: ")[0][:_CHARS_MAX], *hints]))


def _fragment(said: str) -> str:
    """Return the part of the query that Spark marks, in brackets; "" if it marks no part."""
    marked = _MARKED.search(said)
    if marked is None:
        return ""
    begin = len(marked[2])
    return f" (in {marked[1][begin : begin + len(marked[3])][:200]})"
