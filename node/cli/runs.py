"""Commands for runs: start one, list them, read logs, cancel."""

import codecs
import json
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from node.cli.api import Api, ago, api_command, progress_text
from node.cli.following import LogFollower
from node.cli.text import say
from node.cli.watching import wait_for_end
from node.cli.why import why_it_waits
from node.client import ApiProblem, Unreachable, path

WAITING_S: Final = 3.0
"""After this time `rota run --wait` prints once why the run waits, since it may wait for ever."""

GIVEN_CHARS: Final = 40
"""At most this much of a run's own params is shown by `rota runs`; `rota show RUN` shows all."""


@click.command("run")
@click.argument("name")
@click.option("--wait", is_flag=True, help="Wait for the end of the run; exit with 1 if it did not succeed.")
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="A param for this run only, instead of the task's; VALUE is YAML.",
)
@click.option("--downstream", is_flag=True, help="Run the tasks after it, too, each once those before it have ended.")
@click.option("--on", "member", metavar="NODE", help="Of a task with each: run it on this node only.")
@click.option("--at", metavar="TIME", help="The time that the run stands for: 2026-11-27T02:00:00Z.  [default: now]")
@api_command
def run_command(
    api: Api,
    name: str,
    wait: bool,
    params: tuple[str, ...],
    downstream: bool,
    member: str | None,
    at: str | None,
) -> None:
    """Run a task now; prints the id of the run. A task with each gets a run on each of its nodes."""
    given = given_params(api, name, params)
    body: dict[str, Any] = {} if given is None else {"params": given}
    if at is not None:
        body["fire_at"] = at
    if downstream:
        body["downstream"] = True
    if member is not None:
        body["member"] = member
    answer = api.client.call(
        "POST", path("v1", "tasks", name, "runs"), body=body, headers={"Idempotency-Key": uuid.uuid4().hex}
    )
    run_ids = answer.json.get("run_ids", [answer.json["run_id"]])  # older nodes send no list
    if busy := answer.json.get("busy"):
        say(f"rota: not started on {', '.join(busy)}: overlap forbids another run there now", err=True)
    if not wait:
        api.show(answer.json, "\n".join(run_ids))
        return
    ended = [_ended(api, run_id, answer.headers.get("Rota-Index", "0")) for run_id in run_ids]

    def show_ends() -> None:
        for run in ended:
            print_end(api, run)

    api.show(ended[0] if len(ended) == 1 else {"items": ended}, show_ends)
    sys.exit(0 if all(run["state"] == "succeeded" for run in ended) else 1)


def _ended(api: Api, run_id: str, index: str) -> dict[str, Any]:
    try:
        return wait_and_show(api, run_id, index)
    except (KeyboardInterrupt, Unreachable, ApiProblem):
        goes_on = f"rota: no longer waiting for {run_id}, which is not stopped by that"
        say(f"{goes_on}; see it: rota log -f {run_id}; stop it: rota cancel {run_id}", err=True)
        raise


def print_end(api: Api, run: dict[str, Any]) -> None:
    """Print how a run ended, and its result."""
    said = _remark(run)
    say(f"{run['run_id']} {run['state']}" + (f": {said}" if said else ""))
    api.fields({name: _in_short(value) for name, value in (run["result"] or {}).items()})


def _in_short(value: Any) -> Any:
    """Return a value of a result, short enough for one line: for a list of objects, such as batches, their number.

    >>> _in_short([{"rows": 1}, {"rows": 2}]), _in_short(5), _in_short(["a"])
    ('2 (listed by --json)', 5, ['a'])
    """
    if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        return f"{len(value)} (listed by --json)"
    return value


def _remark(run: dict[str, Any]) -> str:
    """Say why a run failed, what it left undone, and whether its last log is truncated; "" if none applies.

    >>> _remark({"error": None, "attempts": [{"log_truncated": True}]})
    'its log is truncated'
    """
    # Older nodes do not send `log_truncated` and `degraded`.
    truncated = any(attempt.get("log_truncated") for attempt in run["attempts"][-1:])
    return "; ".join(filter(None, (run["error"], run.get("degraded"), "its log is truncated" if truncated else "")))


