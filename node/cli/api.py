"""The parts that all commands on the API share: the client, `--json`, and printing of answers."""

import functools
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import click
from rich.console import Console

from node.cli import tokens
from node.cli.table import lay_out
from node.cli.text import file_text, say
from node.client import DEFAULT_URL, ApiProblem, Client, Unreachable
from node.runtime.durations import seconds
from node.runtime.plain_text import plain_line
from tasks.version import version

F = TypeVar("F", bound=Callable[..., Any])


class Api:
    """A client for a cluster, and the ways to print its answers. `client` None: a client for ROTA_URL is made."""

    def __init__(self, as_json: bool, client: Client | None = None) -> None:
        self.as_json = as_json
        self.client = client or client_of(os.environ.get("ROTA_URL") or DEFAULT_URL)
        # In a pipe or a file, lines are not wrapped: programs read one line for each row.
        self.console = Console() if sys.stdout.isatty() else Console(width=1000)

    def show(self, answer: Any, text: str | Callable[[], object]) -> None:
        """Print the API's answer as JSON, or `text`: a sentence, or a function that prints."""
        if self.as_json:
            click.echo(json.dumps(answer, indent=2))
        elif isinstance(text, str):
            say(text)
        else:
            text()

    def table(self, headings: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> None:
        """Print rows under headings, or the sentence `empty` if there are no rows. A cell of None is printed as `-`."""
        cells = [["-" if cell is None else plain_line(str(cell)) for cell in row] for row in rows]
        if not cells:
            click.echo(empty)
            return
        first, *others = lay_out(headings, cells, self.console.width if self.console.is_terminal else None)
        is_heading = " ".join(headings).startswith(" ".join(first.split()))
        click.secho(first, bold=True if is_heading and not os.environ.get("NO_COLOR") else None)
        for line in others:
            click.echo(line)

    def fields(self, values: Mapping[str, object]) -> None:
        """Print names and values, one pair on a line."""
        width = max(map(len, values), default=0)
        for name, value in values.items():
            say(f"{name:<{width}}  {'-' if value is None else value}")


def client_of(where: str) -> Client:
    """Return a client for one address or several (comma-separated).

    The token comes from ROTA_TOKEN, from ROTA_TOKEN_FILE, or from a cluster that `rota up` runs on this machine. Raises
    `click.UsageError` for an address that is not a URL, and for a token that cannot be read or sent.
    """
    urls = [url.strip() for url in where.split(",") if url.strip()]
    if not urls or any(not url.startswith(("http://", "https://")) for url in urls):
        raise click.UsageError(
            f"{where!r} is not the address of a cluster: write http://host:port, or several, separated by commas"
        )
    name, token = "ROTA_TOKEN", os.environ.get("ROTA_TOKEN", "").strip()
    path = os.environ.get("ROTA_TOKEN_FILE")
    if not token and path:
        name, token = f"ROTA_TOKEN_FILE={path}", file_text(path, f"ROTA_TOKEN_FILE={path}").strip()
    elif not token and (kept := tokens.find_token_file(urls, os.environ)):
        name, token = str(kept), file_text(str(kept), str(kept)).strip()
    try:
        return Client(urls, token or None, token_from=name if token else "")
    except ValueError as error:
        raise click.UsageError(f"{name}: {error}") from error


def api_command(function: F) -> F:
    """Give a command the option `--json`, and an `Api` as its first argument.

    If the node has another version, it may not know a field or a path, or its answer may lack a field. Then the error
    says so: the `ApiProblem` by its hint, or a `click.ClickException`.
    """

    @click.option("--json", "as_json", is_flag=True, help="Print the API's answer as JSON.")
    @functools.wraps(function)
    def command(*args: Any, as_json: bool, **kwargs: Any) -> Any:
        api = Api(as_json, click.get_current_context().find_object(Client))
        try:
            return function(api, *args, **kwargs)
        except ApiProblem as problem:
            if problem.status in _NOT_UNDERSTOOD and (differs := _other_version(api.client)):
                problem.hint = differs
            raise
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            if not (differs := _other_version(api.client)):
                raise
            raise click.ClickException(f"the node's answer cannot be read ({error!r}): {differs}") from error

    return command  # type: ignore[return-value]


_NOT_UNDERSTOOD: Final = (400, 404, 405, 415, 422)
"""The statuses with which a node refuses an unknown request, such as one with a field of a later version."""


def _other_version(client: Client) -> str:
    """Say that the node has another version than this command; "" if it has the same, or does not send it."""
    try:
        there = str(client.get("/openapi.json")["info"]["version"])
    except (ApiProblem, Unreachable, LookupError, TypeError):
        return ""
    if there == version():
        return ""
    return (
        f"the node at {', '.join(client.urls)} runs rota {plain_line(there)}, and this command is of rota {version()}: "
        "use the rota of the nodes' version, or upgrade the nodes"
    )


def mismatches_of(cluster: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each node that is incompatible with the node that answered `GET /v1/cluster`."""
    return [plain_line(one["detail"]) for one in cluster.get("mismatches", ())]  # an earlier version sends none


def status_of(member: Mapping[str, Any]) -> str:
    """Return a member's status, with the reason if it has one, and its progress if it lacks finished runs.

    >>> status_of({"status": "draining", "reason": None, "aside": "no room on its disk"})
    'draining (no room on its disk)'
    >>> fetching = {"state": "fetching", "progress": {"done": 430, "total": 1000, "unit": "indexes"}}
    >>> status_of({"status": "up", "reason": None, "bootstrap": fetching})
    'up (fetching finished runs, 43%)'
    """
    why = member["reason"] or member.get("aside")
    if (bootstrap := member.get("bootstrap")) and member["status"] != "down":
        why = "; ".join(filter(None, (why, _catching_up(bootstrap))))
    return str(member["status"]) + (f" ({plain_line(why)})" if why else "")


def _catching_up(bootstrap: Mapping[str, Any]) -> str:
    if bootstrap["state"] == "waiting":
        return "lacks finished runs"
    return f"fetching finished runs, {percent(bootstrap)}"


def percent(bootstrap: Mapping[str, Any]) -> str:
    """Return the percentage that a member has fetched of the finished runs that it lacks."""
    done, total = bootstrap["progress"]["done"], bootstrap["progress"]["total"]
    return f"{100 * done // max(total, 1):.0f}%"


def ago(time: str | None) -> str | None:
    """Return a time from the API relative to now, in one unit: "5 min ago", or "in 3 h". None for None."""
    if time is None:
        return None
    since_s = (datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds()
    if since_s < 0:
        return f"in {seconds(-since_s)}"
    return f"{' '.join(seconds(since_s).split()[:2])} ago"


def progress_text(done: float, total: float | None, unit: str) -> str:
    """Return the progress of a run, in words. `total` None: not known. Bytes are shown in a suitable unit.

    >>> progress_text(8_388_610, 33_554_432, "bytes"), progress_text(1234567, None, "rows"), progress_text(2.5, 3, "")
    ('8.0 of 32.0 MiB', '1,234,567 rows', '2.5 of 3')
    """
    scale, places = 1.0, None
    if unit == "bytes":
        power = min(4, int(math.log2(max(done, total or 0, 1))) // 10)
        scale, unit, places = 1024.0**power, ("bytes", "KiB", "MiB", "GiB", "TiB")[power], 1 if power else None
    shown = [_figure(number / scale, places) for number in (done, total or None) if number is not None]
    return f"{' of '.join(shown)} {unit}".rstrip()


def _figure(number: float, places: int | None) -> str:
    if places is None:
        places = 0 if number == int(number) else 2
    text = f"{number:,.{places}f}"
    return text if places == 1 else text.rstrip("0").rstrip(".") if "." in text else text
