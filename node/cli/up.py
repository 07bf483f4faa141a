"""`rota up`: a cluster on this machine, in the foreground, one process a node."""

import fcntl
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

import click

from node.app.config import unknown_settings
from node.cli import tokens
from node.cli.local import LocalCluster, NotInTime
from node.cli.ports import claim
from node.cli.up_settings import NotForUp, handed_on


@click.command("up")
@click.option("--nodes", default=3, show_default=True, type=click.IntRange(1, 9))
@click.option("--dir", "folder", default=".rota", show_default=True, type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--port",
    default=8101,
    show_default=True,
    type=click.IntRange(1, 65_000),
    help="Of the first node's API; the others' follow.",
)
def up_command(nodes: int, folder: Path, port: int) -> None:
    """Run a cluster on this machine until interrupted.

    A node that dies is left dead until `rota up` is stopped and started again; the folder keeps what it knew.
    Tasks of kind `command` are allowed, unless ROTA_ALLOW_COMMAND=0. Clients need the token in DIR/token, which this
    command line finds by itself; ROTA_TOKEN sets another. Other ROTA_* settings are handed on to every node.
    """
    # Before anything is made. The nodes begin with the user's own, which is that of their work.
    umask = os.umask(0o077)
    ports = list(range(port, port + nodes))
    try:
        settings = handed_on(os.environ)
    except NotForUp as error:
        raise click.UsageError(str(error)) from error
    for name in unknown_settings(settings):
        click.echo(f"rota: {name} is not a setting of a node's: a slip of the pen?", err=True)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():
            raise click.ClickException(f"{folder} is another user's, who could change what runs there: choose another")
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise click.ClickException(f"cannot use {folder}: {error.strerror}") from error
    with lock:
        _hold(lock, folder)
        _refuse_left_over(folder)
        with _claimed(ports):
            try:
                cluster = LocalCluster(folder, nodes, ports, env=settings, umask=umask)
            except ValueError as error:
                raise click.UsageError(str(error)) from error
            except OSError as error:
                raise click.ClickException(f"cannot use {error.filename or folder}: {error.strerror}") from error
            _run(cluster)


def _hold(lock: IO[str], folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise click.ClickException(
            f"a cluster runs already on {folder}: stop that one, or choose another folder with --dir"
        ) from error


class _Interrupted(Exception):
    """It is time to stop."""


def _run(cluster: LocalCluster) -> None:
    stop = threading.Event()
    asked: list[str] = []

    def note(number: int, _: object) -> None:
        asked.append(signal.Signals(number).name)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The nodes have sessions of their own: no terminal's end reaches them but through here. Whoever said nohup
        # wants it to reach nobody.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            # Noted only: what is raised in a handler is lost where it comes at a bad moment.
            signal.signal(number, note)

    def go_on() -> None:
        if stop.is_set():
            raise _Interrupted

    with cluster, _noted(cluster):
        cluster.start()
        try:
            click.echo(
                f"starting {len(cluster.names)} nodes in {cluster.folder}; their logs are {cluster.folder}/*.log"
            )
            cluster.wait_until_ready(go_on=go_on)
            _greet(cluster)
            _watch(cluster, stop)
            if not stop.is_set():
                raise click.ClickException(f"no node is left alive. Their logs are {cluster.folder}/*.log")
        except NotInTime as error:
            raise click.ClickException(f"{error}\nThe nodes' logs are {cluster.folder}/*.log") from error
        except _Interrupted:
            pass
        with suppress(OSError):  # of a terminal that is gone
            click.echo(f"stopping on {asked[0]}")


@contextmanager
def _noted(cluster: LocalCluster) -> Iterator[None]:
    """While the block lasts, this user's command line finds the cluster's token from any folder."""
    if cluster.token_file is None:
        yield
        return
    try:
        tokens.note(cluster.token_file, cluster.http_ports, os.environ)
    except OSError as error:
        click.echo(f"rota: {error.filename or 'the state folder'}: {error.strerror}, so set ROTA_TOKEN_FILE", err=True)
    try:
        yield
    finally:
        tokens.forget(cluster.token_file, cluster.http_ports, os.environ)


def _refuse_left_over(folder: Path) -> None:
    """Nodes outlive a `rota up` that was killed with SIGKILL, and keep their folders and ports."""
    left = {path.parent.name: holder for path in sorted(folder.glob("node-*/lock")) if (holder := _holder(path))}
    if left:
        nodes = ", ".join(f"{name} (process {holder})" for name, holder in left.items())
        raise click.ClickException(
            f"nodes of an earlier `rota up` still run on {folder}: {nodes}. "
            f"Stop them, and start again: kill {' '.join(left.values())}"
        )


def _holder(path: Path) -> str | None:
    """The id of the process that holds a node's data folder by its lock file; None if none does."""
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
        return claim(ports)
    except OSError as error:
        raise click.ClickException(
            f"port {error.filename} is taken ({error.strerror}): choose others with --port"
        ) from error


def _greet(cluster: LocalCluster) -> None:
    for name in cluster.names:
        click.echo(f"{name}  {cluster.url(name)}  process {cluster.pid(name)}  log {cluster.log_file(name)}")
    first = cluster.url(cluster.names[0])
    click.echo(f"\nready. In another terminal:  export ROTA_URL={first}; rota status   (or open {first}/docs)")
    if cluster.token_file is None:
        click.echo("ROTA_TOKEN is the token, there too")
    else:
        click.echo(f"the token is in {cluster.token_file}; rota finds it, and a browser asks for it as the password")


def _watch(cluster: LocalCluster, stop: threading.Event) -> None:
    """Say which nodes die, until it is time to stop or none is left."""
    alive = set(cluster.running())
    while alive and not stop.wait(0.5):
        for name in sorted(alive - set(cluster.running())):
            click.echo(f"{name} has died (exit code {cluster.exit_code(name)}); it is left dead")
        alive &= set(cluster.running())
