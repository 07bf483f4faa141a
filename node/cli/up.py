"""`rota up`: runs a cluster on this machine in the foreground, one process for each node."""

import fcntl
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

import click

from node.cli import tokens
from node.cli.local import LocalCluster, NotInTime
from node.cli.ports import claim_ports
from node.settings.row import PREFIX
from node.settings.table import FILE_NAMES, SETTINGS, unknown_settings


@click.command("up")
@click.option("--nodes", default=3, show_default=True, type=click.IntRange(1, 9), help="How many nodes.")
@click.option(
    "--dir",
    "folder",
    default=".rota",
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder for the nodes' data, their logs, the secret and the token.",
)
@click.option(
    "--port",
    default=8101,
    show_default=True,
    type=click.IntRange(1, 65_000),
    help="The port of the first node's API; the others use the ports after it.",
)
def up_command(nodes: int, folder: Path, port: int) -> None:
    """Run a cluster on this machine until interrupted.

    Data is kept in the folder DIR: the same command starts the same cluster again. A node that dies is not restarted.
    Tasks of kind `command` are allowed unless ROTA_ALLOW_COMMAND=0. Clients need the token in DIR/token, which `rota`
    finds by itself; ROTA_TOKEN sets another token. Other ROTA_* variables are handed to every node.
    """
    # Set the umask before any file is created. The nodes and their tasks get the caller's umask.
    umask = os.umask(0o077)
    ports = list(range(port, port + nodes))
    try:
        settings = handed_on(os.environ)
    except NotForUp as error:
        raise click.UsageError(str(error)) from error
    for name in unknown_settings(settings):
        click.echo(f"rota: {name} is not a setting and is ignored; is it misspelt?", err=True)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():
            raise click.ClickException(
                f"{folder} belongs to another user, who could change what runs there: choose another folder"
            )
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise click.ClickException(f"cannot use {folder}: {error.strerror}") from error
    with lock:
        _lock(lock, folder)
        _refuse_leftover_nodes(folder)
        with _claimed(ports):
            try:
                cluster = LocalCluster(folder, nodes, ports, env=settings, umask=umask)
            except ValueError as error:
                raise click.UsageError(str(error)) from error
            except OSError as error:
                raise click.ClickException(f"cannot use {error.filename or folder}: {error.strerror}") from error
            _run(cluster)


def _lock(lock: IO[str], folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise click.ClickException(
            f"a cluster runs already on {folder}: stop it, or choose another folder with --dir"
        ) from error


class _Interrupted(Exception):
    """A signal asks this process to stop."""


def _run(cluster: LocalCluster) -> None:
    stop = threading.Event()
    asked: list[str] = []

    def request_stop(number: int, _: object) -> None:
        asked.append(signal.Signals(number).name)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The nodes have their own sessions, so that a terminal's SIGHUP reaches only this process. Under nohup,
        # SIGHUP stays ignored.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            # The handler only sets a flag: an exception raised in a handler may be lost, depending on the moment.
            signal.signal(number, request_stop)

    def check_stop() -> None:
        if stop.is_set():
            raise _Interrupted

    with cluster, _token_recorded(cluster):
        cluster.start()
        try:
            click.echo(
                f"starting {len(cluster.names)} nodes in {cluster.folder}; their logs are {cluster.folder}/*.log"
            )
            cluster.wait_until_ready(check=check_stop)
            _greet(cluster)
            _watch(cluster, stop)
            if not stop.is_set():
                raise click.ClickException(f"all nodes have died; their logs are {cluster.folder}/*.log")
        except NotInTime as error:
            raise click.ClickException(f"{error}\nThe nodes' logs are {cluster.folder}/*.log") from error
        except _Interrupted:
            pass
        with suppress(OSError):  # the terminal may be closed
            click.echo(f"stopping on {asked[0]}")


@contextmanager
def _token_recorded(cluster: LocalCluster) -> Iterator[None]:
    """Let this user's command line find the cluster's token from any folder during the block."""
    if cluster.token_file is None:
        yield
        return
    try:
        tokens.record(cluster.token_file, cluster.http_ports, os.environ)
    except OSError as error:
        click.echo(
            f"rota: {error.filename or 'the state folder'}: {error.strerror}; commands in other folders need "
            "ROTA_TOKEN_FILE",
            err=True,
        )
    try:
        yield
    finally:
        tokens.forget_token_file(cluster.token_file, cluster.http_ports, os.environ)


def _refuse_leftover_nodes(folder: Path) -> None:
    """Refuse to start while nodes of a `rota up` that was killed with SIGKILL still hold their folders and ports."""
    left = {path.parent.name: holder for path in sorted(folder.glob("node-*/lock")) if (holder := _holder(path))}
    if left:
        nodes = ", ".join(f"{name} (process {holder})" for name, holder in left.items())
        raise click.ClickException(
            f"nodes of an earlier `rota up` still run on {folder}: {nodes}. "
            f"Stop them, and start again: kill {' '.join(left.values())}"
        )


def _holder(path: Path) -> str | None:
    """Return the id of the process that holds the lock file of a node's data folder; None if no process does."""
    try:
        with path.open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return lock.read().strip() or None
    except OSError as error:
        raise click.ClickException(f"cannot use {path}: {error.strerror}") from error
    return None


def _claimed(ports: list[int]) -> ExitStack:
    try:
        return claim_ports(ports)
    except OSError as error:
        raise click.ClickException(
            f"port {error.filename} is taken ({error.strerror}): choose other ports with --port"
        ) from error


def _greet(cluster: LocalCluster) -> None:
    for name in cluster.names:
        click.echo(f"{name}  {cluster.url(name)}  process {cluster.pid(name)}  log {cluster.log_file(name)}")
    first = cluster.url(cluster.names[0])
    click.echo(f"\nready. In another terminal:  export ROTA_URL={first}; rota status   (or open {first})")
    if cluster.token_file is None:
        click.echo("the token is the value of ROTA_TOKEN; set it there too")
    else:
        click.echo(
            f"the token is in {cluster.token_file}; rota finds it by itself, and the page asks for it to sign in"
        )


def _watch(cluster: LocalCluster, stop: threading.Event) -> None:
    """Report nodes that die, until `stop` is set or all are dead."""
    alive = set(cluster.running())
    while alive and not stop.wait(0.5):
        for name in sorted(alive - set(cluster.running())):
            click.echo(f"{name} has died (exit code {cluster.exit_code(name)}) and is not restarted")
        alive &= set(cluster.running())


class NotForUp(Exception):
    """A setting is given that `rota up` cannot hand on. The message names the setting and says what to do."""


def handed_on(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the ROTA_* variables that every node of `rota up` gets: all but `ROTA_URL`.

    Raises `NotForUp` for a variable that cannot be the same on every node: no variable is dropped silently.

    >>> handed_on({"ROTA_ENV_ALLOW": "PGPASSWORD", "ROTA_URL": "http://127.0.0.1:8101", "HOME": "/root"})
    {'ROTA_ENV_ALLOW': 'PGPASSWORD'}
    """
    given = {name: value for name, value in environ.items() if name.startswith(PREFIX) and value.strip()}
    given.pop("ROTA_URL", None)  # for the command line only
    for name in sorted(given):
        setting = SETTINGS.get(name) or FILE_NAMES.get(name)
        if setting is not None and setting.not_for_up:
            raise NotForUp(
                f"rota up does not take {name}: {setting.not_for_up}. Unset it, or run each node with `rota node`"
            )
    for file_name, setting in FILE_NAMES.items():
        if setting.name in given and file_name in given:
            raise NotForUp(f"{setting.name} and {file_name} are both set: keep one")
    return given