def given_params(api: Api, task: str, pairs: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the params of a task with the values of `--param` replaced; None if no `--param` is given."""
    given = _params(pairs)
    return {**api.client.get(path("v1", "tasks", task))["params"], **given} if given else None


def _params(pairs: tuple[str, ...]) -> dict[str, Any]:
    from node.cli.reading import value as read_value

    parsed: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"--param {pair!r}: write it as NAME=VALUE")
        parsed[name] = read_value(f"--param {name}", value)
    return parsed


def wait_and_show(
    api: Api, run_id: str, index: str, waiting_s: float = WAITING_S, clock: Callable[[], float] = time.monotonic
) -> dict[str, Any]:
    """Show the progress of a run until it has ended, and return the run. Reads only members that have applied `index`.

    If the run still waits after `waiting_s`, prints the reason once.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[far]}"), TimeElapsedColumn())
    hidden = api.as_json or not api.console.is_terminal
    silent_until_s: float | None = clock() + waiting_s
    with Progress(*columns, console=api.console, disable=hidden, transient=True) as progress:
        bar = progress.add_task(run_id, total=None, far="")

        def read(majority: bool) -> dict[str, Any]:
            nonlocal silent_until_s
            query = {"consistent": "true" if majority else None}
            run: dict[str, Any] = api.client.call(
                "GET", path("v1", "runs", run_id), query=query, headers={"Rota-Index": index}
            ).json
            done = run["progress"] or {}
            state = "frozen (its node has no lease)" if run.get("frozen_since") else run["state"]
            where = f" on {run['node']}" if run["node"] else ""
            progress.update(
                bar,
                description=f"{state}{where}",
                completed=done.get("done", 0),
                total=done.get("total"),
                far=progress_text(**done) if done else "",
            )
            if run["state"] == "waiting" and silent_until_s is not None and clock() >= silent_until_s:
                silent_until_s = None
                click.echo(f"rota: {run_id} waits: {why_it_waits(api, run_id, run['task'])}", err=True)
            return run

        return wait_for_end(read, lambda why: say(f"rota: cannot read the state of {run_id}: {why}", err=True), clock)


@click.command("runs")
@click.argument("name", required=False)
@click.option("--state", help="Only runs in this state.")
@click.option("--node", help="Only runs on this node.")
@click.option(
    "--limit", default=20, show_default=True, type=click.IntRange(1, 1000), help="How many runs to list at most."
)
@api_command
def runs_command(api: Api, name: str | None, state: str | None, node: str | None, limit: int) -> None:
    """List the latest runs, of one task or of all. `rota backfill show` shows the backfill that a run is of."""
    items = (answer := api.client.get("/v1/runs", task=name, state=state, node=node, limit=limit))["items"]
    # Older nodes do not send `params` and `backfill`.
    more = {
        heading: shown
        for heading, field, shown in (
            ("BACKFILL", "backfill", lambda run: run.get("backfill")),
            ("PARAMS", "params", lambda run: _given(run.get("params"))),
        )
        if any(run.get(field) is not None for run in items)
    }
    headings = ["RUN", "STATE", "NODE", "TRY", "ENDED", *more, "ERROR"]
    api.show(answer, lambda: api.table(headings, (_cells(run, more.values()) for run in items), "no runs"))


def _cells(run: dict[str, Any], more: Iterable[Callable[[dict[str, Any]], object]]) -> tuple[object, ...]:
    shown = [of_run(run) for of_run in more]
    return run["run_id"], _state(run), run["node"], run["attempt"], ago(run["finished_at"]), *shown, _remark(run)


