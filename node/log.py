"""What a node says on standard error: one line a message, for people or as JSON."""

import json
import logging
from datetime import UTC, datetime
from typing import Final, Literal

LogFormat = Literal["text", "json"]

_QUIET: Final = ("aiohttp.access", "asyncio", "pysyncobj")
"""Loggers of libraries that speak of every request or reconnection: warnings only."""


class _Json(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure(log_format: LogFormat, level: str = "INFO") -> None:
    """Send the process's logging to standard error in this format."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        _Json() if log_format == "json" else logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