def _given(params: dict[str, Any] | None) -> str:
    """Return the params that were given for a run, in one line; "" for a run with the task's own params.

    >>> _given({"argv": ["echo", "x"], "cwd": None}), _given(None), len(_given({"x": "y" * 99}))
    ('argv=["echo", "x"] cwd=null', '', 40)
    """
    text = " ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in (params or {}).items())
    return text if len(text) <= GIVEN_CHARS else text[: GIVEN_CHARS - 1] + "…"


def _state(run: dict[str, Any]) -> str:
    """Return a run's state, with its action if it has one, or the count if it stands for several occurrences.

    >>> _state({"state": "skipped", "count": 3}), _state({"state": "succeeded", "action": "preview"})
    ('skipped x 3', 'succeeded (preview)')
    """
    if run.get("action"):
        return f"{run['state']} ({run['action']})"
    if run.get("degraded"):
        return f"{run['state']} in part"
    return str(run["state"]) if run.get("count", 1) == 1 else f"{run['state']} x {run['count']}"


@click.command("log")
@click.argument("run_id", metavar="RUN")
@click.option("-f", "--follow", is_flag=True, help="Print the log as it is written, until the run has ended.")
@click.option("--attempt", type=click.IntRange(1), help="The number of the attempt; the latest unless given.")
@api_command
def log_command(api: Api, run_id: str, follow: bool, attempt: int | None) -> None:
    """Print the log of a run, from any node that has it; with -f, of each attempt in turn until the run has ended.

    With --json the log is printed as one JSON string; with --json -f, each piece is a JSON string on its own line.
    """
    if follow and attempt is None:
        _follow(api, run_id)
        return
    query = {"attempt": attempt, "follow": "true" if follow else None}
    pieces = api.client.stream(path("v1", "runs", run_id, "log"), endless=follow, **query)
    if api.as_json:
        for text in _texts(pieces if follow else [b"".join(pieces)]):
            click.echo(json.dumps(text))
        return
    for piece in pieces:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def _follow(api: Api, run_id: str) -> None:
    where = path("v1", "runs", run_id)
    printer = _LogPrinter(api.as_json)

    def read_run() -> dict[str, Any]:
        run: dict[str, Any] = api.client.get(where)
        return run

    def pieces(attempt: int | None) -> Iterator[bytes]:
        return api.client.stream(f"{where}/log", endless=True, attempt=attempt, follow="true")

    LogFollower(read_run, pieces, printer.write, printer.head, lambda why: say(f"rota: {why}", err=True)).follow()
    printer.end()


class _LogPrinter:
    """Prints a followed log, as bytes or as JSON strings."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._in_line = False

    def write(self, piece: bytes) -> None:
        """Print the next piece of the log."""
        if self._as_json:
            self._say(self._decoder.decode(piece))
            return
        self._in_line = not piece.endswith(b"\n")
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()

    def head(self, attempt: dict[str, Any]) -> None:
        """Print a line that separates the log of this attempt from the log of the previous one."""
        self.end()
        line = f"==> attempt {attempt['attempt']} on {attempt['node']} <=="
        click.echo(("\n" if self._in_line else "") + line, err=self._as_json)

    def end(self) -> None:
        """Print the rest of a log that ends in the middle of a character."""
        self._say(self._decoder.decode(b"", final=True))

    def _say(self, text: str) -> None:
        if text:
            click.echo(json.dumps(text))


def _texts(pieces: Iterable[bytes]) -> Iterator[str]:
    """Yield pieces of UTF-8 as text, cut between characters; undecodable bytes are replaced.

    >>> list(_texts(["café".encode()[:4], "café".encode()[4:]]))
    ['caf', 'é']
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in pieces:
        yield decoder.decode(piece)
    if rest := decoder.decode(b"", final=True):
        yield rest


@click.command("cancel")
@click.argument("run_id", metavar="RUN")
@api_command
def cancel_command(api: Api, run_id: str) -> None:
    """Cancel a run: its worker is asked to stop, then killed."""
    answer = api.client.call("DELETE", path("v1", "runs", run_id)).json
    api.show(answer, f"{run_id}: cancellation requested")
